"""Rotary position embeddings (RoPE; Su et al. 2021) in the half-split layout.

Element ``i`` of a head is paired with element ``i + head_size/2`` (the layout of Llama in
``transformers``; the paper and GPT-J pair neighbours), and the pair at position ``p`` is turned by
the angle ``p · theta^(−2i/head_size)``. The tables are fp32 and stay so when the model is cast:
in bf16, with 8 bits of mantissa, neighbouring far positions would be the same position.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

Rotation = tuple[Tensor, Tensor]  # cosines and sines, each (T, head_size/2), fp32


def rope_tables(length: int, head_size: int, theta: float) -> Rotation:
    """Cosines and sines, each (length, head_size/2), fp32, on the CPU.

    Angles are computed in fp32 as ``transformers`` does. fp64 would be more exact, and an exported
    model would then differ from this one at far positions.
    """
    exponents = torch.arange(0, head_size, 2, dtype=torch.float32, device="cpu") / head_size
    frequencies = 1.0 / theta**exponents
    places = torch.arange(length, dtype=torch.float32, device="cpu")
    angles = torch.outer(places, frequencies)
    return angles.cos(), angles.sin()


class RotaryPositions(nn.Module):
    """Holds the tables for positions 0 to ``length − 1``; no parameters, nothing is saved."""

    def __init__(self, length: int, head_size: int, theta: float) -> None:
        super().__init__()
        self.length, self.head_size, self.theta = length, head_size, theta
        # empty(0) only says which device the module is being built on (it may be "meta").
        self._set_tables(torch.empty(0).device)

    def _set_tables(self, device: torch.device) -> None:
        cosines, sines = rope_tables(self.length, self.head_size, self.theta)
        self.register_buffer("cosines", cosines.to(device), persistent=False)
        self.register_buffer("sines", sines.to(device), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> RotaryPositions:
        """Behind ``.to()``, ``.half()``, ``.to_empty()``: tables follow the device, never the type.

        They are computed anew: a cast to bf16 and back would have lost their low bits.
        """
        super()._apply(fn, recurse)
        self._set_tables(self.cosines.device)
        return self

    def forward(self, start: int, count: int) -> Rotation:
        """Tables of the positions ``start`` to ``start + count − 1``."""
        return self.cosines[start : start + count], self.sines[start : start + count]


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Queries or keys (B, heads, T, head_size), turned in fp32; the type of ``x`` is kept."""
    cosines, sines = rotation
    first, second = x.float().chunk(2, dim=-1)
    turned = (first * cosines - second * sines, second * cosines + first * sines)
    return torch.cat(turned, dim=-1).to(x.dtype)
