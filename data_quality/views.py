"""DuckDB views over everything that was built, for ``samovar sql`` and the report.

Each query gets a database of its own, in memory, over the Parquet files that the manifests name:
there is no database file that a running pipeline and an open shell could lock each other out of.

    raw_documents id, source, text, url, meta                              texts as they came
    documents     id, source, text, url, meta, group                       kept documents
    measurements  every figure of every text document, also of the dropped
    drops         id, source, stage, reason, value, threshold, detail, …   of all stages
    duplicates    id, source, duplicate_of, distance                       texts and dialogs
    dialogs       id, source, messages, turns, characters, …               kept dialogs
    shards        group, split, shard, id, start, tokens, characters, …    one row a document
    training_steps  phase, step, loss, learning_rate, …
    bpc           model, group, bits_per_character, …
    samples       model, kind, prompt, text, …

A view whose datasets weren't built yet is there, and empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from pipelines.chat import dialogs, repeats
from pipelines.datasets import Chunk
from pipelines.documents import DROPS
from pipelines.documents import TABLE as DOCUMENTS_TABLE
from pipelines.filters.measurements import TABLE as MEASUREMENTS_TABLE
from pipelines.near_duplicates import TABLE as DUPLICATES_TABLE
from pipelines.near_duplicates import text_sources
from pipelines.schemas import BPC, DIALOGS, DOCUMENTS, MEASUREMENTS, SAMPLES, STEPS
from pipelines.schemas import DROPS as DROPS_SCHEMA
from pipelines.schemas import DUPLICATES as DUPLICATES_SCHEMA
from pipelines.shards.reader import INDEX_SCHEMA
from pipelines.shards.split import SPLITS
from pipelines.sources.raw import RECORDS
from pipelines.workspace import Workspace

_CHAT_DUPLICATES = ("exact_duplicate", "near_duplicate")


@dataclass(frozen=True)
class _File:
    """One Parquet file of a view, and the values of the columns that the file doesn't have."""

    url: str
    constants: Mapping[str, str]


def connect(workspace: Workspace) -> duckdb.DuckDBPyConnection:
    """A fresh in-memory database with all views. For remote data roots files are cached locally."""
    connection = duckdb.connect(":memory:")
    # Nothing of a query may reach beyond the files of the views' own definitions by accident:
    # extensions are never fetched.
    connection.execute("SET autoinstall_known_extensions = false")
    project = workspace.project
    texts = text_sources(project)
    groups = [group for group in project.groups if group != "chat"]
    dialog_sources = project.sources_of("chat")

    _view(
        *(connection, "raw_documents", DOCUMENTS, ()),
        _files(workspace, {f"raw/{name}": {} for name in texts}, RECORDS),
    )
    _view(
        *(connection, "documents", DOCUMENTS, ("group",)),
        _files(workspace, {f"documents/{g}": {"group": g} for g in groups}, DOCUMENTS_TABLE),
    )
    _view(
        *(connection, "measurements", MEASUREMENTS, ()),
        _files(workspace, {f"measurements/{name}": {} for name in texts}, MEASUREMENTS_TABLE),
    )
    with_drops = [
        *(f"raw/{name}" for name in project.active_sources),
        *(f"documents/{group}" for group in groups),
        *(f"dialogs/{name}" for name in dialog_sources),
        *([repeats.KEY] if dialog_sources else []),
    ]
    _view(
        *(connection, "drops", DROPS_SCHEMA, ()),
        _files(workspace, dict.fromkeys(with_drops, {}), DROPS),
    )
    _view(
        *(connection, "text_duplicates", DUPLICATES_SCHEMA, ()),
        _files(workspace, {"near_duplicates": {}} if texts else {}, DUPLICATES_TABLE),
    )
    reasons = ", ".join(f"'{reason}'" for reason in _CHAT_DUPLICATES)
    connection.execute(
        "CREATE VIEW duplicates AS SELECT * FROM text_duplicates UNION ALL BY NAME "
        "SELECT id, source, detail AS duplicate_of, value::INTEGER AS distance FROM drops "
        f"WHERE stage = 'chat' AND reason IN ({reasons})"
    )
    _view(
        *(connection, "dialogs", DIALOGS, ()),
        _files(workspace, {repeats.KEY: {}} if dialog_sources else {}, dialogs.TABLE),
    )
    shards = [
        file
        for split in SPLITS
        for file in _files(
            workspace,
            {f"shards/{group}": {"group": group, "split": split} for group in project.groups},
            f"{split}.index.parquet",
            name_column="shard",
        )
    ]
    _view(connection, "shards", INDEX_SCHEMA, ("group", "split", "shard"), shards)
    phases = {f"checkpoints/{phase}": {"phase": phase} for phase in ("pretrain", "sft")}
    _view(
        *(connection, "training_steps", STEPS, ("phase",)),
        _files(workspace, phases, "steps.parquet"),
    )
    _view(*(connection, "bpc", BPC, ()), _files(workspace, {"evaluation/bpc": {}}, "bpc.parquet"))
    _view(
        *(connection, "samples", SAMPLES, ()),
        _files(workspace, {"evaluation/samples": {}}, "samples.parquet"),
    )
    return connection


def query(workspace: Workspace, sql: str) -> duckdb.DuckDBPyRelation:
    """The result of one statement over the views. Raises ``duckdb.Error``."""
    return connect(workspace).sql(sql)


def _files(
    workspace: Workspace,
    datasets: Mapping[str, Mapping[str, str]],
    suffix: str,
    name_column: str | None = None,
) -> list[_File]:
    """The files with ``suffix`` of the datasets that are built, in document order."""
    files = []
    for key, constants in datasets.items():
        for chunk in _chunks(workspace, key):
            if suffix in chunk.files:
                named = {name_column: chunk.name} if name_column else {}
                path = workspace.storage.local(chunk.files[suffix].key)
                files.append(_File(str(path), {**constants, **named}))
    return files


def _chunks(workspace: Workspace, key: str) -> Iterator[Chunk]:
    manifest = workspace.dataset(key).find_manifest()
    yield from manifest.chunks if manifest else ()


def _view(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    schema: pa.Schema,
    constant_columns: tuple[str, ...],
    files: list[_File],
) -> None:
    """A view over ``files``; the constants come from a small table, joined by file name."""
    empty = schema.empty_table()
    for column in constant_columns:
        empty = empty.append_column(column, pa.array([], pa.string()))
    connection.register(f"_{name}_empty", empty)
    columns = ", ".join(f'"{column}"' for column in empty.column_names)
    if not files:
        connection.execute(f"CREATE VIEW {name} AS SELECT {columns} FROM _{name}_empty")
        return
    listing = pa.table(
        {
            "filename": [file.url for file in files],
            **{column: [file.constants[column] for file in files] for column in constant_columns},
        }
    )
    connection.register(f"_{name}_files", listing)
    paths = ", ".join("'" + file.url.replace("'", "''") + "'" for file in files)
    connection.execute(
        f"CREATE VIEW {name} AS SELECT {columns} FROM "
        f"read_parquet([{paths}], filename = true, union_by_name = true) "
        f"JOIN _{name}_files USING (filename)"
    )
