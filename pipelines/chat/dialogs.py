"""Stage ``dialogs/<source>``: raw dialogs to normalised ones.

One chunk for each raw chunk: ``dialogs.parquet`` (DIALOGS) and ``drops.parquet`` (DROPS).
Raw dialogs = kept + dropped, always.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from pipelines.chat.normalise import Rejection, normalise_dialog
from pipelines.chat.roles import ROLES_VERSION, Role
from pipelines.config import Project
from pipelines.datasets import Chunk, Dataset, read_table
from pipelines.engine import BuildReport, Observer, Part, Stage, Task, TaskContext, build
from pipelines.schemas import DIALOGS, drop, drops_table, reason_counts
from pipelines.simhash64 import simhash
from pipelines.sources.raw import RECORDS
from pipelines.storage import Storage
from pipelines.text import NORMALISATION_VERSION

VERSION = 1
TABLE = "dialogs.parquet"
DROPS = "drops.parquet"


def stage(project: Project, name: str) -> Stage:
    config = {
        "normalisation": NORMALISATION_VERSION,
        "built_in_roles": ROLES_VERSION,
        "roles": dict(project.chat.roles),
    }
    return Stage(f"dialogs/{name}", VERSION, config)


def build_dialogs(
    project: Project,
    storage: Storage,
    name: str,
    workers: int = 0,
    observer: Observer | None = None,
) -> BuildReport:
    tasks = [
        Task(
            chunk.name,
            normalise_chunk,
            (storage, chunk, dict(project.chat.roles)),
            {"raw": chunk.files[RECORDS].sha256},
            chunk.stats["characters"],
        )
        for chunk in Dataset(storage, f"raw/{name}").chunks()
    ]
    dataset = Dataset(storage, f"dialogs/{name}")
    return build(dataset, stage(project, name), tasks, workers=workers, observer=observer)


def normalise_chunk(
    context: TaskContext, storage: Storage, chunk: Chunk, roles: Mapping[str, Role]
) -> Iterator[Part]:
    """Task function: one raw chunk to one chunk of dialogs."""
    dialogs: list[dict] = []
    drops: list[dict] = []
    empty = unanswered = 0
    for raw in read_table(storage, chunk, RECORDS).to_pylist():
        dialog = normalise_dialog(raw["messages"], roles)
        if isinstance(dialog, Rejection):
            text = "\n".join(message["content"] for message in raw["messages"])
            drops.append(
                drop(raw["id"], raw["source"], "dialogs", dialog.reason, text, detail=dialog.detail)
            )
            continue
        empty += dialog.empty_messages
        unanswered += dialog.unanswered_messages
        signature, features = simhash(dialog.text)
        dialogs.append(
            {
                "id": raw["id"],
                "source": raw["source"],
                "messages": [
                    {"role": role, "content": content} for role, content in dialog.messages
                ],
                "turns": dialog.turns,
                "characters": dialog.characters,
                "answer_characters": dialog.answer_characters,
                "simhash": signature,
                "simhash_features": features,
            }
        )
    yield Part(
        tables={
            "dialogs": pa.Table.from_pylist(dialogs, schema=DIALOGS),
            "drops": drops_table(drops),
        },
        stats={
            "read": len(dialogs) + len(drops),
            "rows": len(dialogs),
            "turns": sum(row["turns"] for row in dialogs),
            "characters": sum(row["characters"] for row in dialogs),
            "empty_messages": empty,
            "unanswered_messages": unanswered,
            "drops": reason_counts(drops),
        },
    )
