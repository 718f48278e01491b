"""Near-duplicates against brute force, and the stage's independence of chunks and appends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.engine import BuildReport
from pipelines.filters import measurements
from pipelines.near_duplicates import TABLE, SignatureIndex, build_near_duplicates
from pipelines.sources.raw import build_raw
from pipelines.workspace import Workspace


def brute_force(signatures: list[int], threshold: int) -> list[int | None]:
    """For each signature the distance to the nearest earlier kept one within the threshold."""
    kept: list[int] = []
    result: list[int | None] = []
    for signature in signatures:
        near = min(((signature ^ other).bit_count() for other in kept), default=65)
        result.append(near if near <= threshold else None)
        if near > threshold:
            kept.append(signature)
    return result


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 7), st.integers(0, 2**32), st.integers(0, 10))
def test_index_against_brute_force(threshold: int, seed: int, flips: int) -> None:
    random = np.random.default_rng(seed)
    centres = [int(random.integers(0, 2**63)) * 2 + 1 for _ in range(8)]
    signatures = []
    for _ in range(80):
        signature = centres[random.integers(8)]
        for bit in random.choice(64, random.integers(0, flips + 1), replace=False):
            signature ^= 1 << int(bit)
        signatures.append(signature)
    index = SignatureIndex(threshold)
    found = [index.find_or_add(s, str(i), features=9) for i, s in enumerate(signatures)]
    assert [match and match.distance for match in found] == brute_force(signatures, threshold)


def test_texts_without_words_repeat_nothing() -> None:
    index = SignatureIndex(3)
    assert index.find_or_add(5, "a", features=0) is None
    assert index.find_or_add(5, "b", features=0) is None


def decide(workspace: Workspace) -> BuildReport:
    for name in ("web", "articles"):
        build_raw(workspace.project, workspace.storage, name, workspace.base, 1)
        measurements.build_measurements(workspace.project, workspace.storage, name, 1)
    return build_near_duplicates(workspace.project, workspace.storage)


def land(workspace: Workspace, files: dict[str, list[str]]) -> None:
    folder = workspace.base / "landing" / "web"
    for path in folder.iterdir():
        path.unlink()
    for name, texts in files.items():
        (folder / name).write_text("\n===\n".join(texts), encoding="utf-8")


def pairs(report: BuildReport) -> list[tuple[str, str]]:
    """Ids of (repeating, repeated) documents, in document order."""
    tables = report.dataset.tables(TABLE)
    return [(row["id"], row["duplicate_of"]) for table in tables for row in table.to_pylist()]


@pytest.fixture
def texts(prose: list[str]) -> list[str]:
    """Documents with three repeats: exact, by one sign, and across what may be files' borders."""
    return [*prose[:6], prose[1], prose[2] + "!", *prose[6:9], prose[7]]


def positions(report: BuildReport, sizes: list[int]) -> list[tuple[int, int]]:
    """The pairs by number of the document over all files, whatever the files are called."""
    starts = dict(zip("abcd", np.cumsum([0, *sizes]).tolist(), strict=False))

    def number(id: str) -> int:
        _, file, row = id.split("/")
        return starts[file[0]] + int(row)

    return [(number(one), number(other)) for one, other in pairs(report)]


def test_division_into_files_plays_no_role(workspace: Workspace, texts: list[str]) -> None:
    land(workspace, {"a.txt": texts})
    whole = positions(decide(workspace), [len(texts)])
    assert whole == [(6, 1), (7, 2), (11, 9)]
    land(workspace, {"a.txt": texts[:5], "b.txt": texts[5:8], "c.txt": texts[8:]})
    assert positions(decide(workspace), [5, 3, len(texts) - 8]) == whole


def test_appended_file_leaves_earlier_decisions(workspace: Workspace, texts: list[str]) -> None:
    land(workspace, {"a.txt": texts[:5], "b.txt": texts[5:]})
    before = {chunk.name: chunk for chunk in decide(workspace).manifest.chunks}
    added = workspace.base / "landing" / "web" / "c.txt"
    added.write_text(texts[0], encoding="utf-8")
    report = decide(workspace)
    after = {chunk.name: chunk for chunk in report.manifest.chunks}
    for name in ("web/a.txt", "web/b.txt"):
        assert after[name] == before[name]
        assert name not in report.computed
    assert pairs(report)[-1] == ("web/c.txt/0", "web/a.txt/0")
