"""Landing and the raw stage: which files, which records, and what is read again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.config import Source
from pipelines.engine import BuildReport
from pipelines.sources.landing import SourceError, landed_files, listing_digest
from pipelines.sources.raw import build_raw
from pipelines.workspace import Workspace


@pytest.fixture
def landing(workspace: Workspace) -> Path:
    """The web source's folder, empty."""
    folder = workspace.base / "landing" / "web"
    for path in folder.iterdir():
        path.unlink()
    return folder


@pytest.fixture
def build(workspace: Workspace) -> Callable[..., BuildReport]:
    def run(**changes: object) -> BuildReport:
        source = workspace.project.sources["web"].model_copy(update=changes)
        sources = {**workspace.project.sources, "web": source}
        project = workspace.project.model_copy(update={"sources": sources})
        return build_raw(project, workspace.storage, "web", workspace.base, 1)

    return run


def rows(report: BuildReport, suffix: str = "records.parquet") -> list[dict]:
    return [row for table in report.dataset.tables(suffix) for row in table.to_pylist()]


def json_lines(path: Path, *records: object) -> None:
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records), "utf-8")


def test_records_keep_id_url_and_other_columns(
    landing: Path, build: Callable[..., BuildReport]
) -> None:
    json_lines(landing / "a.jsonl", {"text": "Да.", "url": "u", "score": 5}, {"text": "Нет."})
    first, second = rows(build())
    assert first == {
        "id": "web/a.jsonl/0",
        "source": "web",
        "text": "Да.",
        "url": "u",
        "meta": '{"score": 5}',
    }
    assert (second["id"], second["url"], second["meta"]) == ("web/a.jsonl/1", None, None)


def test_records_are_conserved(landing: Path, build: Callable[..., BuildReport]) -> None:
    good = [json.dumps({"text": f"Текст {n}"}) for n in range(200)]
    lines = [*good[:50], "{", *good[50:], '{"other": 1}', '{"text": 7}']
    (landing / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    report = build(max_bad_share=0.02)
    dropped = rows(report, "drops.parquet")
    assert len(rows(report)) + len(dropped) == len(lines)
    assert [row["reason"] for row in dropped] == ["malformed_json", "unknown_shape", "no_text"]
    assert dropped[0]["id"] == "web/a.jsonl/50"
    assert "line 51" in dropped[0]["detail"]


def test_too_many_bad_records_are_fatal(landing: Path, build: Callable[..., BuildReport]) -> None:
    (landing / "a.jsonl").write_text('{"text": "a"}\n{\n', encoding="utf-8")
    with pytest.raises(SourceError, match=r"(?s)1 of 2 records.*web/a.jsonl/1.*line 2"):
        build()


def test_wrong_column_is_an_error_at_once(landing: Path, build: Callable[..., BuildReport]) -> None:
    json_lines(landing / "a.jsonl", {"title": "Заголовок"})
    with pytest.raises(SourceError, match=r"(?s)a\.jsonl.*found: title.*text_column"):
        build()
    assert rows(build(text_column="title"))[0]["text"] == "Заголовок"


def test_only_new_and_changed_files_are_read(
    landing: Path, build: Callable[..., BuildReport]
) -> None:
    for name in "abc":
        json_lines(landing / f"{name}.jsonl", {"text": name})
    assert len(build().computed) == 3
    json_lines(landing / "d.jsonl", {"text": "d"})
    json_lines(landing / "b.jsonl", {"text": "другое"})
    os.utime(landing / "c.jsonl", (1, 1))
    assert build().computed == ("web/b.jsonl", "web/d.jsonl")
    (landing / "a.jsonl").unlink()
    report = build()
    assert (report.computed, report.removed) == ((), 2)
    assert [row["text"] for row in rows(report)] == ["другое", "c", "d"]


def test_limit_counts_good_records_in_file_order(
    landing: Path, build: Callable[..., BuildReport]
) -> None:
    for name in "abc":
        json_lines(landing / f"{name}.jsonl", *({"text": f"{name}{n}"} for n in range(4)))
    report = build(limit=6)
    assert [row["text"] for row in rows(report)] == ["a0", "a1", "a2", "a3", "b0", "b1"]
    assert build(limit=9).computed == ("web/b.jsonl", "web/c.jsonl")


def test_large_file_becomes_bounded_parts(
    landing: Path, workspace: Workspace, build: Callable[..., BuildReport]
) -> None:
    json_lines(landing / "a.jsonl", *({"text": "я" * 200_000} for _ in range(7)))
    datasets = workspace.project.datasets.model_copy(update={"chunk_mb": 1})
    project = workspace.project.model_copy(update={"datasets": datasets})
    report = build_raw(project, workspace.storage, "web", workspace.base, 1)
    assert [chunk.name for chunk in report.manifest.chunks] == [
        *("web/a.jsonl", "web/a.jsonl@1", "web/a.jsonl@2")
    ]
    assert [row["id"].rpartition("/")[2] for row in rows(report)] == list("0123456")


def test_lone_surrogates_are_replaced_and_counted(
    landing: Path, build: Callable[..., BuildReport]
) -> None:
    (landing / "a.jsonl").write_text('{"text": "\\ud83d ой"}\n', encoding="utf-8")
    report = build()
    assert rows(report)[0]["text"] == "\ufffd ой"
    assert report.manifest.total("replaced_surrogates") == 1


def source(*paths: str) -> Source:
    return Source(kind="text", group="web", paths=list(paths))


def test_folder_glob_and_file(tmp_path: Path) -> None:
    for name in ("b/2.txt", "a.jsonl.gz", "a/Имя с пробелом.txt", "notes.md", ".hidden.txt"):
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    names = [file.name for file in landed_files("web", source("in"), tmp_path)]
    assert [name.partition("~")[0] for name in names] == [
        *("a.jsonl.gz", "a+Имя_с_пробелом.txt", "b+2.txt")
    ]
    globbed = landed_files("web", source("in/**/*.txt"), tmp_path)
    assert [file.name.partition("~")[0] for file in globbed] == ["a+Имя_с_пробелом.txt", "b+2.txt"]
    assert len(landed_files("web", source("in/b/2.txt", "in/a.jsonl.gz"), tmp_path)) == 2


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in "ab":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text("x")
    with pytest.raises(SourceError, match="both be called 'x.txt'"):
        landed_files("web", source("a", "b"), tmp_path)


def test_nothing_there_names_place_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"(?s)source 'web'.*nowhere.*sources.web.paths"):
        landed_files("web", source("nowhere"), tmp_path)


def test_listing_sees_names_sizes_and_times(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("1")
    digests = {listing_digest(landed_files("web", source("."), tmp_path))}
    path.write_text("22")
    digests.add(listing_digest(landed_files("web", source("."), tmp_path)))
    os.utime(path, (5, 5))
    digests.add(listing_digest(landed_files("web", source("."), tmp_path)))
    path.rename(tmp_path / "b.txt")
    digests.add(listing_digest(landed_files("web", source("."), tmp_path)))
    assert len(digests) == 4
