"""The loop: exact resume, masks, accumulation, divergence."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from model.config import ModelConfig
from model.transformer import Transformer
from pipelines.shards.reader import TokenStream
from trainers.loader import Batch
from trainers.loop import TrainingDiverged, WorkFolderMismatch, masked_loss_sum, train
from trainers.options import TrainingOptions

Options = Callable[..., TrainingOptions]


class Stop(BaseException):
    """As Dagster's interruption, no Exception."""


@pytest.mark.parametrize("stop_at", [1, 4, 7, 11])
def test_resume_is_exact(
    config: ModelConfig,
    streams: dict[str, TokenStream],
    options: Options,
    tmp_path: Path,
    stop_at: int,
) -> None:
    whole = train(config, options(), streams, tmp_path / "whole")

    def interrupt(step: object) -> None:
        if step.step == stop_at:
            raise Stop

    with pytest.raises(Stop):
        train(config, options(), streams, tmp_path / "cut", on_step=interrupt)
    resumed = train(config, options(), streams, tmp_path / "cut")
    assert resumed.steps.read_bytes() == whole.steps.read_bytes()
    assert resumed.weights.read_bytes() == whole.weights.read_bytes()


def test_resume_after_kill(
    config: ModelConfig, streams: dict[str, TokenStream], options: Options, tmp_path: Path
) -> None:
    """A real process, really killed; what it logged after its last checkpoint is done again."""
    long = options(steps=400, checkpoint_every=25)
    whole = train(config, long, streams, tmp_path / "whole")
    work = tmp_path / "killed"
    run = {
        "config": config.to_dict(),
        "options": long.to_dict(),
        "shards": {
            group: [
                [str(shard.tokens), str(shard.index), str(shard.mask or "")]
                for shard in stream.shards
            ]
            for group, stream in streams.items()
        },
    }
    script = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "from model.config import ModelConfig\n"
        "from pipelines.shards.reader import ShardFiles, TokenStream\n"
        "from trainers.loop import train\n"
        "from trainers.options import TrainingOptions\n"
        "run = json.loads(sys.argv[1])\n"
        "streams = {\n"
        "    group: TokenStream(\n"
        "        ShardFiles(Path(t), Path(i), Path(m) if m else None) for t, i, m in shards\n"
        "    )\n"
        "    for group, shards in run['shards'].items()\n"
        "}\n"
        "config = ModelConfig.from_dict(run['config'])\n"
        "train(config, TrainingOptions.from_dict(run['options']), streams, Path(sys.argv[2]))\n"
    )
    command = [sys.executable, "-c", script, json.dumps(run), str(work)]
    process = subprocess.Popen(command)
    log = work / "steps.jsonl"
    deadline = time.monotonic() + 60
    while not log.exists() or log.read_bytes().count(b"\n") < 60:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not (work / "final").exists()
    resumed = train(config, long, streams, work)
    assert resumed.steps.read_bytes() == whole.steps.read_bytes()
    assert resumed.weights.read_bytes() == whole.weights.read_bytes()


def test_loss_falls(
    config: ModelConfig, streams: dict[str, TokenStream], options: Options, tmp_path: Path
) -> None:
    result = train(config, options(steps=120), streams, tmp_path)
    losses = [json.loads(line)["loss"] for line in result.steps.read_text().splitlines()]
    assert len(losses) == 120
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])


def test_seed_decides_everything(
    config: ModelConfig, streams: dict[str, TokenStream], options: Options, tmp_path: Path
) -> None:
    runs = {
        name: train(config, options(steps=3, seed=seed), streams, tmp_path / name)
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    }
    assert runs["a"].weights.read_bytes() == runs["b"].weights.read_bytes()
    assert runs["a"].weights.read_bytes() != runs["c"].weights.read_bytes()


def test_accumulation_is_one_larger_batch(
    config: ModelConfig, streams: dict[str, TokenStream], options: Options, tmp_path: Path
) -> None:
    """One divisor for the whole step: 1 × 8 and 4 × 2 take the same steps, up to rounding."""
    from dataclasses import replace

    config = replace(config, dropout=0.0)
    results = [
        train(config, options(steps=5, micro_batch=m, accumulation=a), streams, tmp_path / str(a))
        for m, a in ((8, 1), (2, 4))
    ]
    assert results[0].last.loss == pytest.approx(results[1].last.loss, rel=1e-4)
    one, other = (load_file(result.weights) for result in results)
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], rtol=1e-2, atol=2e-4)


def test_unsupervised_tokens_have_no_gradient(config: ModelConfig) -> None:
    model = Transformer(config, seed=1).eval()
    tokens = torch.randint(2, 64, (2, 8), generator=torch.Generator().manual_seed(0))
    mask = torch.zeros(2, 8)
    mask[0, 3:5] = 1

    def gradient(targets: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        masked_loss_sum(model(tokens), Batch(tokens, targets, mask)).backward()
        return model.token_embedding.weight.grad.clone()

    targets = tokens.roll(-1, dims=1)
    changed = targets.clone()
    changed[mask == 0] = 7
    torch.testing.assert_close(gradient(targets), gradient(changed))
    changed[0, 3] = (targets[0, 3] + 1) % 64
    assert not torch.allclose(gradient(targets), gradient(changed))


def test_divergence_is_an_error_with_a_remedy(
    config: ModelConfig, streams: dict[str, TokenStream], options: Options, tmp_path: Path
) -> None:
    wild = options(steps=200, peak_lr=1e30, min_lr=0.0, grad_clip=1e30)
    with pytest.raises(TrainingDiverged, match="lower peak_lr"):
        train(config, wild, streams, tmp_path)


def test_work_folder_of_another_run_is_refused(
    config: ModelConfig, streams: dict[str, TokenStream], options: Options, tmp_path: Path
) -> None:
    train(config, options(), streams, tmp_path)
    with pytest.raises(WorkFolderMismatch, match="peak_lr"):
        train(config, options(peak_lr=1e-3), streams, tmp_path)


def test_initial_weights_are_where_it_starts(
    config: ModelConfig, streams: dict[str, TokenStream], options: Options, tmp_path: Path
) -> None:
    first = train(config, options(steps=60), streams, tmp_path / "first")
    second = train(
        config,
        options(steps=1, warmup_steps=0, seed=9),
        streams,
        tmp_path / "second",
        first.weights,
    )
    fresh = train(config, options(steps=1, warmup_steps=0, seed=9), streams, tmp_path / "fresh")
    assert second.last.loss < fresh.last.loss
