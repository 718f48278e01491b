from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import (
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)

from model.config import ModelConfig
from model.positions import RotaryPositions, rope_tables, rotate
from model.transformer import Transformer


def test_one_pair_by_hand() -> None:
    # head size 2: one pair, turned by the position itself (theta^0 = 1)
    x = torch.tensor([[[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]])
    turned = rotate(x, rope_tables(3, 2, 10_000.0))
    expected = [[1, 0], [0.540302, 0.841471], [-0.909297, -0.416147]]
    torch.testing.assert_close(turned[0, 0], torch.tensor(expected), atol=1e-6, rtol=0)


def test_equals_transformers_up_to_position_4095() -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 4, 4096, 64, generator=generator)
    k = torch.randn(1, 2, 4096, 64, generator=generator)
    rotary = LlamaRotaryEmbedding(LlamaConfig(hidden_size=256, num_attention_heads=4))
    expected = apply_rotary_pos_emb(q, k, *rotary(q, torch.arange(4096)[None]))
    ours = RotaryPositions(4096, 64, 10_000.0)(0, 4096)
    torch.testing.assert_close(rotate(q, ours), expected[0], atol=1e-6, rtol=0)
    torch.testing.assert_close(rotate(k, ours), expected[1], atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_tables_stay_fp32_when_the_model_is_cast(dtype: torch.dtype) -> None:
    config = ModelConfig(11, 1, 8, 1, 1, 8, context_length=4096)
    model = Transformer(config)
    before = model.rotary.cosines.clone()
    for cast in (model.to(dtype), model.float(), model.to(dtype)):
        assert cast.rotary.cosines.dtype == cast.rotary.sines.dtype == torch.float32
        assert torch.equal(cast.rotary.cosines, before)
    assert model.token_embedding.weight.dtype == dtype
    assert not torch.equal(model.rotary.cosines[4095], model.rotary.cosines[4094])


def test_far_neighbours_differ_for_a_bf16_query() -> None:
    x = torch.ones(1, 1, 4096, 64, dtype=torch.bfloat16)
    turned = rotate(x, rope_tables(4096, 64, 10_000.0))
    assert turned.dtype == torch.bfloat16
    assert not torch.equal(turned[0, 0, 4095], turned[0, 0, 4094])


def test_tables_are_not_saved_and_survive_to_empty(llama_config: ModelConfig) -> None:
    with torch.device("meta"):
        model = Transformer(llama_config)
    assert model.rotary.cosines.is_meta
    model.to_empty(device="cpu")
    cosines, sines = rope_tables(40, llama_config.head_size, llama_config.rope_theta)
    assert torch.equal(model.rotary.cosines, cosines)
    assert torch.equal(model.rotary.sines, sines)
    assert not any("rotary" in name for name in model.state_dict())


def test_scores_depend_on_the_distance_only() -> None:
    generator = torch.Generator().manual_seed(1)
    q, k = torch.randn(2, 1, 1, 1, 16, generator=generator).expand(2, 1, 1, 50, 16)
    tables = rope_tables(50, 16, 10_000.0)
    scores = (rotate(q, tables) @ rotate(k, tables).transpose(2, 3))[0, 0]
    for distance in (0, 3, 20):
        diagonal = scores.diagonal(-distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-4, rtol=0)
