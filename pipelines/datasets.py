"""Datasets: a folder with a manifest and chunk files, and how the next stage reads them.

    <key>/manifest.json                     what the dataset is made of; written last, atomically
    <key>/chunks/<chunk>.<digest>.<suffix>  immutable; the digest is that of the recipe and part

A chunk may have several files (documents and drops; tokens, mask and index), told apart by their
suffix. Its content hash covers all of them; the dataset's *data version* covers its chunks. Both
know content only: no clocks, hosts or absolute paths.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.storage import Storage, sha256_of

MANIFEST_FORMAT = 1


class DatasetError(RuntimeError):
    """A dataset is missing, damaged or of another format; the message says what to do."""


@dataclass(frozen=True)
class FileEntry:
    """One file of a chunk: its key below the data root, digest and size."""

    key: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Chunk:
    """One part of one task's output.

    ``recipe`` is that of the task, ``part`` counts from 0 to ``parts - 1`` within it. ``stats``
    are figures of the content (rows, characters, …), equal for equal content.
    """

    name: str
    recipe: str
    part: int
    parts: int
    files: Mapping[str, FileEntry]
    stats: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def content_hash(self) -> str:
        """Digest over the (suffix, sha256) of the chunk's files."""
        return digest(sorted((suffix, entry.sha256) for suffix, entry in self.files.items()))

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.files.values())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Chunk:
        files = {suffix: FileEntry(**entry) for suffix, entry in record["files"].items()}
        return cls(**{**record, "files": files})


@dataclass(frozen=True)
class Manifest:
    """What a dataset is made of, in document order."""

    stage: str
    version: int
    config: Mapping[str, Any]
    chunks: tuple[Chunk, ...]

    @cached_property
    def data_version(self) -> str:
        """Digest over the chunks' names and content hashes, in order."""
        return digest([(chunk.name, chunk.content_hash) for chunk in self.chunks])

    def total(self, stat: str) -> int:
        """Sum of one statistic over the chunks; a chunk without it counts 0."""
        return sum(chunk.stats.get(stat, 0) for chunk in self.chunks)

    def totals(self, stat: str) -> dict[str, int]:
        """Sum of a statistic that is itself a table of counts (drops by reason, …)."""
        result: dict[str, int] = {}
        for chunk in self.chunks:
            for key, count in chunk.stats.get(stat, {}).items():
                result[key] = result.get(key, 0) + count
        return dict(sorted(result.items()))

    def to_bytes(self) -> bytes:
        record = {
            "format": MANIFEST_FORMAT,
            "stage": self.stage,
            "version": self.version,
            "data_version": self.data_version,
            "config": dict(self.config),
            "chunks": [chunk.to_json() for chunk in self.chunks],
        }
        return json.dumps(record, ensure_ascii=False, indent=1, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, content: bytes, where: str) -> Manifest:
        try:
            record = json.loads(content)
            if record["format"] != MANIFEST_FORMAT:
                raise DatasetError(
                    f"{where} has format {record['format']}, this version reads "
                    f"{MANIFEST_FORMAT}; remove the folder to have it built anew"
                )
            chunks = tuple(Chunk.from_json(chunk) for chunk in record["chunks"])
            return cls(record["stage"], record["version"], record["config"], chunks)
        except (ValueError, KeyError, TypeError) as error:
            raise DatasetError(f"{where} is damaged ({error!r}); remove it to rebuild") from error


@dataclass(frozen=True)
class Dataset:
    """One dataset of a data root, by its key (``documents/web``)."""

    storage: Storage
    key: str

    @property
    def manifest_key(self) -> str:
        return f"{self.key}/manifest.json"

    @property
    def url(self) -> str:
        return self.storage.url(self.key)

    def find_manifest(self) -> Manifest | None:
        """The manifest, or None where the dataset was never finished."""
        try:
            content = self.storage.read(self.manifest_key)
        except FileNotFoundError:
            return None
        return Manifest.from_bytes(content, self.storage.url(self.manifest_key))

    def manifest(self) -> Manifest:
        """The manifest; DatasetError where there is none."""
        if (manifest := self.find_manifest()) is None:
            raise DatasetError(
                f"{self.key} was not built yet: run `samovar materialize {self.key}` "
                "or materialize it in Dagster"
            )
        return manifest

    def chunks(self) -> tuple[Chunk, ...]:
        return self.manifest().chunks

    def path(self, chunk: Chunk, suffix: str) -> Path:
        """A verified local path of a chunk's file."""
        return verified_path(self.storage, chunk, suffix)

    def table(self, chunk: Chunk, suffix: str, columns: list[str] | None = None) -> pa.Table:
        """A chunk's Parquet file as a table, its digest verified."""
        return read_table(self.storage, chunk, suffix, columns)

    def tables(self, suffix: str, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """The tables of all chunks in document order, one in memory at a time."""
        for chunk in self.chunks():
            if suffix in chunk.files:
                yield self.table(chunk, suffix, columns)


def verified_path(storage: Storage, chunk: Chunk, suffix: str) -> Path:
    """The local path of a chunk's file, once its bytes proved to be the recorded ones."""
    entry = chunk.files[suffix]
    try:
        path = storage.local(entry.key)
        with open(path, "rb") as file:
            actual = sha256_of(file)
    except FileNotFoundError as error:
        raise DatasetError(
            f"{storage.url(entry.key)} is missing (chunk {chunk.name}); "
            "`samovar materialize --stale` computes it again"
        ) from error
    if actual != entry.sha256:
        raise DatasetError(
            f"{path} is damaged: sha256 {actual[:16]}…, recorded {entry.sha256[:16]}… "
            f"(chunk {chunk.name}). Remove the file, then materialize the dataset again: "
            "only this chunk is computed"
        )
    return path


def read_table(
    storage: Storage, chunk: Chunk, suffix: str, columns: list[str] | None = None
) -> pa.Table:
    """A chunk's Parquet file as a table, its digest verified first."""
    return pq.read_table(verified_path(storage, chunk, suffix), columns=columns)


def write_table(table: pa.Table, path: Path) -> None:
    """Parquet with fixed settings: equal tables give equal bytes."""
    pq.write_table(
        table, path, compression="zstd", compression_level=3, row_group_size=16_384, version="2.6"
    )


def digest(value: Any) -> str:
    """sha256 of a value's canonical JSON (sorted keys, no spaces): 64 hex digits."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
