"""The benchmark runs, compares, and finds no mismatch; its speeds are nobody's assertion."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.slow
def test_bench_filters(
    make_project: Callable[[], Path], run_samovar: Callable[..., object]
) -> None:
    project = make_project()
    result = run_samovar(
        *(project, "bench", "filters", "--json", "--data", str(project.parent / "landing/web"))
    )
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    assert figures["mismatches"] == 0
    assert figures["compared"] == figures["documents"] == 2
    assert figures["ours_mb_per_s"] > 0 and figures["packages_mb_per_s"] > 0


@pytest.mark.slow
def test_unknown_benchmark_lists_the_known(
    make_project: Callable[[], Path], run_samovar: Callable[..., object]
) -> None:
    result = run_samovar(make_project(), "bench", "nothing")
    assert result.returncode == 1
    assert "filters" in result.stderr
