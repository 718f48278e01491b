"""Keys and values of the tokens already seen, so that a new token costs one position of work.

Memory is allocated once: ``2 · n_layer · B · n_kv_head · capacity · head_size`` elements. Keys are
stored after RoPE. A forward pass with T tokens writes positions ``length`` to ``length + T − 1`` in
every layer and then advances ``length``; one that fails half-way leaves ``length`` as it was.
"""

from __future__ import annotations

import torch
from torch import Tensor

from model.config import ModelConfig


class KVCache:
    """Cache of one batch; ``length`` is the number of positions filled, ``capacity`` the room."""

    def __init__(
        self,
        config: ModelConfig,
        batch_size: int = 1,
        capacity: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        capacity = config.context_length if capacity is None else capacity
        if not 1 <= capacity <= config.context_length:
            raise ValueError(
                f"capacity = {capacity} must be 1 to context_length = {config.context_length}"
            )
        shape = (config.n_layer, batch_size, config.n_kv_head, capacity, config.head_size)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.capacity = capacity
        self.length = 0

    def check_room(self, batch_size: int, count: int) -> None:
        """Raises unless ``count`` more positions of a batch of ``batch_size`` fit."""
        if batch_size != self.keys.shape[1]:
            raise ValueError(f"batch of {batch_size}; this cache was made for {self.keys.shape[1]}")
        if self.length + count > self.capacity:
            raise ValueError(
                f"{count} more tokens after {self.length} don't fit a cache of {self.capacity}; "
                "truncate it and prefill the last part of the text"
            )

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Stores (B, n_kv_head, T, head_size) of one layer; all of it so far, as views."""
        end = self.length + keys.shape[2]
        self.keys[layer, :, :, self.length : end] = keys
        self.values[layer, :, :, self.length : end] = values
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]

    def advance(self, count: int) -> None:
        """``count`` positions are now filled in every layer."""
        self.length += count

    def truncate(self, length: int) -> None:
        """Forgets everything from position ``length`` on; 0 empties the cache."""
        if not 0 <= length <= self.length:
            raise ValueError(f"length = {length} must be 0 to the {self.length} positions filled")
        self.length = length
