"""The language model: one decoder-only family, its KV cache, sampling and weight files.

Imports torch and safetensors and nothing of ours. Table of contents: ``config`` the shape and its
parameter count (without torch), ``transformer`` the network and its initialisation, built of
``attention``, ``feed_forward``, ``norms``, ``positions`` and ``layers``; ``kv_cache`` keys and
values of past tokens; ``sampling`` logits to tokens; ``weights`` the self-describing weight file.
Modules are imported by name; this one imports nothing.
"""
