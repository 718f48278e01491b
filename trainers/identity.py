"""What a run's checkpoints belong to: everything that decides on its weights.

A checkpoint is only resumed by a run of the same identity. Options that change speed or
reporting alone are left out, so they may change between an interruption and the resume.
``threads``, ``device`` and what ``precision = "auto"`` comes to are left out too: a run may go on
on another machine, where its numbers agree only to rounding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.config import ModelConfig
from pipelines.shards.reader import TokenStream
from trainers.loader import fingerprint
from trainers.options import TrainingOptions

_NOT_IDENTITY = ("threads", "device", "checkpoint_every", "log_every")


def run_identity(
    model_config: ModelConfig,
    options: TrainingOptions,
    streams: Mapping[str, TokenStream],
    initial_weights: Path | None,
) -> dict[str, Any]:
    """The identity as plain JSON values, so that two can be compared name by name."""
    values = options.to_dict()
    return {
        "options": {name: values[name] for name in values if name not in _NOT_IDENTITY},
        "model": model_config.to_dict(),
        "initial_weights": None if initial_weights is None else file_digest(initial_weights),
        "data": {group: fingerprint(stream) for group, stream in sorted(streams.items())},
    }


def differences(before: Any, now: Any, name: str = "") -> list[str]:
    """Where two identities differ, as ``options.peak_lr: 0.001 before, 0.002 now``."""
    if isinstance(before, dict) and isinstance(now, dict):
        found = []
        for part in sorted(set(before) | set(now)):
            inner = f"{name}.{part}" if name else part
            found += differences(before.get(part), now.get(part), inner)
        return found
    return [] if before == now else [f"{name}: {before!r} before, {now!r} now"]


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes, as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
