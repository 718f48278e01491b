"""Stage ``tokenizer_corpus``: the text that the tokenizer is trained on, cut from the front.

Each group gives its share (``tokenizer.mix``) of ``corpus_chars`` characters, in document order;
the text that crosses the mark is cut there. Only the chunks that are read are inputs, so that
appended data leaves the corpus, and the tokenizer, as they are.

Where a group has less than its share, the whole corpus shrinks with it: the mix stays. Groups
without any text give their share to the others of their kind (plain text, chat), then to the
other kind. One chunk a group, ``<group>`` with ``texts.parquet`` (``text``; for chat each message
is one text, since messages are what is encoded).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.config import Project
from pipelines.datasets import Chunk, Dataset, read_table
from pipelines.engine import BuildReport, Observer, Part, Stage, Task, TaskContext, build
from pipelines.groups import CHAT, records_of, records_table
from pipelines.storage import Storage

VERSION = 1
KEY = "tokenizer_corpus"
TABLE = "texts.parquet"
TEXTS = pa.schema([pa.field("text", pa.large_string(), nullable=False)])


def stage(project: Project) -> Stage:
    config = {
        "mix": dict(project.tokenizer.mix),
        "corpus_chars": project.tokenizer.corpus_chars,
        "groups": project.groups,
    }
    # What is read of a group is in the tasks: another group's share is no matter of this one.
    return Stage(KEY, VERSION, config, choosing=tuple(config))


def build_corpus(
    project: Project, storage: Storage, observer: Observer | None = None
) -> BuildReport:
    chunks = {group: records_of(storage, group).chunks() for group in project.groups}
    available = {
        group: sum(chunk.stats["characters"] for chunk in chunks[group]) for group in chunks
    }
    characters = budget(project.tokenizer.mix, project.tokenizer.corpus_chars, available)
    tasks = []
    for group, wanted in characters.items():
        used = _front(chunks[group], wanted)
        inputs = {chunk.name: chunk.files[records_table(group)].sha256 for chunk in used}
        tasks.append(
            Task(
                group,
                cut_texts,
                (storage, used, group, wanted),
                {"characters": str(wanted), "order": " ".join(inputs), **inputs},
            )
        )
    dataset = Dataset(storage, KEY)
    return build(dataset, stage(project), tasks, observer=observer)


def budget(
    mix: Mapping[str, float], corpus_chars: int, available: Mapping[str, int]
) -> dict[str, int]:
    """Characters to take of each group that has any; see the module for the rules."""
    shares = {group: mix.get(group, 0.0) for group, count in available.items() if count}
    plain_share = sum(share for group, share in mix.items() if group != CHAT)
    plain_here = sum(share for group, share in shares.items() if group != CHAT)
    if plain_here:
        shares = {
            group: share if group == CHAT else share * plain_share / plain_here
            for group, share in shares.items()
        }
    total_share = sum(shares.values())
    if not total_share:
        raise ValueError(
            "tokenizer_corpus: no group of tokenizer.mix has any text; "
            "look at the drops of documents/* and dialogs/chat"
        )
    shares = {group: share / total_share for group, share in shares.items() if share}
    total = min(corpus_chars, *(int(available[group] / share) for group, share in shares.items()))
    return {group: min(round(total * share), available[group]) for group, share in shares.items()}


def _front(chunks: Sequence[Chunk], characters: int) -> tuple[Chunk, ...]:
    """The first chunks that together have ``characters``."""
    used = []
    left = characters
    for chunk in chunks:
        if left <= 0:
            break
        used.append(chunk)
        left -= chunk.stats["characters"]
    return tuple(used)


def cut_texts(
    context: TaskContext, storage: Storage, chunks: Sequence[Chunk], group: str, characters: int
) -> Iterator[Part]:
    """Task function: the first ``characters`` characters of a group."""
    path = context.scratch / "texts.parquet"
    left = characters
    rows = 0
    with pq.ParquetWriter(path, TEXTS, compression="zstd") as writer:
        for chunk in chunks:
            texts: list[str] = []
            for text in _texts(storage, chunk, group):
                if left <= 0:
                    break
                texts.append(text[:left])
                left -= len(texts[-1])
            rows += len(texts)
            writer.write_table(pa.Table.from_pydict({"text": texts}, schema=TEXTS))
    yield Part(files={TABLE: path}, stats={"rows": rows, "characters": characters - left})


def _texts(storage: Storage, chunk: Chunk, group: str) -> Iterator[str]:
    column = "messages" if group == CHAT else "text"
    for record in read_table(storage, chunk, records_table(group), [column])[0].to_pylist():
        if group == CHAT:
            yield from (message["content"] for message in record)
        else:
            yield record
