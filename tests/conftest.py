"""Fixtures for all tests: small real projects in a temporary folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import hypothesis
import pytest

from pipelines.workspace import Workspace

# Times say nothing on a machine that other work shares.
hypothesis.settings.register_profile("samovar", deadline=None)
hypothesis.settings.load_profile("samovar")

SAMPLE = Path(__file__).resolve().parents[1] / "sample"

SMALL_PROJECT = """\
profile = "small"
use_sources = ["web", "articles", "dialogs"]

[sources.web]
kind = "text"
group = "web"
paths = ["landing/web"]
separator = "==="

[sources.articles]
kind = "text"
group = "articles"
paths = ["landing/articles"]
separator = "==="
long_documents = "split"

[sources.dialogs]
kind = "dialogs"
group = "chat"
paths = ["landing/dialogs"]

[filters]
stop_words = ["казино", "вакансия"]

[execution]
workers = 1

[tokenizer]
vocab_size = 600
corpus_chars = 12_000

[shards]
max_tokens = 20_000
validation_share = 0.2

[model]
preset = "nano"

[presets.nano]
vocab_size = 640
n_layer = 2
n_embd = 32
n_head = 2
n_kv_head = 1
ffn_hidden = 64
context_length = 32

[training]
precision = "fp32"
device = "cpu"
threads = 1
checkpoint_every = 4

[training.pretrain]
tokens = 1_536
mix = { web = 0.5, articles = 0.25, chat = 0.25 }
peak_lr = 3e-3
micro_batch = 4
accumulation = 1

[training.sft]
tokens = 1_024
mix = { chat = 0.9, web = 0.1 }
peak_lr = 1e-3
micro_batch = 4
accumulation = 1
masked_loss = true

[evaluation]
max_characters = 1_500

[evaluation.samples]
prompts = ["Привет! Как дела?"]
max_new_tokens = 8

[profiles.small]
[profiles.other]
"""


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the developer's own reaches a test."""
    for name in list(os.environ):
        if name.startswith("SAMOVAR_") or name == "DAGSTER_HOME":
            monkeypatch.delenv(name)
    monkeypatch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """One thread of torch: on tiny matrices more threads only wait for each other."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def prose() -> list[str]:
    """Documents of the embedded sample: Russian prose, none of it repeated."""
    text = (SAMPLE / "web" / "reviews.txt").read_text(encoding="utf-8")
    return [document.strip() for document in text.split("\n===\n")]


def lay_out(folder: Path) -> Path:
    """A small project with landed files from the embedded sample; the path of its project file."""
    for kind, file, documents in (("web", "reviews.txt", 24), ("articles", "stories.txt", 12)):
        landing = folder / "landing" / kind
        landing.mkdir(parents=True)
        text = (SAMPLE / kind / file).read_text(encoding="utf-8")
        pieces = text.split("\n===\n")[:documents]
        half = documents // 2
        (landing / "000.txt").write_text("\n===\n".join(pieces[:half]), encoding="utf-8")
        (landing / "001.txt").write_text("\n===\n".join(pieces[half:]), encoding="utf-8")
    dialogs = folder / "landing" / "dialogs"
    dialogs.mkdir()
    with open(SAMPLE / "dialogs" / "messages.jsonl", encoding="utf-8") as lines:
        (dialogs / "000.jsonl").write_text("".join(islice(lines, 40)), encoding="utf-8")
    shutil.copyfile(SAMPLE / "dialogs" / "unwanted.jsonl", dialogs / "001.jsonl")
    path = folder / "dagster_project.toml"
    path.write_text(SMALL_PROJECT, encoding="utf-8")
    return path


@pytest.fixture
def make_project(tmp_path: Path) -> Callable[[str], Path]:
    """Lay out a small project in a folder of that name; nothing is built in it."""
    return lambda name="project": lay_out(tmp_path / name)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """The workspace of a small project; nothing is built yet."""
    return Workspace.open(file=lay_out(tmp_path / "project"))


def samovar(project: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the real command on a project; the caller looks at the exit code."""
    return subprocess.run(
        [sys.executable, "-m", "cli.app", *arguments],
        cwd=project.parent,
        env={**os.environ, "SAMOVAR_PROJECT": str(project), "NO_COLOR": "1", **environment},
        capture_output=True,
        text=True,
        timeout=540,
    )


@pytest.fixture(scope="session")
def run_samovar() -> Callable[..., subprocess.CompletedProcess[str]]:
    return samovar


@pytest.fixture(scope="session")
def _built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small project with everything materialized; use ``built_project``, a copy of it."""
    project = lay_out(tmp_path_factory.mktemp("built") / "project")
    result = samovar(project, "materialize", "--stale")
    assert result.returncode == 0, result.stdout + result.stderr
    return project


@pytest.fixture
def built_project(_built: Path, tmp_path: Path) -> Path:
    """A project file of one's own, in a folder where everything is materialized."""
    folder = tmp_path / "built"
    shutil.copytree(_built.parent, folder)
    return folder / _built.name
