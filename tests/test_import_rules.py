"""Who may import whom. The rules stand in docs/ARCHITECTURE.md."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
ROOMS = {"pipelines", "model", "trainers", "data_quality", "serving", "assets", "cli", "benchmarks"}

# room -> rooms it may import (itself aside)
ALLOWED = {
    "pipelines": set(),
    "model": set(),
    "trainers": {"model", "pipelines.shards.reader"},
    "data_quality": {"pipelines"},
    "serving": {"model", "pipelines"},
    "assets": {"pipelines", "model", "trainers", "data_quality", "serving"},
    "benchmarks": {"pipelines", "model", "trainers", "serving"},
    "cli": {"benchmarks", "pipelines", "model", "trainers", "data_quality", "serving", "assets"},
}
FORBIDDEN_PACKAGES = {
    "pipelines": {"dagster", "torch"},
    "model": {"dagster"},
    "trainers": {"dagster"},
    "data_quality": {"dagster", "torch"},
    "serving": {"dagster"},
    "benchmarks": {"dagster"},
}


def imported(path: Path) -> Iterator[str]:
    """Modules that a file imports, anywhere in it; ``from a import b`` gives ``a`` and ``a.b``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def files(room: str) -> list[Path]:
    return sorted((REPOSITORY / room).rglob("*.py"))


@pytest.mark.parametrize("room", sorted(ALLOWED))
def test_room_imports_only_rooms_below_it(room: str) -> None:
    assert files(room), f"{room} has no modules"
    wrong = []
    for path in files(room):
        for module in imported(path):
            top = module.partition(".")[0]
            if top == room or top not in ROOMS:
                continue
            if not any(module == a or module.startswith(f"{a}.") for a in ALLOWED[room]):
                wrong.append(f"{path.relative_to(REPOSITORY)} imports {module}")
    assert not wrong


@pytest.mark.parametrize("room", sorted(FORBIDDEN_PACKAGES))
def test_room_does_without_forbidden_packages(room: str) -> None:
    wrong = [
        f"{path.relative_to(REPOSITORY)} imports {module}"
        for path in files(room)
        for module in imported(path)
        if module.partition(".")[0] in FORBIDDEN_PACKAGES[room]
    ]
    assert not wrong


def test_loading_the_code_location_is_light() -> None:
    """Under a second beyond dagster itself, and without the heavy packages.

    The bound is on CPU time, which another process on the machine doesn't stretch as it does the
    clock's.
    """
    script = (
        "import sys, time, dagster\n"
        "started = time.process_time()\n"
        "import assets.code_location\n"
        "seconds = time.process_time() - started\n"
        "heavy = {'torch', 'numba', 'datasets', 'matplotlib', 'transformers'} & set(sys.modules)\n"
        "print(seconds, *sorted(heavy))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=REPOSITORY
    )
    seconds, *heavy = result.stdout.split()
    assert heavy == []
    assert float(seconds) < 1.0
