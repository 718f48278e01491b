"""Stage ``raw/<source>``: landed files to chunks of raw documents or dialogs.

Input: files. Output, for each slice of at most ``datasets.chunk_mb`` of text of a file, one
chunk with ``records.parquet`` (DOCUMENTS or RAW_DIALOGS of ``pipelines.schemas``) and
``drops.parquet`` (records that couldn't be read). Row numbers count all records of the file.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pyarrow as pa

from pipelines.config import Project, Source
from pipelines.datasets import Chunk, Dataset, Manifest
from pipelines.engine import (
    BuildReport,
    Observer,
    Part,
    Stage,
    Task,
    TaskContext,
    build,
    build_in_order,
)
from pipelines.schemas import DOCUMENTS, RAW_DIALOGS, drop, drops_table, reason_counts
from pipelines.sources.dialogs import layout_columns, read_dialogs, to_messages
from pipelines.sources.landing import ContentHashes, SourceError, landed_files
from pipelines.sources.records import BadRecord, Record, read_records
from pipelines.sources.texts import to_document, to_meta
from pipelines.storage import Storage

VERSION = 1
RECORDS = "records.parquet"
DROPS = "drops.parquet"

# What of a source's table decides how it is read; the rest (titles, licences, later stages' keys)
# may change without reading anything again.
_READ_KEYS = ("kind", "text_column", "url_column", "delimiter", "separator")


def stage(project: Project, name: str) -> Stage:
    source = project.sources[name]
    reading = {key: getattr(source, key) for key in _READ_KEYS}
    config = {**reading, "limit": source.limit, "chunk_mb": project.datasets.chunk_mb}
    return Stage(f"raw/{name}", VERSION, config, choosing=("limit",))


def build_raw(
    project: Project,
    storage: Storage,
    name: str,
    base: Path,
    workers: int = 0,
    observer: Observer | None = None,
) -> BuildReport:
    """Read all files of a source. Raises SourceError, also when too many records are malformed."""
    source = project.sources[name]
    files = landed_files(name, source, base)
    hashes = ContentHashes(storage, name).of(files)
    dataset = Dataset(storage, f"raw/{name}")
    limit_bytes = project.datasets.chunk_mb << 20
    tasks = [
        Task(
            f"{name}/{file.name}",
            read_file,
            (file.path, f"{name}/{file.name}", name, source, limit_bytes, None),
            {"file": hashes[file.name]},
            file.size,
        )
        for file in files
    ]
    own = stage(project, name)
    if source.limit is None:
        report = build(dataset, own, tasks, workers=workers, observer=observer)
    else:
        flow = _capped(tasks, source.limit)
        report = build_in_order(dataset, own, flow, total=len(tasks), observer=observer)
    _refuse_too_many_bad(report.manifest, source, name)
    return report


def _capped(tasks: list[Task], limit: int) -> Generator[Task, tuple[Chunk, ...], None]:
    """The tasks in file order until ``limit`` records are read; the last file is cut to fit.

    Only the cut file's recipe knows of the limit, so raising it reads no other file again.
    """
    left = limit
    for task in tasks:
        if left <= 0:
            return
        chunks = yield task
        rows = sum(chunk.stats["rows"] for chunk in chunks)
        if rows > left:
            args = (*task.args[:-1], left)
            inputs = {**task.inputs, "records_at_most": str(left)}
            chunks = yield Task(task.name, task.function, args, inputs, task.cost)
        left -= rows


def _refuse_too_many_bad(manifest: Manifest, source: Source, name: str) -> None:
    bad, rows = manifest.total("bad"), manifest.total("rows")
    if bad and bad > source.max_bad_share * (bad + rows):
        where = [chunk.stats["first_bad"] for chunk in manifest.chunks if chunk.stats["bad"]]
        raise SourceError(
            f"source {name!r}: {bad} of {bad + rows} records can't be read, above "
            f"max_bad_share = {source.max_bad_share}:\n  " + "\n  ".join(where[:10])
        )


def read_file(
    context: TaskContext,
    path: Path,
    chunk: str,
    source_name: str,
    source: Source,
    limit_bytes: int,
    limit_rows: int | None,
) -> Iterator[Part | None]:
    """Task function: one file to parts of at most ``limit_bytes`` of text (at least one part)."""
    slice_ = _Slice(source.kind)
    parts = 0
    for row, record in enumerate(_records(path, source)):
        if limit_rows is not None and slice_.total >= limit_rows:
            break
        try:
            converted = _convert(record, source, f"{path}, record {row}")
        except SourceError as error:
            # A file that begins with another shape is the wrong file, or wrongly configured; one
            # odd record in the middle of it is a bad record.
            if row == 0:
                raise
            converted = BadRecord("unknown_shape", str(error))
        slice_.add(f"{chunk}/{row}", source_name, converted)
        if slice_.bytes >= limit_bytes:
            yield slice_.part() if parts >= context.skip else None
            parts += 1
            slice_ = _Slice(source.kind, slice_.total)
    if slice_.pending or parts == 0:
        yield slice_.part()


def _records(path: Path, source: Source) -> Iterator[Record | BadRecord]:
    if source.kind == "dialogs":
        return read_dialogs(path)
    return read_records(path, delimiter=source.delimiter, separator=source.separator)


def _convert(record: Record | BadRecord, source: Source, where: str) -> dict | BadRecord:
    if isinstance(record, BadRecord):
        return record
    if source.kind == "text":
        return to_document(record, source, where)
    messages = to_messages(record, where)
    if isinstance(messages, BadRecord):
        return messages
    carried = layout_columns(record)
    rest = {key: value for key, value in record.items() if key not in carried}
    return {"messages": messages, "meta": to_meta(rest)}


class _Slice:
    """Records gathered for one part, and their size."""

    def __init__(self, kind: str, total: int = 0) -> None:
        self.kind = kind
        self.total = total  # good records of the file so far
        self.rows: list[dict] = []
        self.drops: list[dict] = []
        self.bytes = 0
        self.characters = 0
        self.surrogates = 0

    @property
    def pending(self) -> bool:
        return bool(self.rows or self.drops)

    def add(self, id: str, source: str, record: dict | BadRecord) -> None:
        if isinstance(record, BadRecord):
            self.drops.append(
                drop(id, source, "raw", record.reason, record.excerpt, detail=record.detail)
            )
            return
        if self.kind == "text":
            record["text"] = text = self._encodable(record["text"])
            size = len(text)
        else:
            for message in record["messages"]:
                message["content"] = self._encodable(message["content"])
            size = sum(len(message["content"]) for message in record["messages"])
        self.characters += size
        self.bytes += 2 * size  # Cyrillic in UTF-8: an estimate that doesn't encode twice
        self.total += 1
        self.rows.append({"id": id, "source": source, **record})

    def _encodable(self, text: str) -> str:
        """Lone surrogates (from JSON escapes) have no UTF-8: replaced by U+FFFD and counted."""
        try:
            text.encode()
        except UnicodeEncodeError:
            self.surrogates += sum("\ud800" <= character <= "\udfff" for character in text)
            return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
        return text

    def part(self) -> Part:
        schema = DOCUMENTS if self.kind == "text" else RAW_DIALOGS
        first = f"{self.drops[0]['id']}: {self.drops[0]['detail']}" if self.drops else None
        return Part(
            tables={
                "records": pa.Table.from_pylist(self.rows, schema=schema),
                "drops": drops_table(self.drops),
            },
            stats={
                "rows": len(self.rows),
                "characters": self.characters,
                "bad": len(self.drops),
                "drops": reason_counts(self.drops),
                "first_bad": first,
                "replaced_surrogates": self.surrogates,
            },
        )
