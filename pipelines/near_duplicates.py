"""Near-duplicates by simhash: which documents repeat an earlier kept one.

In document order (source priority, chunk, row) a document is a duplicate when its signature is
within ``threshold`` bits of that of an earlier *kept* document. Candidates come from bands
(pigeonhole: of ``threshold + 1`` bands two such signatures share at least one; Manku, Jain and
Das Sarma 2007, https://dl.acm.org/doi/10.1145/1242572.1242592) and are verified.

Stage ``near_duplicates``: one chunk of decisions for each chunk of measurements. Its recipe
covers the signatures of all chunks before it, so appended files leave earlier decisions as they
are, and equal decisions have equal bytes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pipelines.config import Project
from pipelines.config.models import Filters
from pipelines.datasets import Chunk, Dataset, digest, read_table
from pipelines.engine import (
    BuildReport,
    Observer,
    Part,
    Stage,
    Task,
    TaskContext,
    build_in_order,
)
from pipelines.filters import measurements, selection
from pipelines.schemas import DUPLICATES
from pipelines.storage import Storage

VERSION = 1
TABLE = "duplicates.parquet"
_BITS = 64


@dataclass(frozen=True)
class Match:
    """The earlier kept document that a signature repeats."""

    id: str
    distance: int


class SignatureIndex:
    """Signatures of kept documents, found again within a Hamming distance.

    Memory grows with the number of kept documents (about 300 bytes each).
    """

    def __init__(self, threshold: int) -> None:
        self.threshold = threshold
        edges = np.linspace(0, _BITS, threshold + 2).astype(int)
        self._bands = [
            (int(low), (1 << int(high - low)) - 1)
            for low, high in zip(edges[:-1], edges[1:], strict=True)
        ]
        self._tables: list[dict[int, list[int]]] = [{} for _ in self._bands]
        self._signatures: list[int] = []
        self._ids: list[str] = []

    def find(self, signature: int) -> Match | None:
        """The nearest kept signature within the threshold; of equally near ones the earliest."""
        best: tuple[int, int] | None = None
        for (shift, mask), table in zip(self._bands, self._tables, strict=True):
            for index in table.get(signature >> shift & mask, ()):
                distance = (signature ^ self._signatures[index]).bit_count()
                if distance <= self.threshold and (best is None or (distance, index) < best):
                    best = (distance, index)
        return None if best is None else Match(self._ids[best[1]], best[0])

    def add(self, signature: int, id: str) -> None:
        index = len(self._ids)
        self._ids.append(id)
        self._signatures.append(signature)
        for (shift, mask), table in zip(self._bands, self._tables, strict=True):
            table.setdefault(signature >> shift & mask, []).append(index)

    def find_or_add(self, signature: int, id: str, features: int) -> Match | None:
        """What it repeats, or None and it is kept; a text without words repeats nothing."""
        if features == 0:
            return None
        match = self.find(signature)
        if match is None:
            self.add(signature, id)
        return match


def stage(project: Project) -> Stage:
    config = {
        "simhash_threshold": project.near_duplicates.simhash_threshold,
        "filters": selection.slice_of(project.filters),
    }
    return Stage("near_duplicates", VERSION, config)


def text_sources(project: Project) -> list[str]:
    """The text sources in document order: by group, and by priority within it."""
    return [name for group in ("web", "articles") for name in project.sources_of(group)]


def build_near_duplicates(
    project: Project, storage: Storage, observer: Observer | None = None
) -> BuildReport:
    chunks = [
        chunk
        for name in text_sources(project)
        for chunk in Dataset(storage, f"measurements/{name}").chunks()
    ]
    index = SignatureIndex(project.near_duplicates.simhash_threshold)
    return build_in_order(
        Dataset(storage, "near_duplicates"),
        stage(project),
        _flow(storage, chunks, project.filters, index),
        total=len(chunks),
        observer=observer,
    )


def _flow(
    storage: Storage, chunks: Sequence[Chunk], filters: Filters, index: SignatureIndex
) -> Generator[Task, tuple[Chunk, ...], None]:
    before = ""
    behind: list[tuple[Chunk, Chunk]] = []  # reused decisions whose kept documents aren't indexed
    for chunk in chunks:
        inputs = {"measurements": chunk.content_hash, "before": before}
        decider = _Decider(storage, filters, index, behind)
        (decided,) = yield Task(chunk.name, decide_chunk, (decider, chunk), inputs)
        if not decider.ran:
            behind.append((chunk, decided))
        before = digest([before, chunk.content_hash])


@dataclass
class _Decider:
    """The index as it stands before a chunk; reused chunks are caught up with when needed."""

    storage: Storage
    filters: Filters
    index: SignatureIndex
    behind: list[tuple[Chunk, Chunk]]
    ran: bool = False

    def decide(self, chunk: Chunk) -> pa.Table:
        for measured, decided in self.behind:
            known = read_table(self.storage, decided, TABLE, ["id"])["id"].to_pylist()
            duplicates = set(known)
            for id, _, signature, features in self._candidates(measured):
                if id not in duplicates and features:
                    self.index.add(signature, id)
        self.behind.clear()
        self.ran = True
        rows = []
        for id, source, signature, features in self._candidates(chunk):
            if match := self.index.find_or_add(signature, id, features):
                rows.append(
                    {
                        "id": id,
                        "source": source,
                        "duplicate_of": match.id,
                        "distance": match.distance,
                    }
                )
        return pa.Table.from_pylist(rows, schema=DUPLICATES)

    def _candidates(self, chunk: Chunk) -> Iterator[tuple[str, str, int, int]]:
        """(id, source, signature, features) of the documents that pass the filters, in order."""
        table = read_table(self.storage, chunk, measurements.TABLE)
        passing = table.filter(pa.array(selection.select(table, self.filters).kept))
        columns = ("id", "source", "simhash", "simhash_features")
        yield from zip(*(passing[column].to_pylist() for column in columns), strict=True)


def decide_chunk(context: TaskContext, decider: _Decider, chunk: Chunk) -> Iterator[Part]:
    """Task function: one chunk of measurements to its duplicates."""
    table = decider.decide(chunk)
    yield Part(tables={"duplicates": table}, stats={"duplicates": table.num_rows})
