"""Documents and chat set: conservation, every reason, and what a threshold computes again."""

from __future__ import annotations

import json

import pytest

from pipelines import documents, near_duplicates
from pipelines.chat import dialogs, repeats
from pipelines.config.models import Project
from pipelines.engine import BuildReport
from pipelines.filters import measurements
from pipelines.sources.raw import build_raw
from pipelines.workspace import Workspace

SAMPLE = ("sample_web", "sample_articles", "sample_dialogs")


@pytest.fixture
def sample(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The embedded sample, measured; its unwanted documents say what must become of them."""
    root = tmp_path_factory.mktemp("sample")
    return Workspace.open("sample", [f"paths.data_root={root}"])


def prepare(workspace: Workspace) -> dict[str, BuildReport]:
    project, storage = workspace.project, workspace.storage
    reports = [build_raw(project, storage, name, workspace.base, 1) for name in SAMPLE]
    reports += [measurements.build_measurements(project, storage, n, 1) for n in SAMPLE[:2]]
    reports.append(near_duplicates.build_near_duplicates(project, storage))
    reports += [documents.build_documents(project, storage, g, 1) for g in ("web", "articles")]
    reports.append(dialogs.build_dialogs(project, storage, "sample_dialogs", 1))
    reports.append(repeats.build_chat(project, storage))
    return {report.dataset.key: report for report in reports}


def rows(report: BuildReport, suffix: str) -> list[dict]:
    return [row for table in report.dataset.tables(suffix) for row in table.to_pylist()]


def test_sample_is_sorted_as_its_labels_say(sample: Workspace) -> None:
    reports = prepare(sample)
    labels = {}
    for row in rows(reports["raw/sample_web"], "records.parquet"):
        kind = json.loads(row["meta"] or "{}").get("kind")
        labels[row["id"]] = kind
    drops = {row["id"]: row for row in rows(reports["documents/web"], documents.DROPS)}
    kept = {row["id"] for row in rows(reports["documents/web"], documents.TABLE)}
    # Everything unwanted goes, nothing else does, and nothing is lost.
    assert {id for id, kind in labels.items() if kind} == set(drops)
    assert kept | set(drops) == set(labels)
    assert not kept & set(drops)
    for id, drop in drops.items():
        wanted = labels[id].replace("exact_duplicate", "near_duplicate")
        assert wanted in drop["failed"], (id, drop)
    assert {drop["reason"] for drop in drops.values()} == {
        *("too_short", "too_long", "low_letter_ratio", "high_special_ratio", "stop_word"),
        *("low_cyrillic_ratio", "other_language", "low_language_confidence", "near_duplicate"),
    }
    originals = {row["detail"] for row in drops.values() if row["reason"] == "near_duplicate"}
    assert originals <= kept


def test_every_chunk_conserves_its_documents(sample: Workspace) -> None:
    reports = prepare(sample)
    for key, counted in (
        *(("documents/web", "measured"), ("documents/articles", "measured")),
        *(("dialogs/sample_dialogs", "read"), ("dialogs/chat", "read")),
    ):
        for chunk in reports[key].manifest.chunks:
            dropped = sum(chunk.stats["drops"].values())
            assert chunk.stats[counted] == chunk.stats["rows"] + dropped
    reasons = {
        **reports["dialogs/sample_dialogs"].manifest.totals("drops"),
        **reports["dialogs/chat"].manifest.totals("drops"),
    }
    assert reasons == {
        "unknown_role": 3,
        "starts_without_user": 3,
        "no_answer": 2,
        "empty_dialog": 2,
        "exact_duplicate": 2,
        "near_duplicate": 3,
    }


def test_long_stories_are_split_and_stay_whole(sample: Workspace) -> None:
    reports = prepare(sample)
    parts = [
        row
        for row in rows(reports["documents/articles"], documents.TABLE)
        if "long_stories" in row["id"]
    ]
    assert [row["id"].rpartition("/")[2] for row in parts] == ["0#0", "0#1", "1#0", "1#1"]
    assert all(len(row["text"]) <= 5_000 for row in parts)


def test_threshold_computes_no_measurement(sample: Workspace) -> None:
    prepare(sample)
    project = sample.project
    filters = project.filters.model_copy(update={"min_letter_ratio": 0.75})
    stricter: Project = project.model_copy(update={"filters": filters})
    again = prepare(Workspace(stricter, sample.storage, sample.base))
    assert not again["measurements/sample_web"].computed
    assert again["measurements/sample_web"].reused == 5
    assert len(again["documents/web"].computed) == 5
    dropped = again["documents/web"].manifest.totals("drops")
    assert dropped["low_letter_ratio"] > 4


def test_repeats_across_sources_name_the_kept_dialog(workspace: Workspace) -> None:
    landing = workspace.base / "landing" / "dialogs"
    first = json.loads((landing / "000.jsonl").read_text(encoding="utf-8").splitlines()[0])
    project, storage = workspace.project, workspace.storage

    def build() -> BuildReport:
        build_raw(project, storage, "dialogs", workspace.base, 1)
        dialogs.build_dialogs(project, storage, "dialogs", 1)
        return repeats.build_chat(project, storage)

    before = build()
    again = json.dumps(first, ensure_ascii=False)
    (landing / "002.jsonl").write_text(again + "\n", encoding="utf-8")
    after = build()
    assert after.computed == ("dialogs/002.jsonl",)
    assert after.manifest.chunks[:2] == before.manifest.chunks
    (drop,) = after.dataset.table(after.manifest.chunks[2], repeats.DROPS).to_pylist()
    assert (drop["reason"], drop["detail"]) == ("exact_duplicate", "dialogs/000.jsonl/0")
