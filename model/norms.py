"""Normalisation over the last axis of (…, n_embd), in fp32 inside whatever the input's type.

RMSNorm (Zhang and Sennrich 2019): ``x / sqrt(mean(x²) + eps) · w``. LayerNorm (Ba et al. 2016):
``(x − mean(x)) / sqrt(var(x) + eps) · w + b``, with ``b`` only where the configuration has biases.
"""

from __future__ import annotations

from torch import nn

from model.config import ModelConfig


def build_norm(config: ModelConfig) -> nn.Module:
    """The norm that ``config.norm`` names; weights start at 1 and biases at 0."""
    if config.norm == "rmsnorm":
        return nn.RMSNorm(config.n_embd, eps=config.norm_eps)
    return nn.LayerNorm(config.n_embd, eps=config.norm_eps, bias=config.bias)
