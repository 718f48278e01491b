"""Stage ``dialogs/chat``: the dialogs of all sources without exact and near repeats.

In document order (source priority, chunk, row) a dialog is dropped when its messages equal those
of an earlier *kept* one, or its simhash is within the threshold of an earlier kept one's. One
chunk for each chunk of ``dialogs/<source>``: ``dialogs.parquet`` (DIALOGS) and ``drops.parquet``
(DROPS, the repeated dialog in ``detail``). A chunk's recipe covers all dialogs before it, so
appended files leave earlier decisions as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from pipelines.chat.dialogs import TABLE
from pipelines.config import Project
from pipelines.datasets import Chunk, Dataset, digest, read_table
from pipelines.engine import BuildReport, Observer, Part, Stage, Task, TaskContext, build_in_order
from pipelines.near_duplicates import Match, SignatureIndex
from pipelines.schemas import DIALOGS, drop, drops_table, reason_counts
from pipelines.storage import Storage

VERSION = 1
KEY = "dialogs/chat"
DROPS = "drops.parquet"


def stage(project: Project) -> Stage:
    config = {"simhash_threshold": project.chat.simhash_threshold}
    return Stage(KEY, VERSION, config)


def build_chat(project: Project, storage: Storage, observer: Observer | None = None) -> BuildReport:
    chunks = [
        chunk
        for name in project.sources_of("chat")
        for chunk in Dataset(storage, f"dialogs/{name}").chunks()
    ]
    kept = _Kept(SignatureIndex(project.chat.simhash_threshold))
    flow = _flow(storage, chunks, kept)
    dataset = Dataset(storage, KEY)
    return build_in_order(dataset, stage(project), flow, total=len(chunks), observer=observer)


def _flow(
    storage: Storage, chunks: Sequence[Chunk], kept: _Kept
) -> Generator[Task, tuple[Chunk, ...], None]:
    before = ""
    for chunk in chunks:
        dialogs = chunk.files[TABLE].sha256
        decider = _Decider(storage, kept)
        (decided,) = yield Task(
            chunk.name, decide_chunk, (decider, chunk), {"dialogs": dialogs, "before": before}
        )
        if not decider.ran:
            kept.behind.append(decided)
        before = digest([before, dialogs])


@dataclass
class _Kept:
    """The kept dialogs so far; reused chunks wait in ``behind`` until they are needed."""

    signatures: SignatureIndex
    ids: dict[bytes, str] = field(default_factory=dict)  # digest of the messages -> id
    behind: list[Chunk] = field(default_factory=list)

    def find(self, row: dict) -> tuple[str, Match] | None:
        if (id := self.ids.get(_digest(row["messages"]))) is not None:
            return "exact_duplicate", Match(id, 0)
        if row["simhash_features"] and (match := self.signatures.find(row["simhash"])):
            return "near_duplicate", match
        return None

    def add(self, row: dict) -> None:
        self.ids[_digest(row["messages"])] = row["id"]
        if row["simhash_features"]:
            self.signatures.add(row["simhash"], row["id"])


@dataclass
class _Decider:
    storage: Storage
    kept: _Kept
    ran: bool = False

    def rows(self, chunk: Chunk) -> list[dict]:
        """The chunk's dialogs, once the index knows every dialog kept before them."""
        for decided in self.kept.behind:
            for row in read_table(self.storage, decided, TABLE).to_pylist():
                self.kept.add(row)
        self.kept.behind.clear()
        self.ran = True
        return read_table(self.storage, chunk, TABLE).to_pylist()


def decide_chunk(context: TaskContext, decider: _Decider, chunk: Chunk) -> Iterator[Part]:
    """Task function: one chunk of normalised dialogs to those that repeat nothing."""
    dialogs: list[dict] = []
    drops: list[dict] = []
    rows = decider.rows(chunk)
    for row in rows:
        found = decider.kept.find(row)
        if found is None:
            decider.kept.add(row)
            dialogs.append(row)
            continue
        reason, match = found
        text = "\n".join(message["content"] for message in row["messages"])
        drops.append(
            drop(
                *(row["id"], row["source"], "chat", reason, text),
                value=match.distance,
                threshold=decider.kept.signatures.threshold,
                detail=match.id,
            )
        )
    yield Part(
        tables={
            "dialogs": pa.Table.from_pylist(dialogs, schema=DIALOGS),
            "drops": drops_table(drops),
        },
        stats={
            "read": len(rows),
            "rows": len(dialogs),
            "turns": sum(row["turns"] for row in dialogs),
            "characters": sum(row["characters"] for row in dialogs),
            "drops": reason_counts(drops),
        },
    )


def _digest(messages: list[dict]) -> bytes:
    content = json.dumps(messages, ensure_ascii=False, sort_keys=True)
    return hashlib.blake2b(content.encode(), digest_size=16).digest()
