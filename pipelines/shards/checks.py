"""What must hold of written shards, found out from their files alone."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow.parquet as pq

from pipelines.chat.serialise import Encoder
from pipelines.datasets import Chunk, verified_path
from pipelines.shards.reader import MASK_DTYPE, TOKEN_DTYPE
from pipelines.shards.split import SPLITS
from pipelines.storage import Storage


def index_problems(storage: Storage, chunks: Iterable[Chunk]) -> list[str]:
    """Where an index doesn't cover its token file exactly, document after document."""
    problems = []
    for chunk in chunks:
        for split in SPLITS:
            path = verified_path(storage, chunk, f"{split}.index.parquet")
            index = pq.read_table(path, columns=["start", "tokens"])
            starts, lengths = (column.to_numpy() for column in index.columns)
            size = chunk.files[f"{split}.tokens"].bytes // TOKEN_DTYPE.itemsize
            expected = np.concatenate([[0], np.cumsum(lengths)])
            if not np.array_equal(starts, expected[:-1]) or expected[-1] != size:
                problems.append(f"{chunk.name}, {split}: the index doesn't cover {size} tokens")
    return problems


def mask_errors(storage: Storage, chunks: Iterable[Chunk], tokenizer: Encoder) -> int:
    """Tokens of chat shards whose mask isn't what the markers around them say.

    A token is supervised when the last marker before it is ``<|assistant|>`` (``<|user|>`` and
    ``<|endoftext|>`` end that), and it is no marker itself but the closing ``<|endoftext|>``.
    """
    wrong = 0
    for chunk in chunks:
        for split in SPLITS:
            tokens = np.fromfile(verified_path(storage, chunk, f"{split}.tokens"), TOKEN_DTYPE)
            mask = np.fromfile(verified_path(storage, chunk, f"{split}.mask"), MASK_DTYPE)
            if len(tokens) != len(mask):
                wrong += abs(len(tokens) - len(mask))
                continue
            wrong += int((mask != expected_mask(tokens, tokenizer)).sum())
    return wrong


def expected_mask(tokens: np.ndarray, tokenizer: Encoder) -> np.ndarray:
    """The mask ``(n,) uint8`` that the markers among ``tokens (n,)`` call for."""
    markers = np.isin(tokens, [tokenizer.user, tokenizer.assistant, tokenizer.end_of_text])
    # For each position the last marker strictly before it, by a running maximum of positions.
    positions = np.where(markers, np.arange(1, len(tokens) + 1), 0)
    before = np.concatenate([[0], np.maximum.accumulate(positions)[:-1]]) if len(tokens) else []
    last = np.concatenate([[tokenizer.end_of_text], tokens])[np.asarray(before, int)]
    inside = last == tokenizer.assistant
    opening = markers & (tokens != tokenizer.end_of_text)
    return (inside & ~opening).astype(MASK_DTYPE)
