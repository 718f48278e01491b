"""Read token shards: one group's shards of one split as a single memory-mapped sequence.

A shard is a raw file of little-endian ``uint16`` token ids. Chat shards have a mask file of the
same length (``uint8``, 1 where a token is supervised in SFT). Beside each shard lies an index
(Parquet), one row a document, with the columns of :data:`INDEX_SCHEMA`.

Everything that reads tokens (the training loader, BPC, the tools) goes through
:class:`TokenStream`; nothing is ever loaded whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TOKEN_DTYPE = np.dtype("<u2")
MASK_DTYPE = np.dtype("u1")

INDEX_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),  # first token, counted within the shard
        pa.field("tokens", pa.int32(), nullable=False),  # the closing <|endoftext|> included
        pa.field("characters", pa.int64(), nullable=False),  # of the text, without markers
        pa.field("answer_characters", pa.int64(), nullable=False),  # of the supervised text
    ]
)


class ShardError(ValueError):
    """A shard's files disagree with each other or with what the manifest says of them."""


@dataclass(frozen=True)
class ShardFiles:
    """The files of one shard; ``mask`` is None for plain text, where every token counts."""

    tokens: Path
    index: Path
    mask: Path | None = None


@dataclass(frozen=True)
class DocumentSpan:
    """One document in a stream: ``start`` is counted over the whole stream."""

    id: str
    start: int
    tokens: int
    characters: int
    answer_characters: int


class TokenStream:
    """Shards laid end to end: positions ``0 … len(stream) - 1`` over all of them.

    Raises :class:`ShardError` at construction when a token file has an odd size or a mask has
    another length than its tokens.
    """

    def __init__(self, shards: Sequence[ShardFiles]) -> None:
        self.shards = tuple(shards)
        self._tokens = [_map(s.tokens, TOKEN_DTYPE) for s in self.shards]
        self._masks = [None if s.mask is None else _map(s.mask, MASK_DTYPE) for s in self.shards]
        for shard, tokens, mask in zip(self.shards, self._tokens, self._masks, strict=True):
            if mask is not None and len(mask) != len(tokens):
                raise ShardError(
                    f"{shard.mask}: {len(mask)} mask values for the {len(tokens)} tokens of "
                    f"{shard.tokens}; rebuild the shards"
                )
        # starts[i] is the stream position of shard i's first token; the last entry is the length.
        self._starts = [0]
        for tokens in self._tokens:
            self._starts.append(self._starts[-1] + len(tokens))

    def __len__(self) -> int:
        return self._starts[-1]

    @property
    def has_mask(self) -> bool:
        """Whether the shards carry masks (chat); without, every token is supervised."""
        return any(mask is not None for mask in self._masks)

    def tokens(self, start: int, length: int) -> np.ndarray:
        """Token ids ``(length,) uint16`` from ``start``; IndexError beyond the stream's end."""
        out = np.empty(length, TOKEN_DTYPE)
        for shard, source, target in self._spans(start, length):
            out[target] = self._tokens[shard][source]
        return out

    def mask(self, start: int, length: int) -> np.ndarray:
        """Mask values ``(length,) uint8`` from ``start``; all ones where shards have no mask."""
        out = np.ones(length, MASK_DTYPE)
        for shard, source, target in self._spans(start, length):
            mask = self._masks[shard]
            if mask is not None:
                out[target] = mask[source]
        return out

    def documents(self) -> Iterator[DocumentSpan]:
        """The documents in stream order, one shard's index in memory at a time."""
        for shard, offset in zip(self.shards, self._starts[:-1], strict=True):
            for row in pq.read_table(shard.index).to_pylist():
                row["start"] += offset
                yield DocumentSpan(**row)

    def documents_from_front(self, max_characters: int | None) -> Iterator[DocumentSpan]:
        """Whole documents from the front until ``max_characters`` are reached (None: all)."""
        characters = 0
        for document in self.documents():
            if max_characters is not None and characters >= max_characters:
                return
            characters += document.characters
            yield document

    def _spans(self, start: int, length: int) -> Iterator[tuple[int, slice, slice]]:
        """(shard, slice within it, slice of the result) for ``length`` positions at ``start``."""
        if start < 0 or length < 0 or start + length > len(self):
            raise IndexError(f"positions {start} to {start + length} of a stream of {len(self)}")
        done = 0
        while done < length:
            shard = bisect_right(self._starts, start + done) - 1
            first = start + done - self._starts[shard]
            n = min(length - done, len(self._tokens[shard]) - first)
            yield shard, slice(first, first + n), slice(done, done + n)
            done += n


def _map(path: Path, dtype: np.dtype) -> np.ndarray:
    size = path.stat().st_size
    if size % dtype.itemsize:
        raise ShardError(f"{path}: {size} bytes are no whole number of {dtype} values")
    if size == 0:  # an empty file can't be memory-mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r")
