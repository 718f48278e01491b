"""The decoder-only transformer: token ids (B, T) to next-token logits (B, T, vocab_size).

Pre-norm residual blocks (Radford et al. 2019, Touvron et al. 2023); every part is a choice of
:class:`model.config.ModelConfig`. With tied embeddings the output head *is* the embedding matrix:
there is no second parameter that could be saved twice or drift.

Logits at position ``t`` are for the token at ``t + 1`` and depend on the tokens up to ``t`` only.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.attention import Attention, chunk_mask
from model.config import ModelConfig
from model.feed_forward import build_feed_forward
from model.kv_cache import KVCache
from model.layers import Embedding, Linear
from model.norms import build_norm
from model.positions import RotaryPositions, Rotation

INIT_STD = 0.02
RESIDUAL_PROJECTIONS = ("attention.output.weight", "feed_forward.down.weight")


class Block(nn.Module):
    """``x + attention(norm(x))``, then ``x + feed_forward(norm(x))``; (B, T, n_embd) kept."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.attention_norm = build_norm(config)
        self.attention = Attention(config, layer)
        self.feed_forward_norm = build_norm(config)
        self.feed_forward = build_feed_forward(config)

    def forward(
        self,
        x: Tensor,
        rotation: Rotation | None = None,
        mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotation, mask, cache)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Transformer(nn.Module):
    """The network; weights are those of ``init_weights(model, seed)`` from the start.

    Built under ``torch.device("meta")`` it has shapes only.
    """

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.token_embedding = Embedding(config.vocab_size, config.n_embd)
        if config.positions == "rope":
            self.rotary = RotaryPositions(
                config.context_length, config.head_size, config.rope_theta
            )
        else:
            self.position_embedding = Embedding(config.context_length, config.n_embd)
        self.embedding_dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.n_layer))
        self.final_norm = build_norm(config)
        if not config.tied_embeddings:
            self.output_head = Linear(config.n_embd, config.vocab_size, bias=False)
        if not self.token_embedding.weight.is_meta:
            init_weights(self, seed)

    def forward(self, tokens: Tensor, cache: KVCache | None = None) -> Tensor:
        """tokens (B, T) int64 to logits (B, T, vocab_size).

        With a cache, the tokens follow those already in it, and it grows by T.
        """
        return self.head(self.forward_hidden(tokens, cache))

    def forward_hidden(self, tokens: Tensor, cache: KVCache | None = None) -> Tensor:
        """tokens (B, T) to normed states (B, T, n_embd), for :meth:`head` at chosen positions."""
        past = 0 if cache is None else cache.length
        self._check(tokens, past, cache)
        count = tokens.shape[1]
        x = self.token_embedding(tokens)
        rotation = None
        if self.config.positions == "rope":
            rotation = self.rotary(past, count)
        else:
            x = x + self.position_embedding.weight[past : past + count]
        x = self.embedding_dropout(x)
        mask = chunk_mask(past, count, x.device)
        for block in self.blocks:
            x = block(x, rotation, mask, cache)
        if cache is not None:
            cache.advance(count)
        return self.final_norm(x)

    def head(self, hidden: Tensor) -> Tensor:
        """States (…, n_embd) of :meth:`forward_hidden` to logits (…, vocab_size)."""
        if self.config.tied_embeddings:
            return F.linear(hidden, self.token_embedding.weight)
        return self.output_head(hidden)

    def new_cache(self, batch_size: int = 1, capacity: int | None = None) -> KVCache:
        """An empty cache in this model's type and on its device; default: the whole context."""
        weight = self.token_embedding.weight
        return KVCache(self.config, batch_size, capacity, weight.dtype, weight.device)

    def _check(self, tokens: Tensor, past: int, cache: KVCache | None) -> None:
        if tokens.ndim != 2 or tokens.shape[1] == 0:
            raise ValueError(
                f"tokens have shape {tuple(tokens.shape)}; (B, T) with T > 0 is needed"
            )
        if past + tokens.shape[1] > self.config.context_length:
            raise ValueError(
                f"{past} tokens in the cache and {tokens.shape[1]} new ones are more than "
                f"context_length = {self.config.context_length}; cut the text to its last part"
            )
        if cache is not None:
            cache.check_room(*tokens.shape)


@torch.no_grad()
def init_weights(model: Transformer, seed: int) -> None:
    """Draws all weights anew, in place: the same for the same seed, on any device.

    Matrices are normal with standard deviation 0.02; those that write into the residual stream are
    scaled by ``1/sqrt(2 · n_layer)``, so that its variance doesn't grow with depth (GPT-2; Radford
    et al. 2019). Norm weights are 1, biases 0. Drawn on the CPU in fp32 by a generator of its own:
    the global random state is neither read nor changed.
    """
    generator = torch.Generator(device="cpu").manual_seed(seed)
    residual_std = INIT_STD / math.sqrt(2 * model.config.n_layer)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            std = residual_std if name.endswith(RESIDUAL_PROJECTIONS) else INIT_STD
            drawn = torch.empty(parameter.shape, dtype=torch.float32, device="cpu")
            parameter.copy_(drawn.normal_(0.0, std, generator=generator))
        elif name.endswith("bias"):
            parameter.zero_()
        else:
            parameter.fill_(1.0)
