"""Checkpoint folders: whole or not there, the last two, damaged ones skipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from model.config import ModelConfig
from pipelines.shards.reader import TokenStream
from trainers import checkpoint
from trainers.loop import train
from trainers.options import TrainingOptions


@pytest.fixture
def work(
    config: ModelConfig,
    streams: dict[str, TokenStream],
    options: Callable[..., TrainingOptions],
    tmp_path: Path,
) -> Path:
    train(config, options(), streams, tmp_path / "work")
    return tmp_path / "work"


def test_the_last_two_are_kept(work: Path) -> None:
    assert sorted(path.name for path in work.glob("step-*")) == ["step-000008", "step-000012"]
    assert checkpoint.latest(work).step == 12


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damage_is_found_and_skipped(work: Path, file: str, damage: str) -> None:
    path = work / "step-000012" / file
    content = bytearray(path.read_bytes())
    if damage == "remove":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[:-9])
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    assert checkpoint.latest(work).step == 8


def test_damaged_latest_costs_steps_and_not_the_run(
    work: Path,
    config: ModelConfig,
    streams: dict[str, TokenStream],
    options: Callable[..., TrainingOptions],
) -> None:
    before = (work / "final" / "model.safetensors").read_bytes()
    (work / "step-000012" / "model.safetensors").write_bytes(b"torn")
    result = train(config, options(), streams, work)
    assert result.weights.read_bytes() == before


def test_half_written_folder_is_removed(work: Path) -> None:
    (work / ".temporary-step-000016").mkdir()
    assert checkpoint.latest(work).step == 12
    assert not (work / ".temporary-step-000016").exists()
