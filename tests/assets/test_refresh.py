"""Staleness and incremental work, through the real command on a real graph.

What must hold: a changed setting or file makes exactly the affected assets stale, only the
affected chunks are computed, and going back gives the same data again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("built")]

Run = Callable[..., object]


def versions(project: Path) -> dict[str, str]:
    """Data version by dataset, from the manifests."""
    root = project.parent / "data" / "small"
    return {
        str(path.parent.relative_to(root)): json.loads(path.read_text())["data_version"]
        for path in root.rglob("manifest.json")
    }


def refresh(run: Run, project: Path, *settings: str) -> dict[str, dict]:
    """``materialize --stale``; the last_run record of each asset that ran, by key."""
    root = project.parent / "data" / "small"
    before = {path: path.stat().st_mtime_ns for path in root.rglob("last_run.json")}
    options = [part for setting in settings for part in ("--set", setting)]
    result = run(project, "materialize", "--stale", *options)
    assert result.returncode == 0, result.stdout + result.stderr
    return {
        str(path.parent.relative_to(root)): json.loads(path.read_text())
        for path in root.rglob("last_run.json")
        if before.get(path) != path.stat().st_mtime_ns
    }


def test_nothing_is_stale_after_a_refresh(built_project: Path, run_samovar: Run) -> None:
    result = run_samovar(built_project, "materialize", "--stale")
    assert result.returncode == 0
    assert "Nothing is stale" in result.stdout
    status = run_samovar(built_project, "status", "--json")
    assets = json.loads(status.stdout)["assets"]
    assert {asset["status"] for asset in assets} == {"fresh"}
    assert len(assets) == len(versions(built_project)) == 20


def test_threshold_recomputes_the_selection_and_not_the_measurements(
    built_project: Path, run_samovar: Run
) -> None:
    before = versions(built_project)
    # Far enough that documents are dropped: everything below them changes too.
    ran = refresh(run_samovar, built_project, "filters.min_letter_ratio=0.8")
    assert not any(key.startswith(("raw/", "measurements/", "dialogs/")) for key in ran)
    assert {"near_duplicates", "documents/web", "documents/articles", "shards/web"} <= set(ran)
    assert versions(built_project)["documents/web"] != before["documents/web"]

    refresh(run_samovar, built_project)
    assert versions(built_project) == before


def test_threshold_without_effect_stops_at_the_selection(
    built_project: Path, run_samovar: Run
) -> None:
    before = versions(built_project)
    ran = refresh(run_samovar, built_project, "filters.min_letter_ratio=0.39")
    assert set(ran) == {
        *("near_duplicates", "documents/web", "documents/articles"),
        "data_quality/report",  # the page draws the thresholds
    }
    after = versions(built_project)
    assert {key for key in after if after[key] != before[key]} <= {"data_quality/report"}


def test_training_setting_leaves_the_data_fresh(built_project: Path, run_samovar: Run) -> None:
    ran = refresh(run_samovar, built_project, "training.sft.peak_lr=2e-3")
    assert set(ran) == {
        *("checkpoints/sft", "evaluation/bpc", "evaluation/samples", "data_quality/report"),
    }
    # Of the models only SFT is evaluated again, on three groups; pretrain and compressors stay.
    assert ran["evaluation/bpc"]["computed"] == 3
    assert ran["evaluation/bpc"]["reused"] == 9
    assert ran["evaluation/samples"]["computed"] == 1


def test_added_file_computes_only_its_chunk(
    built_project: Path, run_samovar: Run, prose: list[str]
) -> None:
    before = versions(built_project)
    added = built_project.parent / "landing" / "web" / "002.txt"
    added.write_text("\n===\n".join(prose[40:44]), encoding="utf-8")
    ran = refresh(run_samovar, built_project)
    for key in ("raw/web", "measurements/web", "documents/web", "shards/web"):
        assert (ran[key]["computed"], ran[key]["reused"]) == (1, 2), key
    # Decisions on articles come after those on web: they are made again, and come out equal.
    assert ran["near_duplicates"]["reused"] == 2
    assert "tokenizer" not in ran
    assert "shards/articles" not in ran
    assert "shards/chat" not in ran
    after = versions(built_project)
    assert after["tokenizer"] == before["tokenizer"]
    assert after["documents/articles"] == before["documents/articles"]

    added.unlink()
    refresh(run_samovar, built_project)
    assert versions(built_project) == before


def test_touched_but_equal_file_ends_at_the_raw_stage(
    built_project: Path, run_samovar: Run
) -> None:
    (built_project.parent / "landing" / "web" / "000.txt").touch()
    ran = refresh(run_samovar, built_project)
    assert set(ran) == {"raw/web"}
    assert ran["raw/web"]["computed"] == 0


def test_failed_check_blocks_what_is_below(built_project: Path, run_samovar: Run) -> None:
    result = run_samovar(
        *(built_project, "materialize", "--stale", "--set", "quality.min_kept_share=1.0"),
        *("--set", "filters.min_chars=900"),
    )
    assert result.returncode == 1
    assert "enough_kept" in result.stdout
    lines = {line.split()[1]: line for line in result.stdout.splitlines() if len(line.split()) > 1}
    assert "not run" in lines["shards/web"]
    # And it stays blocked: the check's verdict is in Dagster's history.
    again = run_samovar(
        *(built_project, "materialize", "shards/web", "--stale"),
        *("--set", "quality.min_kept_share=1.0", "--set", "filters.min_chars=900"),
    )
    assert again.returncode == 1
    assert "not run" in again.stdout


def test_missing_source_names_the_folder_and_the_remedy(
    built_project: Path, run_samovar: Run
) -> None:
    landing = built_project.parent / "landing"
    (landing / "web").rename(landing / "elsewhere")
    result = run_samovar(built_project, "materialize", "--stale")
    assert result.returncode == 1
    assert "landing/web" in result.stdout
    assert "sources.web.paths" in result.stdout


def test_workers_and_order_play_no_role(
    built_project: Path, make_project: Callable[[str], Path], run_samovar: Run
) -> None:
    other = make_project("two_workers")
    result = run_samovar(other, "materialize", "--stale", "--set", "execution.workers=2")
    assert result.returncode == 0, result.stdout + result.stderr
    assert versions(other) == versions(built_project)
    built = Workspace.open(file=built_project).dataset("shards/chat").manifest()
    assert built == Workspace.open(file=other).dataset("shards/chat").manifest()
