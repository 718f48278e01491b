"""Every file format, as its users have them: damaged, odd and well-formed."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from pipelines.sources.landing import SourceError
from pipelines.sources.records import BadRecord, read_records

Write = Callable[[str, bytes], Path]
_TEXTS = st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=30), max_size=6)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return make


def texts(path: Path, **options: str) -> list[str | None]:
    """The texts of the good records."""
    return [r["text"] for r in read_records(path, **options) if isinstance(r, dict)]


def bad(path: Path, **options: str) -> list[tuple[str, str]]:
    found = [r for r in read_records(path, **options) if isinstance(r, BadRecord)]
    return [(record.reason, record.detail) for record in found]


def test_text_files(write: Write) -> None:
    content = "\ufeffПервый.\r\nСтрока.\n===\nВторой.\n===\n\n".encode()
    assert texts(write("a.txt", content)) == ["Первый.\r\nСтрока.\n===\nВторой.\n===\n\n"]
    assert texts(write("b.txt", content), separator="===") == ["Первый.\nСтрока.", "Второй."]
    assert texts(write("c.txt", "раз\n\nдва\nтри\n\n\n".encode()), separator="") == [
        *("раз", "два\nтри")
    ]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@given(_TEXTS)
def test_json_lines_round_trip(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, expected: list[str]
) -> None:
    content = "".join(json.dumps({"text": t}, ensure_ascii=False) + "\n" for t in expected).encode()
    packed = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}[suffix]
    path = tmp_path_factory.mktemp("jsonl") / f"a.jsonl{suffix}"
    path.write_bytes(packed(content))
    assert texts(path) == expected


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@given(_TEXTS)
def test_csv_round_trip(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, expected: list[str]
) -> None:
    # What a CSV file can hold: csv's reader refuses NUL, and a bare CR ends a line.
    expected = [text.replace("\x00", "").replace("\r", "") for text in expected]
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter="\t" if suffix == ".tsv" else ",")
    writer.writerow(["id", "text"])
    writer.writerows(enumerate(expected))
    path = tmp_path_factory.mktemp("csv") / f"a{suffix}"
    path.write_text(buffer.getvalue(), encoding="utf-8", newline="")
    assert texts(path) == expected


@given(_TEXTS)
def test_parquet_round_trip(tmp_path_factory: pytest.TempPathFactory, expected: list[str]) -> None:
    path = tmp_path_factory.mktemp("parquet") / "a.parquet"
    columns = {"text": pa.array(expected, pa.string()), "tags": [[1, 2]] * len(expected)}
    pq.write_table(pa.table(columns), path)
    assert texts(path) == expected


def test_csv_with_quoted_line_ends(write: Write) -> None:
    content = 'text,n\n"раз\nдва, ""три""",1\nчетыре,2\nпять\n'.encode()
    path = write("a.csv", content)
    assert texts(path) == ['раз\nдва, "три"', "четыре"]
    assert bad(path) == [("malformed_csv", "line 5: 1 cells under 2 column names")]


def test_bad_lines_are_counted_and_located(write: Write) -> None:
    lines = [b'{"text": "a"}', b"{", b"[1]", b'{"text": "\xff"}', b"", b'{"text": "b"}']
    path = write("a.jsonl", b"\n".join(lines))
    assert texts(path) == ["a", "b"]
    reasons = bad(path)
    assert [reason for reason, _ in reasons] == ["malformed_json", "malformed_json", "invalid_utf8"]
    assert [detail.split(":")[0] for _, detail in reasons] == ["line 2", "line 3", "line 4"]


def test_other_encodings_are_no_text(write: Write) -> None:
    path = write("a.txt", "Руслан и Людмила".encode("cp1251"))
    assert texts(path) == []
    assert bad(path)[0][0] == "invalid_utf8"
    path = write("a.csv", b"text,n\n" + "да".encode("cp1251") + b",1\n")
    assert bad(path)[0][0] == "invalid_utf8"


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_truncated_archive_is_an_error(write: Write, suffix: str) -> None:
    content = "".join(json.dumps({"text": f"{n} {n * 7}"}) + "\n" for n in range(20_000)).encode()
    packed = gzip.compress(content) if suffix == ".gz" else zstandard.compress(content)
    path = write(f"a.jsonl{suffix}", packed[: len(packed) // 2])
    with pytest.raises(SourceError, match=f"a.jsonl{suffix}"):
        list(read_records(path))


def test_not_what_its_name_says(write: Write) -> None:
    for name in ("a.parquet", "a.jsonl.gz", "a.jsonl.zst"):
        with pytest.raises(SourceError, match=name):
            list(read_records(write(name, b"plain text, nothing else" * 9)))
    with pytest.raises(SourceError, match="unknown kind of file"):
        list(read_records(write("a.docx", b"")))


def test_empty_files(write: Write) -> None:
    for name in ("a.jsonl", "a.csv"):
        assert list(read_records(write(name, b""))) == []
    assert texts(write("a.txt", b""), separator="===") == []
