"""A raw file as a stream of records, whatever its format; memory is bounded by one record.

``read_records`` yields a dict of columns for a well-formed record and :class:`BadRecord` for one
that isn't, so nothing is lost without a trace. Text is decoded as UTF-8 with undecodable bytes
kept apart (``surrogateescape``): a record that has any is a bad one, never silently changed.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.sources.landing import FORMATS, SourceError

MAX_RECORD_BYTES = 64 << 20
_PARQUET_BATCH = 1_024  # rows; a batch of long documents stays within some tens of megabytes

csv.field_size_limit(MAX_RECORD_BYTES)


@dataclass(frozen=True)
class BadRecord:
    """A record that can't be used: a short reason, and where and why in ``detail``."""

    reason: str
    detail: str
    excerpt: str = ""


Record = dict[str, Any]


def format_of(path: Path) -> tuple[str, str]:
    """``(format, compression)`` from the file name; SourceError for an unknown one."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = suffixes.pop() if suffixes and suffixes[-1] in (".gz", ".zst") else ""
    if not suffixes or suffixes[-1] not in FORMATS:
        raise SourceError(
            f"{path}: unknown kind of file; known: {', '.join(FORMATS)}, each but Parquet also "
            "with .gz or .zst. Archives have to be unpacked first"
        )
    return suffixes[-1], compression


def read_records(
    path: Path, *, delimiter: str = "auto", separator: str | None = None
) -> Iterator[Record | BadRecord]:
    """The records of one file, in order.

    ``.txt``: one record ``{"text": …}`` a file, or one for each stretch between lines that equal
    ``separator`` (an empty string: blank lines). ``.jsonl``: one a line. ``.csv``, ``.tsv``: a
    header, then rows. ``.parquet``: rows. Raises SourceError for a file that is truncated or no
    such format at all.
    """
    kind, compression = format_of(path)
    try:
        if kind == ".parquet":
            yield from _parquet(path)
            return
        with _opened(path, compression) as file:
            if kind == ".txt":
                yield from _texts(file, separator)
            elif kind == ".jsonl":
                yield from _json_lines(file)
            else:
                default = "\t" if kind == ".tsv" else ","
                yield from _csv(file, default if delimiter == "auto" else delimiter)
    except (EOFError, zlib.error, gzip.BadGzipFile, pa.ArrowInvalid) as error:
        raise SourceError(f"{path} is truncated or damaged ({error}); fetch it again") from error
    except OSError as error:
        if compression or kind == ".parquet":
            raise SourceError(f"{path} can't be read to its end ({error})") from error
        raise


@contextmanager
def _opened(path: Path, compression: str) -> Iterator[IO[bytes]]:
    if compression == ".gz":
        with gzip.open(path, "rb") as file:
            yield file
    elif compression == ".zst":
        # Arrow's stream reports a truncated frame; zstandard's reader just ends there.
        with pa.OSFile(str(path)) as raw, pa.CompressedInputStream(raw, "zstd") as stream:
            yield io.BufferedReader(_Readable(stream), 1 << 20)
    else:
        with open(path, "rb") as file:
            yield file


class _Readable(io.RawIOBase):
    """Arrow's stream as a raw file, for BufferedReader's line reading."""

    def __init__(self, stream: pa.NativeFile) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """(number from 1, line without its end); None for a line above the limit, skipped unread."""
    number = 0
    while line := file.readline(MAX_RECORD_BYTES):
        number += 1
        if len(line) == MAX_RECORD_BYTES and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_RECORD_BYTES)
            yield number, None
        else:
            yield number, line.rstrip(b"\r\n")


def _texts(file: IO[bytes], separator: str | None) -> Iterator[Record | BadRecord]:
    if separator is None:
        content = file.read(MAX_RECORD_BYTES + 1)
        if len(content) > MAX_RECORD_BYTES:
            yield BadRecord(
                "record_too_large", f"over {MAX_RECORD_BYTES >> 20} MB; set a separator"
            )
        else:
            yield _text_record(content, "the file")
        return
    mark = separator.encode()
    first = 1
    gathered: list[bytes] = []
    size = 0
    for number, line in _lines(file):
        # What runs over the limit is a file without separators: report it, don't fill memory.
        if line is None or size > MAX_RECORD_BYTES:
            yield BadRecord("record_too_large", f"line {number}: no separator {separator!r}")
            gathered, size, first = [], 0, number + 1
        elif line.strip() == mark:
            if any(gathered):
                yield _text_record(b"\n".join(gathered), f"lines {first} to {number - 1}")
            gathered, size, first = [], 0, number + 1
        else:
            gathered.append(line)
            size += len(line) + 1
    if any(gathered):
        yield _text_record(b"\n".join(gathered), f"lines from {first}")


def _text_record(content: bytes, where: str) -> Record | BadRecord:
    try:
        return {"text": content.decode("utf-8-sig")}
    except UnicodeDecodeError as error:
        return _undecodable(content, error, where)


def _undecodable(content: bytes, error: UnicodeDecodeError, where: str) -> BadRecord:
    return BadRecord(
        "invalid_utf8",
        f"{where}: byte {error.start} (0x{content[error.start]:02x}) is no UTF-8",
        content[:160].decode("utf-8", "replace"),
    )


def _json_lines(file: IO[bytes]) -> Iterator[Record | BadRecord]:
    for number, line in _lines(file):
        if line is None:
            yield BadRecord("record_too_large", f"line {number}: over {MAX_RECORD_BYTES >> 20} MB")
            continue
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line.strip():
            continue
        try:
            record = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            yield _undecodable(line, error, f"line {number}")
        except (ValueError, RecursionError) as error:
            yield BadRecord("malformed_json", f"line {number}: {error}", _excerpt(line))
        else:
            if isinstance(record, dict):
                yield record
            else:
                yield BadRecord("malformed_json", f"line {number}: no object", _excerpt(line))


def _excerpt(line: bytes) -> str:
    return line[:160].decode("utf-8", "replace")


def _csv(file: IO[bytes], delimiter: str) -> Iterator[Record | BadRecord]:
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    reader = csv.reader(text, delimiter=delimiter)
    header = next(reader, None)
    if header is None:
        return
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            yield BadRecord("malformed_csv", f"line {reader.line_num}: {error}")
            continue
        if row is None:
            return
        where = f"line {reader.line_num}"
        if not row:
            continue
        if any(_has_escaped_byte(cell) for cell in row):
            yield BadRecord("invalid_utf8", where, delimiter.join(row)[:160])
        elif len(row) != len(header):
            yield BadRecord(
                "malformed_csv",
                f"{where}: {len(row)} cells under {len(header)} column names",
                delimiter.join(row)[:160],
            )
        else:
            yield dict(zip(header, row, strict=True))


def _has_escaped_byte(text: str) -> bool:
    return not text.isascii() and any("\udc80" <= character <= "\udcff" for character in text)


def _parquet(path: Path) -> Iterator[Record]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_PARQUET_BATCH):
            yield from batch.to_pylist()
