"""Causal multi-head attention with grouped queries: (B, T, n_embd) to (B, T, n_embd).

``softmax(q kᵀ / sqrt(head_size)) v`` by torch's fused kernel (Vaswani et al. 2017; grouped queries
Ainslie et al. 2023: query head ``h`` reads key and value head ``h // (n_head / n_kv_head)``).

Letters: B batch, T new tokens, S all tokens so far (S = past + T).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.config import ModelConfig
from model.kv_cache import KVCache
from model.layers import Linear
from model.positions import Rotation, rotate


def chunk_mask(past: int, count: int, device: torch.device) -> Tensor | None:
    """Mask (T, S), true where a query may look; None where none is needed.

    Query ``t`` stands at position ``past + t``. The kernel's ``is_causal`` aligns its triangle with
    the top left corner, which is wrong as soon as S > T; then the mask has to be written out. A
    single token sees everything and needs none.
    """
    if past == 0 or count == 1:
        return None
    everything = torch.ones(count, past + count, dtype=torch.bool, device=device)
    return everything.tril(diagonal=past)


class Attention(nn.Module):
    """Attention of layer ``layer``; the number is its place in the KV cache."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.n_head, self.n_kv_head = config.n_head, config.n_kv_head
        self.head_size = config.head_size
        kv_width = config.n_kv_head * config.head_size
        self.query = Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.key = Linear(config.n_embd, kv_width, bias=config.bias)
        self.value = Linear(config.n_embd, kv_width, bias=config.bias)
        self.output = Linear(config.n_embd, config.n_embd, bias=config.bias)
        # Modules, so that setting p on every nn.Dropout changes dropout during a run. The first is
        # only read: its dropout happens inside the kernel.
        self.attention_dropout = nn.Dropout(config.dropout)
        self.output_dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        rotation: Rotation | None = None,
        mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """x (B, T, n_embd); ``mask`` from :func:`chunk_mask`."""
        queries = self._heads(self.query(x), self.n_head)
        keys = self._heads(self.key(x), self.n_kv_head)
        values = self._heads(self.value(x), self.n_kv_head)
        if rotation is not None:
            queries, keys = rotate(queries, rotation), rotate(keys, rotation)
        if cache is not None:
            keys, values = cache.append(self.layer, keys, values)
        mixed = F.scaled_dot_product_attention(
            queries,
            keys,
            values,
            attn_mask=mask,
            dropout_p=self.attention_dropout.p if self.training else 0.0,
            is_causal=mask is None and queries.shape[2] > 1,
            enable_gqa=self.n_kv_head != self.n_head,
        )
        return self.output_dropout(self.output(mixed.transpose(1, 2).flatten(2)))

    def _heads(self, x: Tensor, n_head: int) -> Tensor:
        """(B, T, n_head · head_size) to (B, n_head, T, head_size)."""
        return x.unflatten(2, (n_head, self.head_size)).transpose(1, 2)
