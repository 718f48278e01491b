"""Stage ``measurements/<source>``: every figure of every document, also of those to be dropped.

One chunk for each raw chunk: ``measurements.parquet`` (MEASUREMENTS), one row for each document
or, where long documents are split, for each of its parts. Thresholds play no role here, so that
another threshold never reads a text again.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pipelines.config import Project
from pipelines.datasets import Chunk, Dataset, read_table
from pipelines.engine import BuildReport, Observer, Part, Stage, Task, TaskContext, build
from pipelines.schemas import MEASUREMENTS
from pipelines.sources.raw import RECORDS
from pipelines.storage import Storage
from pipelines.text import NORMALISATION_VERSION, normalise, split_long

VERSION = 2
TABLE = "measurements.parquet"


def stage(project: Project, name: str) -> Stage:
    config = {
        "normalisation": NORMALISATION_VERSION,
        "split_at": split_length(project, name),
        "stop_words": project.filters.stop_words,
    }
    return Stage(f"measurements/{name}", VERSION, config)


def split_length(project: Project, name: str) -> int | None:
    """Characters above which a source's documents are split; None where they aren't."""
    split = project.sources[name].long_documents == "split"
    return project.filters.max_chars if split else None


def build_measurements(
    project: Project,
    storage: Storage,
    name: str,
    workers: int = 0,
    observer: Observer | None = None,
) -> BuildReport:
    own = stage(project, name)
    tasks = [
        Task(
            chunk.name,
            measure_chunk,
            (storage, chunk, own.config["split_at"], tuple(project.filters.stop_words)),
            {"raw": chunk.files[RECORDS].sha256},
            chunk.stats["characters"],
        )
        for chunk in Dataset(storage, f"raw/{name}").chunks()
    ]
    dataset = Dataset(storage, f"measurements/{name}")
    return build(dataset, own, tasks, workers=workers, observer=observer)


def measure_chunk(
    context: TaskContext,
    storage: Storage,
    chunk: Chunk,
    split_at: int | None,
    stop_words: tuple[str, ...],
) -> Iterator[Part]:
    """Task function: one raw chunk to one chunk of measurements."""
    # Compiled kernels: seconds to load, and only this stage's workers need them.
    from pipelines.filters.kernels import measure_texts

    raw = read_table(storage, chunk, RECORDS, ["id", "source", "text"])
    rows: list[dict] = []
    texts: list[str] = []
    for row, (id, source, text) in enumerate(zip(*raw.to_pydict().values(), strict=True)):
        pieces = document_parts(text, split_at)
        texts += pieces
        rows += (
            {
                "id": part_id(id, part, len(pieces)),
                "source": source,
                "row": row,
                "part": part,
                "parts": len(pieces),
            }
            for part in range(len(pieces))
        )
    for figures, measured in zip(rows, measure_texts(texts, stop_words), strict=True):
        figures.update(vars(measured))
    yield Part(
        tables={"measurements": pa.Table.from_pylist(rows, schema=MEASUREMENTS)},
        stats={
            "rows": len(rows),
            "documents": raw.num_rows,
            "characters": sum(row["characters"] for row in rows),
        },
    )


def document_parts(text: str, split_at: int | None) -> list[str]:
    """The normalised text, split where it is longer than ``split_at`` characters."""
    text = normalise(text)
    return [text] if split_at is None else split_long(text, split_at)


def part_id(id: str, part: int, parts: int) -> str:
    """``id`` of a whole document, ``id#k`` of a part."""
    return id if parts == 1 else f"{id}#{part}"
