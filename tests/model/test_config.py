from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace

import pytest
import torch

from model.config import ModelConfig, ModelConfigError, count_parameters
from model.transformer import Transformer

GPT2 = {"positions": "learned", "norm": "layernorm", "mlp": "gelu", "bias": True}
PRESETS = {
    "tiny": (ModelConfig(4096, 4, 128, 4, 2, 384, 256), 1_311_872, 1.31e6),
    "main": (ModelConfig(16384, 14, 768, 12, 12, 2048, 768), 111_695_616, 111.7e6),
    "gpt2-small": (ModelConfig(51200, 12, 768, 12, 12, 3072, 1024, **GPT2), 125_164_032, 125e6),
    "gpt2-medium": (ModelConfig(51200, 24, 1024, 16, 16, 4096, 1024, **GPT2), 355_788_800, 356e6),
    "gpt2-large": (ModelConfig(51200, 36, 1280, 20, 20, 5120, 2048, **GPT2), 776_547_840, 776e6),
    "modern": (ModelConfig(51200, 24, 1024, 16, 4, 2730, 1024), 316_670_976, 317e6),
}


@pytest.mark.parametrize("name", PRESETS)
def test_parameter_count_of_presets(name: str) -> None:
    config, exact, about = PRESETS[name]
    with torch.device("meta"):
        counted = sum(p.numel() for p in Transformer(config).parameters())
    assert count_parameters(config) == counted
    assert counted == exact == pytest.approx(about, rel=0.005)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("norm", ["rmsnorm", "layernorm"])
@pytest.mark.parametrize("mlp", ["swiglu", "gelu"])
@pytest.mark.parametrize("positions", ["rope", "learned"])
def test_parameter_count_of_every_combination(
    positions: str, mlp: str, norm: str, bias: bool, tied: bool
) -> None:
    config = ModelConfig(
        *(61, 2, 24, 6, 3, 20, 17),
        positions=positions,
        norm=norm,
        mlp=mlp,
        bias=bias,
        tied_embeddings=tied,
    )
    model = Transformer(config)
    assert count_parameters(config) == sum(p.numel() for p in model.parameters())
    assert model(torch.tensor([[1, 2, 3]])).shape == (1, 3, 61)


def test_smallest_model_by_hand() -> None:
    # embedding 3·2, queries, keys, values and output 4·2·2, SwiGLU 3·2·1, three norms 3·2
    assert count_parameters(ModelConfig(3, 1, 2, 1, 1, 1, 4)) == 6 + 16 + 6 + 6


def test_dictionary_round_trip(config: ModelConfig) -> None:
    assert ModelConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_integers_for_numbers_give_the_same_json(config: ModelConfig) -> None:
    whole = replace(config, rope_theta=10_000, dropout=0)
    assert json.dumps(whole.to_dict()) == json.dumps(config.to_dict())


def test_is_frozen(config: ModelConfig) -> None:
    with pytest.raises(FrozenInstanceError):
        config.n_layer = 5  # type: ignore[misc]


def test_unknown_and_missing_names_are_refused(config: ModelConfig) -> None:
    with pytest.raises(ModelConfigError, match=r"unknown \['n_layers'\].*'n_layer'"):
        ModelConfig.from_dict({**config.to_dict(), "n_layers": 3})
    with pytest.raises(ModelConfigError, match=r"\['n_layer'\] not given"):
        ModelConfig.from_dict({k: v for k, v in config.to_dict().items() if k != "n_layer"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_embd": 34}, "n_embd = 34 must be a multiple of n_head = 4"),
        ({"n_kv_head": 3}, "n_kv_head = 3 must divide n_head = 4: one of 1, 2, 4"),
        ({"n_embd": 36}, "heads of 9; positions = 'rope' needs an even head size"),
        ({"positions": "alibi"}, "positions = 'alibi' must be one of rope, learned"),
        ({"norm": "batchnorm"}, "norm = 'batchnorm' must be one of rmsnorm, layernorm"),
        ({"mlp": "relu"}, "mlp = 'relu' must be one of swiglu, gelu"),
        ({"n_layer": 0}, "n_layer = 0 must be an integer of at least 1"),
        ({"n_layer": True}, "n_layer = True must be an integer"),
        ({"vocab_size": 4096.0}, "vocab_size = 4096.0 must be an integer"),
        ({"dropout": 1.0}, "dropout = 1.0 must be at least 0 and below 1"),
        ({"norm_eps": float("nan")}, "norm_eps = nan must be above 0"),
        ({"rope_theta": "1e4"}, "rope_theta = '1e4' must be a number"),
        ({"bias": 1}, "bias = 1 must be true or false"),
    ],
)
def test_errors_name_field_value_and_what_is_allowed(
    llama_config: ModelConfig, change: dict[str, object], message: str
) -> None:
    with pytest.raises(ModelConfigError, match=message):
        replace(llama_config, **change)


def test_all_problems_are_told_at_once(llama_config: ModelConfig) -> None:
    with pytest.raises(ModelConfigError, match=r"n_embd = 33.*n_kv_head = 3.*dropout = 2"):
        replace(llama_config, n_embd=33, n_kv_head=3, dropout=2)


def test_odd_head_size_is_fine_with_learned_positions(llama_config: ModelConfig) -> None:
    assert replace(llama_config, n_embd=36, positions="learned").head_size == 9


def test_config_is_free_of_torch() -> None:
    program = "import model.config, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
