"""The position-wise network: (B, T, n_embd) to (B, T, n_embd).

SwiGLU (Shazeer 2020): ``down(silu(gate(x)) · up(x))``. GELU (Hendrycks and Gimpel 2016):
``down(gelu(up(x)))`` in GPT-2's tanh approximation.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from model.config import ModelConfig
from model.layers import Linear


class SwiGLU(nn.Module):
    """Gated network of three matrices."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = Linear(config.n_embd, config.ffn_hidden, bias=config.bias)
        self.up = Linear(config.n_embd, config.ffn_hidden, bias=config.bias)
        self.down = Linear(config.ffn_hidden, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.down(F.silu(self.gate(x)) * self.up(x)))


class GELU(nn.Module):
    """GPT-2's network of two matrices."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.up = Linear(config.n_embd, config.ffn_hidden, bias=config.bias)
        self.down = Linear(config.ffn_hidden, config.n_embd, bias=config.bias)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.down(F.gelu(self.up(x), approximate="tanh")))


def build_feed_forward(config: ModelConfig) -> nn.Module:
    """The network that ``config.mlp`` names."""
    return SwiGLU(config) if config.mlp == "swiglu" else GELU(config)
