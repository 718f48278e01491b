"""Stage ``tokenizer``: byte-level BPE trained on the corpus (Sennrich 2016,
https://aclanthology.org/P16-1162; bytes as in GPT-2), by the ``tokenizers`` library.

One chunk with ``tokenizer.json``. Its statistics carry the round trip of the whole corpus:
``round_trip_failures`` texts whose decoded encoding isn't the text (0, or the check fails).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from pipelines.config import Project
from pipelines.datasets import Chunk, Dataset, read_table
from pipelines.engine import BuildReport, Observer, Part, Stage, Task, TaskContext, build
from pipelines.storage import Storage
from pipelines.tokenizer import corpus
from pipelines.tokenizer.encoder import SPECIAL_TOKENS, UNKNOWN, TextTokenizer

VERSION = 1
KEY = "tokenizer"
FILE = "tokenizer.json"
_ROUND_TRIP_BATCH = 1_000
# What ordinary corpora may lack: the check must not depend on what the corpus happens to have.
_HARD_TEXTS = (
    *("", " ", "\n\n\n", "\t x", "  два  пробела ", "ё́", "ﷺ", "日本語", "👩‍👩‍👧", "a\u0000b"),
    *SPECIAL_TOKENS,
    "".join(map(chr, range(0x20, 0x2000))),
)


def stage(project: Project) -> Stage:
    config = {
        "vocab_size": project.tokenizer.vocab_size,
        "min_frequency": project.tokenizer.min_frequency,
    }
    return Stage(KEY, VERSION, config)


def build_tokenizer(
    project: Project, storage: Storage, observer: Observer | None = None
) -> BuildReport:
    chunks = Dataset(storage, corpus.KEY).chunks()
    task = Task(
        KEY,
        train,
        (storage, chunks, project.tokenizer.vocab_size, project.tokenizer.min_frequency),
        {chunk.name: chunk.content_hash for chunk in chunks},
    )
    return build(Dataset(storage, KEY), stage(project), [task], observer=observer)


def load_tokenizer(storage: Storage) -> TextTokenizer:
    """The trained tokenizer of a data root."""
    return TextTokenizer.load(tokenizer_path(storage))


def tokenizer_path(storage: Storage) -> Path:
    """A local path of the trained ``tokenizer.json``."""
    dataset = Dataset(storage, KEY)
    (chunk,) = dataset.chunks()
    return dataset.path(chunk, FILE)


def train(
    context: TaskContext,
    storage: Storage,
    chunks: tuple[Chunk, ...],
    vocab_size: int,
    min_frequency: int,
) -> Iterator[Part]:
    """Task function: the corpus to ``tokenizer.json``."""

    def texts() -> Iterator[str]:
        for chunk in chunks:
            yield from read_table(storage, chunk, corpus.TABLE)["text"].to_pylist()

    tokenizer = train_bpe(texts(), vocab_size, min_frequency)
    path = context.scratch / FILE
    tokenizer.save(str(path))
    encoder = TextTokenizer.load(path)
    tokens = failures = characters = 0
    for batch in _batches(chain(_HARD_TEXTS, texts())):
        for text, ids in zip(batch, encoder.encode_batch(batch), strict=True):
            tokens += len(ids)
            characters += len(text)
            failures += encoder.decode(ids) != text
    yield Part(
        files={FILE: path},
        stats={
            "vocab_size": encoder.vocab_size,
            "corpus_tokens": tokens,
            "corpus_characters": characters,
            "round_trip_failures": failures,
        },
    )


def train_bpe(texts: Iterable[str], vocab_size: int, min_frequency: int) -> Tokenizer:
    """Train on the texts; the vocabulary is smaller where the texts don't give enough merges."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for text in texts:
        batch.append(text)
        if len(batch) == _ROUND_TRIP_BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
