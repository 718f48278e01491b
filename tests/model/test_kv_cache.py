from __future__ import annotations

import pytest
import torch
from torch import Tensor

from model.attention import chunk_mask
from model.config import ModelConfig
from model.kv_cache import KVCache
from model.transformer import Transformer


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([40], id="prefill"),
        pytest.param([1] * 40, id="one-token-steps"),
        pytest.param([17] + [1] * 23, id="prefill-then-steps"),
        pytest.param([5, 11, 2, 22], id="chunked-prefill"),
        pytest.param([1, 30, 1, 8], id="steps-between-chunks"),
    ],
)
@torch.no_grad()
def test_any_division_into_chunks_equals_the_full_pass(
    model: Transformer, tokens: Tensor, chunks: list[int]
) -> None:
    cache = model.new_cache(batch_size=2)
    parts = [model(part, cache) for part in tokens.split(chunks, dim=1)]
    assert cache.length == 40
    torch.testing.assert_close(torch.cat(parts, dim=1), model(tokens), atol=1e-5, rtol=0)


@torch.no_grad()
def test_bf16_with_cache_agrees_on_the_most_probable_token(
    model: Transformer, tokens: Tensor
) -> None:
    model.to(torch.bfloat16)
    cache = model.new_cache(batch_size=2)
    assert cache.keys.dtype == torch.bfloat16
    steps = torch.cat([model(part, cache) for part in tokens.split([8] + [1] * 32, dim=1)], dim=1)
    agree = (steps.argmax(-1) == model(tokens).argmax(-1)).float().mean().item()
    assert agree >= 0.9


@torch.no_grad()
def test_truncate_and_go_on(model: Transformer, tokens: Tensor) -> None:
    cache = model.new_cache(batch_size=2)
    model(tokens.flip(1), cache)
    cache.truncate(0)
    model(tokens[:, :20], cache)
    model(tokens[:, 5:10], cache)
    cache.truncate(20)
    rest = model(tokens[:, 20:], cache)
    torch.testing.assert_close(rest, model(tokens)[:, 20:], atol=1e-5, rtol=0)


def test_mask_by_definition() -> None:
    for past in range(5):
        for count in range(1, 5):
            mask = chunk_mask(past, count, torch.device("cpu"))
            if mask is None:
                assert past == 0 or count == 1
                continue
            for t in range(count):
                for s in range(past + count):
                    assert bool(mask[t, s]) == (s <= past + t)


def test_size_is_allocated_once(llama_config: ModelConfig, llama: Transformer) -> None:
    cache = KVCache(llama_config, batch_size=3, capacity=10)
    assert cache.keys.shape == cache.values.shape == (3, 3, 2, 10, 8)
    memory = cache.keys.data_ptr()
    with torch.no_grad():
        llama(torch.zeros(3, 4, dtype=torch.int64), cache)
        llama(torch.zeros(3, 6, dtype=torch.int64), cache)
    assert cache.keys.data_ptr() == memory and cache.length == 10


def test_what_does_not_fit_is_refused_and_changes_nothing(
    model: Transformer, tokens: Tensor
) -> None:
    with torch.no_grad():
        cache = model.new_cache(batch_size=2, capacity=12)
        model(tokens[:, :10], cache)
        with pytest.raises(ValueError, match="3 more tokens after 10 don't fit a cache of 12"):
            model(tokens[:, 10:13], cache)
        with pytest.raises(ValueError, match="batch of 1; this cache was made for 2"):
            model(tokens[:1, 10:11], cache)
        with pytest.raises(ValueError, match="length = 11 must be 0 to the 10"):
            cache.truncate(11)
        after = model(tokens[:, 10:12], cache)
        torch.testing.assert_close(after, model(tokens[:, :12])[:, 10:], atol=1e-5, rtol=0)


def test_capacity_is_bounded_by_the_context(llama_config: ModelConfig) -> None:
    for capacity in (0, 41):
        with pytest.raises(ValueError, match=f"capacity = {capacity} must be 1 to context_length"):
            KVCache(llama_config, capacity=capacity)
