"""Checkpoints: folders ``step-000123/`` in a run's work folder that are whole or don't exist.

A folder holds ``model.safetensors``, ``optimizer.safetensors`` and ``state.json``: the number of
finished steps, the run's identity, the optimizer's step counts, and size and SHA-256 of every
other file, with a digest of the record itself. It is written under a temporary name, synced and
renamed. There is no random state in it: dropout is seeded by the micro-step.

The last two are kept, so that one that was damaged later (a full disk, a torn copy) costs some
steps but not the run.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.optim
from safetensors.torch import load_file, save_file
from torch import nn

from model.weights import load_weights, save_weights
from trainers.identity import file_digest
from trainers.optimizer import optimizer_state, restore_optimizer

KEPT = 2
MODEL_FILE = "model.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "state.json"

_TEMPORARY = ".temporary-"
_FOLDER = re.compile(r"step-(\d{6,})")
_log = logging.getLogger(__name__)


class DamagedCheckpoint(ValueError):
    """A checkpoint folder whose files aren't what its record says."""


@dataclass(frozen=True)
class Checkpoint:
    """An intact checkpoint: its folder, the steps finished before it, and its run's identity."""

    folder: Path
    step: int
    identity: dict[str, Any]
    optimizer_steps: dict[str, int]


def save(
    work_dir: Path,
    *,
    step: int,
    identity: dict[str, Any],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
) -> Path:
    """Write the checkpoint after ``step`` finished steps, then remove all but the last two.

    Folders of later steps are removed as well: the run has gone back before them, which it only
    does when they are damaged.
    """
    tensors, steps = optimizer_state(optimizer, model)
    target = work_dir / f"step-{step:06d}"
    with whole_folder(target) as folder:
        save_weights(model, folder / MODEL_FILE)
        save_file(tensors, folder / OPTIMIZER_FILE)
        state = {"step": step, "identity": identity, "optimizer_steps": steps}
        state["files"] = {
            path.name: {"bytes": path.stat().st_size, "sha256": file_digest(path)}
            for path in sorted(folder.iterdir())
        }
        state["digest"] = _state_digest(state)
        (folder / STATE_FILE).write_text(json.dumps(state, ensure_ascii=False, indent=1) + "\n")
    earlier = [path for number, path in _folders(work_dir) if number <= step]
    for _, path in _folders(work_dir):
        if path not in earlier[-KEPT:]:
            shutil.rmtree(path)
    return target


def latest(work_dir: Path) -> Checkpoint | None:
    """The last intact checkpoint, or None. Damaged ones are skipped with a warning; what a killed
    process left half-written is removed."""
    if not work_dir.is_dir():
        return None
    for leftover in work_dir.glob(f"{_TEMPORARY}*"):
        shutil.rmtree(leftover)
    for _, folder in reversed(_folders(work_dir)):
        try:
            return read_checkpoint(folder)
        except DamagedCheckpoint as error:
            _log.warning("checkpoint skipped: %s", error)
    return None


def read_checkpoint(folder: Path) -> Checkpoint:
    """The checkpoint in ``folder``; :class:`DamagedCheckpoint` when any byte of it is wrong."""
    try:
        state = json.loads((folder / STATE_FILE).read_text())
        if state["digest"] != _state_digest(state):
            raise DamagedCheckpoint(f"{folder / STATE_FILE}: its digest doesn't match")
        files = {**state["files"]}
        checkpoint = Checkpoint(folder, state["step"], state["identity"], state["optimizer_steps"])
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise DamagedCheckpoint(f"{folder / STATE_FILE}: {error!r}") from error
    for name, recorded in files.items():
        path = folder / name
        size = path.stat().st_size if path.is_file() else None
        if size != recorded["bytes"]:
            raise DamagedCheckpoint(f"{path}: {size} bytes instead of {recorded['bytes']}")
        if file_digest(path) != recorded["sha256"]:
            raise DamagedCheckpoint(f"{path}: SHA-256 isn't the recorded {recorded['sha256']}")
    return checkpoint


def restore(checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Put a checkpoint's weights and moments into ``model`` and ``optimizer``."""
    model.load_state_dict(load_weights(checkpoint.folder / MODEL_FILE, model.config))
    tensors = load_file(checkpoint.folder / OPTIMIZER_FILE)
    restore_optimizer(optimizer, model, tensors, checkpoint.optimizer_steps)


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A temporary folder that is synced and renamed to ``target`` when the block succeeds and
    removed when it fails. A ``target`` that exists is replaced."""
    temporary = target.parent / f"{_TEMPORARY}{target.name}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        for path in temporary.iterdir():
            _sync(path)
        _sync(temporary)
        if target.exists():  # a folder can't be renamed onto one that isn't empty
            shutil.rmtree(target)
        temporary.rename(target)
        _sync(target.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _folders(work_dir: Path) -> list[tuple[int, Path]]:
    """(step, folder) of everything that is named like a checkpoint, by step."""
    matches = [(_FOLDER.fullmatch(path.name), path) for path in work_dir.iterdir()]
    return sorted((int(match[1]), path) for match, path in matches if match and path.is_dir())


def _state_digest(state: dict[str, Any]) -> str:
    rest = {name: value for name, value in state.items() if name != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
