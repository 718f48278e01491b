"""General-purpose compressors as a baseline for bits per character.

What ``xz -9`` and ``zstd -19`` need for the held-out text, in bits, over its characters: the same
documents and the same characters that a model's BPC is measured on. They see no training text, so
they are a floor that a trained model must beat, not a rival.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable
from dataclasses import dataclass

import zstandard

from pipelines.shards.reader import TokenStream
from pipelines.tokenizer import TextTokenizer

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "xz -9": lambda content: lzma.compress(content, preset=9),
    "zstd -19": lambda content: zstandard.ZstdCompressor(level=19).compress(content),
}


@dataclass(frozen=True)
class Compressed:
    bits: int
    characters: int
    documents: int

    @property
    def bits_per_character(self) -> float:
        return self.bits / self.characters


def compress(
    compressor: str, stream: TokenStream, tokenizer: TextTokenizer, max_characters: int
) -> Compressed:
    """Compress the held-out documents as one file, a line end after each."""
    special = set(tokenizer.special_ids)
    texts = []
    characters = 0
    for document in stream.documents_from_front(max_characters):
        ids = stream.tokens(document.start, document.tokens).tolist()
        texts.append(tokenizer.decode([id for id in ids if id not in special]))
        characters += document.characters
    content = "".join(f"{text}\n" for text in texts).encode()
    return Compressed(8 * len(COMPRESSORS[compressor](content)), characters, len(texts))
