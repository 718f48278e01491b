"""Training: options, schedule, token loader, optimizer, checkpoints, loop; and BPC evaluation.

A plain, exact single-process trainer: the whole state of a run is (weights, optimizer moments,
step). Everything random is a pure function of the seed and the step, so a run that was killed and
resumed gives the same bytes as one that was never interrupted.

Table of contents: ``options`` what a run does, ``schedule`` learning rate, ``counter_random``
stateless randomness, ``mixture`` index arithmetic, ``loader`` token batches, ``optimizer`` AdamW,
``metrics`` the step log, ``checkpoint`` atomic checkpoints, ``identity`` what a checkpoint belongs
to, ``environment`` device, precision and determinism, ``loop`` the training loop, ``bpc`` bits per
character. Modules are imported by name; this one imports nothing.
"""
