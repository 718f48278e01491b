"""``kill -9`` in the middle of a stage: the next refresh ends in the same bytes.

Real processes, really killed: in a data stage, while shards are written, and in training.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kill")]

_PIECES = 120  # files of one document: stages that take long enough to be hit in the middle
_SETTINGS = "training.pretrain.tokens=40_000\ntraining.checkpoint_every=20"


@pytest.fixture(scope="module")
def many_files(
    tmp_path_factory: pytest.TempPathFactory, prose: list[str]
) -> Callable[[Path], None]:
    """Give a project many small landed files of text."""

    def spread(project: Path) -> None:
        landing = project.parent / "landing" / "web"
        for path in landing.iterdir():
            path.unlink()
        for index in range(_PIECES):
            text = prose[index % len(prose)]
            # Halves of documents where the sample has too few: different texts all the same.
            half = len(text) // 2
            part = (
                text if index < len(prose) else text[:half] + prose[(index * 7) % len(prose)][half:]
            )
            (landing / f"{index:03}.txt").write_text(part, encoding="utf-8")

    return spread


def digests(project: Path) -> dict[str, str]:
    """sha256 of every file of every dataset; run records (seconds) aside."""
    root = project.parent / "data" / "small"
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and path.name != "last_run.json"
        and not str(path.relative_to(root)).startswith(("dagster/", ".", "landing/"))
    }


def start(project: Path, output: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "cli.app", "materialize", "--stale"],
        cwd=project.parent,
        env={**os.environ, "SAMOVAR_PROJECT": str(project), "SAMOVAR_SET": _SETTINGS},
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def wait_until(project: Path, reached: Callable[[Path], bool], process: subprocess.Popen) -> None:
    """Until ``reached(data root)``, while the process is at work."""
    root = project.parent / "data" / "small"
    deadline = time.monotonic() + 240
    while not reached(root):
        assert process.poll() is None, "the run ended before it could be stopped"
        assert time.monotonic() < deadline, "the moment never came"
        time.sleep(0.002)


def kill_when(project: Path, reached: Callable[[Path], bool]) -> None:
    """Run the refresh and kill it, and all that it started, once ``reached(data root)``."""
    process = start(project)
    wait_until(project, reached, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def finish(project: Path, run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    result = run(project, "materialize", "--stale", SAMOVAR_SET=_SETTINGS)
    assert result.returncode == 0, result.stdout + result.stderr


def recorded(root: Path, key: str) -> int:
    """Finished tasks that an unfinished build of a dataset has recorded.

    A record whose number of parts is still open (0) is of a task that was in work.
    """
    records = (json.loads(path.read_bytes()) for path in (root / key / "journal").glob("*.json"))
    return sum(record["parts"] > 0 for record in records)


def steps_done(root: Path) -> int:
    """Optimizer steps in the log of a training run in progress."""
    logs = list((root / ".scratch").glob("task-*/steps.jsonl"))
    return sum(log.read_bytes().count(b"\n") for log in logs)


def test_killed_three_times_ends_in_the_same_bytes(
    make_project: Callable[[str], Path],
    many_files: Callable[[Path], None],
    run_samovar: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    untouched, killed = make_project("untouched"), make_project("killed")
    many_files(untouched)
    many_files(killed)
    finish(untouched, run_samovar)
    root = killed.parent / "data" / "small"

    kill_when(killed, lambda root: recorded(root, "measurements/web") >= 5)
    in_data_stage = recorded(root, "measurements/web")
    assert not (root / "measurements/web/manifest.json").exists()

    kill_when(killed, lambda root: recorded(root, "shards/web") >= 5)
    assert not (root / "shards/web/manifest.json").exists()
    # What was recorded before the first kill wasn't computed again.
    assert f'"reused": {in_data_stage}' in (root / "measurements/web/last_run.json").read_text()

    kill_when(killed, lambda root: steps_done(root) >= 30)
    assert not (root / "checkpoints/pretrain/manifest.json").exists()

    finish(killed, run_samovar)
    assert digests(killed) == digests(untouched)


def test_interrupt_in_training_saves_and_says_so(
    make_project: Callable[[str], Path],
    run_samovar: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """Ctrl-C: a sentence instead of a traceback, and a checkpoint of the last whole step."""
    project = make_project("interrupted")
    process = start(project, subprocess.PIPE)
    wait_until(project, lambda root: steps_done(root) >= 30, process)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 130
    assert "interrupted; the next run goes on from here" in output
    assert "Traceback" not in output
    root = project.parent / "data" / "small"
    latest = max((root / ".scratch").glob("task-*/step-*/state.json"))
    saved = json.loads(latest.read_text())["step"]
    assert saved == steps_done(root) >= 30
    finish(project, run_samovar)
    assert not list((root / ".scratch").glob("task-*"))
