"""Weight files: safetensors with the configuration inside, so one file is a whole model.

Names are those of the bare :class:`Transformer`, whatever it was wrapped in (``torch.compile``
adds ``_orig_mod.``, DDP ``module.``). A tied head has no tensor of its own. The configuration is
JSON in the one metadata entry ``model_config``: one, because safetensors keeps metadata in a hash
map, and several entries would be written in random order. Equal weights give equal bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from model.config import ModelConfig, ModelConfigError
from model.transformer import Transformer

CONFIG_KEY = "model_config"
WRAPPER_NAMES = ("_orig_mod", "module")


class WeightsError(ValueError):
    """A weight file that isn't what was asked for; names the file and what is wrong with it."""


def unwrap(model: nn.Module) -> Transformer:
    """The bare transformer inside ``torch.compile`` and DDP wrappers."""
    while not isinstance(model, Transformer):
        inner = [getattr(model, name) for name in WRAPPER_NAMES if hasattr(model, name)]
        if not inner:
            raise TypeError(f"{type(model).__name__} is neither a Transformer nor a wrapped one")
        model = inner[0]
    return model


def raw_state(model: nn.Module) -> dict[str, Tensor]:
    """Contiguous CPU tensors by raw name, also where single blocks are wrapped."""
    state = unwrap(model).state_dict()
    return {_raw_name(name): tensor.detach().cpu().contiguous() for name, tensor in state.items()}


def save_weights(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Writes ``model`` (wrapped or not) to ``path``, whole or not at all."""
    path = Path(path)
    config = json.dumps(unwrap(model).config.to_dict(), sort_keys=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    save_file(raw_state(model), unfinished, metadata={CONFIG_KEY: config})
    with open(unfinished, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def read_config(path: str | os.PathLike[str]) -> ModelConfig:
    """The configuration inside a weight file; no tensor is read."""
    config = _stored_config(Path(path))
    if config is None:
        raise WeightsError(
            f"{path} has no {CONFIG_KEY!r} in its metadata; write it with save_weights, "
            "or name its configuration"
        )
    return config


def load_weights(
    path: str | os.PathLike[str], config: ModelConfig | None = None
) -> dict[str, Tensor]:
    """Tensors by raw name, exactly those that ``Transformer(config)`` has, in the file's type.

    ``config`` is needed only for a file without one; given for another file, the two must agree
    in everything but dropout, which is no property of the weights.
    """
    path = Path(path)
    stored = _stored_config(path)
    if config is None:
        config = read_config(path)
    elif stored is not None:
        _require_same(path, stored, config)
    state = load_file(path)
    _require_fit(path, state, config)
    return state


def load_model(path: str | os.PathLike[str], device: torch.device | str = "cpu") -> Transformer:
    """The model of a weight file, in the file's type, on ``device`` and in evaluation mode."""
    config = read_config(path)
    state = load_weights(path, config)
    with torch.device("meta"):
        model = Transformer(config).to(state["token_embedding.weight"].dtype)
    model.to_empty(device=device)
    model.load_state_dict(state, strict=True)
    return model.eval()


def _raw_name(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPER_NAMES)


def _stored_config(path: Path) -> ModelConfig | None:
    if not path.is_file():
        raise FileNotFoundError(f"there is no weight file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except SafetensorError as error:
        raise WeightsError(f"{path} is no whole safetensors file: {error}") from error
    if CONFIG_KEY not in metadata:
        return None
    try:
        return ModelConfig.from_dict(json.loads(metadata[CONFIG_KEY]))
    except (json.JSONDecodeError, ModelConfigError) as error:
        raise WeightsError(f"{path}: metadata {CONFIG_KEY!r}: {error}") from error


def _require_same(path: Path, stored: ModelConfig, wanted: ModelConfig) -> None:
    expected = replace(wanted, dropout=stored.dropout).to_dict()
    different = [
        f"{name} is {value!r} in the file and {expected[name]!r} here"
        for name, value in stored.to_dict().items()
        if value != expected[name]
    ]
    if different:
        raise WeightsError(f"{path} holds another model: " + "; ".join(different))


def _require_fit(path: Path, state: Mapping[str, Tensor], config: ModelConfig) -> None:
    with torch.device("meta"):
        shapes = {name: t.shape for name, t in Transformer(config).state_dict().items()}
    problems = [f"{name} is missing" for name in shapes if name not in state]
    problems += [f"{name} is not known" for name in state if name not in shapes]
    problems += [
        f"{name} has shape {tuple(tensor.shape)} instead of {tuple(shapes[name])}"
        for name, tensor in state.items()
        if name in shapes and tensor.shape != shapes[name]
    ]
    if problems:
        more = f"; and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise WeightsError(f"{path} doesn't fit: " + "; ".join(problems[:5]) + more)
