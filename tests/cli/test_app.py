"""The command as a user runs it, on a small materialized project."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("built")]

Run = Callable[..., object]


def test_sql_counts_agree_with_conservation(built_project: Path, run_samovar: Run) -> None:
    result = run_samovar(
        built_project,
        "sql",
        "--json",
        "SELECT (SELECT count(*) FROM measurements) AS measured, "
        "(SELECT count(*) FROM documents) AS kept, "
        "(SELECT count(*) FROM drops WHERE stage IN ('selection', 'near_duplicates')) AS dropped",
    )
    assert result.returncode == 0, result.stderr
    (row,) = json.loads(result.stdout)
    assert row["measured"] == row["kept"] + row["dropped"] > 0


def test_sql_shows_russian_as_it_is(built_project: Path, run_samovar: Run) -> None:
    statement = "SELECT messages FROM dialogs LIMIT 1"
    for options in ((), ("--json",)):
        result = run_samovar(built_project, "sql", *options, statement)
        assert result.returncode == 0, result.stderr
        assert "\\u04" not in result.stdout
        assert any("а" <= character <= "я" for character in result.stdout)


def test_sql_error_is_a_sentence(built_project: Path, run_samovar: Run) -> None:
    result = run_samovar(built_project, "sql", "SELECT nothing FROM documents")
    assert result.returncode == 1
    assert "nothing" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("checkpoint", ["sft", "pretrain"])
def test_generate_is_repeatable(built_project: Path, run_samovar: Run, checkpoint: str) -> None:
    options = ("generate", "Привет!", "--checkpoint", checkpoint, "--max-new-tokens", "12")
    first = run_samovar(built_project, *options, "--seed", "3")
    second = run_samovar(built_project, *options, "--seed", "3")
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert first.stdout.strip()
    if checkpoint == "pretrain":
        assert first.stdout.startswith("Привет!")


def test_summary_has_bpc_of_both_checkpoints_and_a_dialog(
    built_project: Path, run_samovar: Run
) -> None:
    result = run_samovar(built_project, "summary")
    assert result.returncode == 0, result.stderr
    for expected in ("pretrain", "sft", "xz -9", "zstd -19", "user:", "model:", "samovar dev"):
        assert expected in result.stdout


def test_unknown_key_names_key_and_neighbours(built_project: Path, run_samovar: Run) -> None:
    result = run_samovar(built_project, "status", "--set", "filters.min_char=3")
    assert result.returncode == 1
    assert "filters.min_char" in result.stderr
    assert "min_chars" in result.stderr


def test_unknown_selection_lists_the_assets(built_project: Path, run_samovar: Run) -> None:
    result = run_samovar(built_project, "materialize", "documents/wbe")
    assert result.returncode == 1
    assert "documents/web" in result.stdout


def test_setup_writes_home_and_profile_and_keeps_other_lines(
    built_project: Path, run_samovar: Run
) -> None:
    env = built_project.parent / ".env"
    env.write_text("SAMOVAR_BOT_TOKEN=secret\nDAGSTER_HOME=/nowhere\n", encoding="utf-8")
    assert run_samovar(built_project, "setup", "--profile", "other").returncode == 0
    lines = env.read_text(encoding="utf-8").splitlines()
    home = built_project.parent / "data" / "other" / "dagster"
    assert "SAMOVAR_BOT_TOKEN=secret" in lines
    assert "SAMOVAR_PROFILE=other" in lines
    assert [line for line in lines if line.startswith("DAGSTER_HOME")] == [f"DAGSTER_HOME={home}"]
    assert "telemetry: {enabled: false}" in (home / "dagster.yaml").read_text(encoding="utf-8")


def test_nothing_built_says_what_to_run(make_project: Callable[[], Path], run_samovar: Run) -> None:
    project = make_project()
    result = run_samovar(project, "generate", "Привет!")
    assert result.returncode == 1
    assert "samovar materialize checkpoints/sft" in result.stderr
    empty = run_samovar(project, "sql", "--json", "SELECT count(*) AS n FROM documents")
    assert json.loads(empty.stdout) == [{"n": 0}]
