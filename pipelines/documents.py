"""Stage ``documents/<group>``: the documents that passed every filter, and the record of the rest.

One chunk for each raw chunk of the group's sources: ``documents.parquet`` (DOCUMENTS, text
normalised and split) and ``drops.parquet`` (DROPS). Measured documents = kept + dropped, always.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pipelines import near_duplicates
from pipelines.config import Project
from pipelines.config.models import Filters
from pipelines.datasets import Chunk, Dataset, read_table
from pipelines.engine import BuildReport, Observer, Part, Stage, Task, TaskContext, build
from pipelines.filters import measurements, selection
from pipelines.schemas import DOCUMENTS, drop, drops_table, reason_counts
from pipelines.sources.raw import RECORDS
from pipelines.storage import Storage
from pipelines.text import NORMALISATION_VERSION

VERSION = 1
TABLE = "documents.parquet"
DROPS = "drops.parquet"


def stage(project: Project, group: str) -> Stage:
    config = {
        "normalisation": NORMALISATION_VERSION,
        "sources": {
            name: measurements.split_length(project, name) for name in project.sources_of(group)
        },
        "filters": selection.slice_of(project.filters),
        "simhash_threshold": project.near_duplicates.simhash_threshold,
    }
    # Which sources there are, and the order of the chunks, is no matter of what is in a chunk.
    return Stage(f"documents/{group}", VERSION, config, choosing=("sources",))


def build_documents(
    project: Project,
    storage: Storage,
    group: str,
    workers: int = 0,
    observer: Observer | None = None,
) -> BuildReport:
    decisions = {chunk.name: chunk for chunk in Dataset(storage, "near_duplicates").chunks()}
    tasks = []
    for name in project.sources_of(group):
        split_at = measurements.split_length(project, name)
        measured = {c.name: c for c in Dataset(storage, f"measurements/{name}").chunks()}
        for raw in Dataset(storage, f"raw/{name}").chunks():
            chunks = (raw, measured[raw.name], decisions[raw.name])
            inputs = {
                "raw": raw.files[RECORDS].sha256,
                "measurements": chunks[1].content_hash,
                "near_duplicates": chunks[2].content_hash,
                "split_at": str(split_at),
            }
            args = (
                storage,
                chunks,
                split_at,
                project.filters,
                project.near_duplicates.simhash_threshold,
            )
            tasks.append(Task(raw.name, select_chunk, args, inputs, raw.stats["characters"] // 4))
    dataset = Dataset(storage, f"documents/{group}")
    return build(dataset, stage(project, group), tasks, workers=workers, observer=observer)


def select_chunk(
    context: TaskContext,
    storage: Storage,
    chunks: tuple[Chunk, Chunk, Chunk],
    split_at: int | None,
    filters: Filters,
    simhash_threshold: int,
) -> Iterator[Part]:
    """Task function: raw, measurements and duplicates of one chunk to documents and drops."""
    raw_chunk, measured_chunk, decided_chunk = chunks
    raw = read_table(storage, raw_chunk, RECORDS).to_pylist()
    measured = read_table(storage, measured_chunk, measurements.TABLE)
    selected = selection.select(measured, filters)
    decided = read_table(storage, decided_chunk, near_duplicates.TABLE).to_pylist()
    duplicates = {row["id"]: row for row in decided}
    documents: list[dict] = []
    drops: list[dict] = []
    pieces: list[str] = []
    for index, row in enumerate(measured.to_pylist()):
        record = raw[row["row"]]
        if row["part"] == 0:
            pieces = measurements.document_parts(record["text"], split_at)
        text = pieces[row["part"]]
        if failed := selected.failed(index):
            first = failed[0]
            drops.append(
                drop(
                    row["id"],
                    row["source"],
                    "selection",
                    first.reason,
                    text,
                    value=row[first.column],
                    threshold=first.threshold,
                    detail=row[first.detail] if first.detail else None,
                    failed=[each.reason for each in failed],
                )
            )
        elif duplicate := duplicates.get(row["id"]):
            drops.append(
                drop(
                    row["id"],
                    row["source"],
                    "near_duplicates",
                    "near_duplicate",
                    text,
                    value=duplicate["distance"],
                    threshold=simhash_threshold,
                    detail=duplicate["duplicate_of"],
                )
            )
        else:
            documents.append({**record, "id": row["id"], "text": text})
    yield Part(
        tables={
            "documents": pa.Table.from_pylist(documents, schema=DOCUMENTS),
            "drops": drops_table(drops),
        },
        stats={
            "measured": measured.num_rows,
            "rows": len(documents),
            "characters": sum(len(document["text"]) for document in documents),
            "dropped_characters": sum(row["characters"] for row in drops),
            "drops": reason_counts(drops),
        },
    )
