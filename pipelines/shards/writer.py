"""Stage ``shards/<group>``: documents or dialogs to token shards of both splits.

One task for each input chunk; its parts hold at most ``shards.max_tokens`` tokens a split:

    train.tokens, validation.tokens                 uint16, little-endian, documents end to end
    train.mask, validation.mask                     uint8, chat only
    train.index.parquet, validation.index.parquet   INDEX_SCHEMA, one row a document

A document is its tokens and a closing ``<|endoftext|>``; a dialog its serialised
form (``pipelines.chat.serialise``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines import documents
from pipelines.chat import dialogs
from pipelines.chat.serialise import encode_dialogs
from pipelines.config import Project
from pipelines.datasets import Chunk, Dataset, read_table
from pipelines.engine import BuildReport, Observer, Part, Stage, Task, TaskContext, build
from pipelines.groups import CHAT, records_of, records_table
from pipelines.shards.reader import (
    INDEX_SCHEMA,
    MASK_DTYPE,
    TOKEN_DTYPE,
    ShardError,
    ShardFiles,
    TokenStream,
)
from pipelines.shards.split import SPLITS, Split, split_of
from pipelines.storage import Storage
from pipelines.tokenizer.encoder import TextTokenizer
from pipelines.tokenizer.training import KEY as TOKENIZER
from pipelines.tokenizer.training import tokenizer_path

VERSION = 1
_BATCH = 512  # documents encoded at a time: bounds the ids that wait in Python lists


def stage(project: Project, group: str) -> Stage:
    config = {
        "max_tokens": project.shards.max_tokens,
        "validation_share": project.shards.validation_share,
    }
    return Stage(f"shards/{group}", VERSION, config)


def build_shards(
    project: Project,
    storage: Storage,
    group: str,
    workers: int = 0,
    observer: Observer | None = None,
) -> BuildReport:
    tokenizer = Dataset(storage, TOKENIZER).manifest().data_version
    path = tokenizer_path(storage)
    own = stage(project, group)
    tasks = [
        Task(
            chunk.name,
            write_chunk,
            (storage, chunk, group, path, *own.config.values()),
            {"records": chunk.files[records_table(group)].sha256, "tokenizer": tokenizer},
            chunk.stats["characters"],
        )
        for chunk in records_of(storage, group).chunks()
    ]
    dataset = Dataset(storage, f"shards/{group}")
    return build(dataset, own, tasks, workers=workers, observer=observer)


def open_stream(storage: Storage, group: str, split: Split) -> TokenStream:
    """All shards of a group and split as one stream, in document order; digests are verified."""
    dataset = Dataset(storage, f"shards/{group}")
    shards = []
    for chunk in dataset.chunks():
        if not chunk.stats[f"{split}_tokens"]:
            continue
        mask = f"{split}.mask"
        shards.append(
            ShardFiles(
                tokens=dataset.path(chunk, f"{split}.tokens"),
                index=dataset.path(chunk, f"{split}.index.parquet"),
                mask=dataset.path(chunk, mask) if mask in chunk.files else None,
            )
        )
    return TokenStream(shards)


@dataclass(frozen=True)
class _Encoded:
    id: str
    tokens: np.ndarray
    mask: np.ndarray | None
    characters: int
    answer_characters: int


def write_chunk(
    context: TaskContext,
    storage: Storage,
    chunk: Chunk,
    group: str,
    tokenizer_file: Path,
    max_tokens: int,
    validation_share: float,
) -> Iterator[Part | None]:
    """Task function: one chunk of documents or dialogs to parts (at least one)."""
    tokenizer = _tokenizer(tokenizer_file)
    encode = _dialogs if group == CHAT else _documents
    part = _Part(masked=group == CHAT)
    parts = 0
    for document in encode(storage, chunk, tokenizer):
        if len(document.tokens) > max_tokens:
            raise ShardError(
                f"document {document.id} has {len(document.tokens)} tokens, more than a shard may "
                f"hold (shards.max_tokens = {max_tokens}); lower filters.max_chars"
            )
        split = split_of(document.id, validation_share)
        if part.tokens[split] + len(document.tokens) > max_tokens:
            yield part.finish() if parts >= context.skip else None
            parts += 1
            part = _Part(masked=group == CHAT)
        part.add(split, document)
    if parts == 0 or any(part.tokens.values()):
        yield part.finish()


@dataclass
class _Part:
    masked: bool
    documents: dict[Split, list[_Encoded]] = field(
        default_factory=lambda: {split: [] for split in SPLITS}
    )
    tokens: dict[Split, int] = field(default_factory=lambda: dict.fromkeys(SPLITS, 0))

    def add(self, split: Split, document: _Encoded) -> None:
        self.documents[split].append(document)
        self.tokens[split] += len(document.tokens)

    def finish(self) -> Part:
        arrays: dict[str, np.ndarray] = {}
        tables: dict[str, pa.Table] = {}
        stats: dict[str, int] = {}
        for split, documents_ in self.documents.items():
            arrays[f"{split}.tokens"] = _joined([d.tokens for d in documents_], TOKEN_DTYPE)
            if self.masked:
                mask = _joined([d.mask for d in documents_], MASK_DTYPE)
                arrays[f"{split}.mask"] = mask
                stats[f"{split}_answer_tokens"] = int(mask.sum())
            tables[f"{split}.index"] = _index(documents_)
            stats[f"{split}_tokens"] = self.tokens[split]
            stats[f"{split}_documents"] = len(documents_)
            stats[f"{split}_characters"] = sum(d.characters for d in documents_)
        return Part(tables=tables, arrays=arrays, stats=stats)


def _index(documents_: list[_Encoded]) -> pa.Table:
    rows = []
    start = 0
    for document in documents_:
        rows.append(
            {
                "id": document.id,
                "start": start,
                "tokens": len(document.tokens),
                "characters": document.characters,
                "answer_characters": document.answer_characters,
            }
        )
        start += len(document.tokens)
    return pa.Table.from_pylist(rows, schema=INDEX_SCHEMA)


def _joined(arrays: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype)


def _documents(storage: Storage, chunk: Chunk, tokenizer: TextTokenizer) -> Iterator[_Encoded]:
    table = read_table(storage, chunk, documents.TABLE, ["id", "text"])
    for batch in table.to_batches(_BATCH):
        ids, texts = batch["id"].to_pylist(), batch["text"].to_pylist()
        for id, text, tokens in zip(ids, texts, tokenizer.encode_batch(texts), strict=True):
            array = np.array([*tokens, tokenizer.end_of_text], TOKEN_DTYPE)
            yield _Encoded(id, array, None, len(text), len(text))


def _dialogs(storage: Storage, chunk: Chunk, tokenizer: TextTokenizer) -> Iterator[_Encoded]:
    columns = ["id", "messages", "characters", "answer_characters"]
    for batch in read_table(storage, chunk, dialogs.TABLE, columns).to_batches(_BATCH):
        rows = batch.to_pylist()
        messages = [[(m["role"], m["content"]) for m in row["messages"]] for row in rows]
        for row, (tokens, mask) in zip(rows, encode_dialogs(tokenizer, messages), strict=True):
            yield _Encoded(row["id"], tokens, mask, row["characters"], row["answer_characters"])


@lru_cache(maxsize=1)
def _tokenizer(path: Path) -> TextTokenizer:
    """Loaded once a worker process; the path carries the content's recipe."""
    return TextTokenizer.load(path)
