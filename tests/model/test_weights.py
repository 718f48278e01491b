from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from model.config import ModelConfig
from model.transformer import Transformer
from model.weights import (
    WeightsError,
    load_model,
    load_weights,
    raw_state,
    read_config,
    save_weights,
)


@pytest.fixture
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_one_file_is_the_whole_model(model: Transformer, tokens: Tensor, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "model.safetensors"
    save_weights(model, path)
    assert read_config(path) == model.config
    loaded = load_model(path)
    assert loaded.config == model.config and not loaded.training
    assert all(p.requires_grad for p in loaded.parameters())
    assert torch.equal(loaded(tokens), model(tokens))
    assert [p.name for p in path.parent.iterdir()] == ["model.safetensors"]


def test_16_bit_weights_stay_16_bit(model: Transformer, tokens: Tensor, tmp_path: Path) -> None:
    model.to(torch.bfloat16)
    save_weights(model, tmp_path / "m.safetensors")
    loaded = load_model(tmp_path / "m.safetensors")
    assert loaded.token_embedding.weight.dtype == torch.bfloat16
    assert torch.equal(loaded(tokens), model(tokens))


def test_tied_head_is_not_in_the_file(llama_config: ModelConfig, tmp_path: Path) -> None:
    for tied in (True, False):
        path = tmp_path / f"{tied}.safetensors"
        save_weights(Transformer(replace(llama_config, tied_embeddings=tied)), path)
        with safe_open(path, framework="pt") as file:
            assert ("output_head.weight" in file.keys()) == (not tied)
        assert load_model(path).config.tied_embeddings == tied


def test_equal_weights_give_equal_bytes(config: ModelConfig, tmp_path: Path) -> None:
    files = []
    for i in range(4):
        save_weights(Transformer(config, seed=3), tmp_path / str(i))
        files.append((tmp_path / str(i)).read_bytes())
    save_weights(load_model(tmp_path / "0"), tmp_path / "again")
    assert set(files) == {(tmp_path / "again").read_bytes()}
    save_weights(Transformer(config, seed=4), tmp_path / "other")
    assert (tmp_path / "other").read_bytes() != files[0]


def test_wrapped_models_save_raw_names(
    model: Transformer, tmp_path: Path, process_group: None
) -> None:
    save_weights(model, tmp_path / "plain")
    plain = (tmp_path / "plain").read_bytes()
    wrapped = {
        "compiled": torch.compile(model),
        "ddp": DistributedDataParallel(model),
        "compiled-ddp": torch.compile(DistributedDataParallel(model)),
        "ddp-compiled": DistributedDataParallel(torch.compile(model)),
    }
    for name, wrapper in wrapped.items():
        assert any("_orig_mod." in n or "module." in n for n in wrapper.state_dict())
        save_weights(wrapper, tmp_path / name)
        assert (tmp_path / name).read_bytes() == plain, name


def test_single_compiled_blocks_save_raw_names(llama: Transformer) -> None:
    names = set(llama.state_dict())
    llama.blocks[1] = torch.compile(llama.blocks[1])
    assert any("_orig_mod" in name for name in llama.state_dict())
    assert set(raw_state(llama)) == names


def test_missing_unknown_and_misshapen_tensors_are_refused(
    llama: Transformer, llama_config: ModelConfig, tmp_path: Path
) -> None:
    path = tmp_path / "m.safetensors"
    save_weights(llama, path)
    state = load_file(path)
    state["_orig_mod.final_norm.weight"] = state.pop("final_norm.weight")
    state["blocks.0.attention.key.weight"] = torch.zeros(32, 32)
    save_file(state, path)
    with pytest.raises(WeightsError) as caught:
        load_weights(path, llama_config)
    message = str(caught.value)
    assert "final_norm.weight is missing" in message
    assert "_orig_mod.final_norm.weight is not known" in message
    assert "blocks.0.attention.key.weight has shape (32, 32) instead of (16, 32)" in message


def test_a_file_without_configuration_needs_one(
    llama: Transformer, llama_config: ModelConfig, tmp_path: Path
) -> None:
    path = tmp_path / "bare.safetensors"
    save_file(raw_state(llama), path)
    with pytest.raises(WeightsError, match="has no 'model_config' in its metadata"):
        load_weights(path)
    assert set(load_weights(path, llama_config)) == set(llama.state_dict())


def test_the_wrong_configuration_is_refused(
    llama: Transformer, llama_config: ModelConfig, tmp_path: Path
) -> None:
    path = tmp_path / "m.safetensors"
    save_weights(llama, path)
    with pytest.raises(WeightsError, match=r"rope_theta is 10000.0 in the file and 500000.0 here"):
        load_weights(path, replace(llama_config, rope_theta=500_000))
    other_dropout = replace(llama_config, dropout=0.1)
    assert torch.equal(
        load_weights(path, other_dropout)["final_norm.weight"], llama.final_norm.weight
    )


def test_broken_and_absent_files_are_named(llama: Transformer, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    with pytest.raises(FileNotFoundError, match=r"no weight file .*m\.safetensors"):
        load_model(path)
    save_weights(llama, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(WeightsError, match="is no whole safetensors file"):
        load_model(path)
    with pytest.raises(TypeError, match="Linear is neither a Transformer"):
        save_weights(torch.nn.Linear(2, 2), path)


def test_loaded_weights_outlive_their_file(llama: Transformer, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_weights(llama, path)
    loaded = load_model(path)
    path.write_bytes(b"")
    assert all(
        torch.equal(a, b) for a, b in zip(loaded.parameters(), llama.parameters(), strict=True)
    )
