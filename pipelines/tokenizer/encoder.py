"""Texts to token ids and back.

``decode(encode(text)) == text`` for every text. A text that contains the spelling of a special
token is encoded as the characters that it is: only :attr:`TextTokenizer.user` and its like stand
for the special tokens themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

UNKNOWN = "[UNK]"
END_OF_TEXT = "<|endoftext|>"
USER = "<|user|>"
ASSISTANT = "<|assistant|>"
PADDING = "<|pad|>"
SPECIAL_TOKENS = (UNKNOWN, END_OF_TEXT, USER, ASSISTANT, PADDING)


class TokenizerError(ValueError):
    """A tokenizer file that can't be used here."""


class TextTokenizer:
    """A byte-level BPE tokenizer with this product's special tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        missing = [token for token in SPECIAL_TOKENS if tokenizer.token_to_id(token) is None]
        if missing:
            raise TokenizerError(f"the tokenizer lacks the special tokens {', '.join(missing)}")
        # Encode the spelling of a special token in a text as ordinary characters.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self.end_of_text: int = tokenizer.token_to_id(END_OF_TEXT)
        self.user: int = tokenizer.token_to_id(USER)
        self.assistant: int = tokenizer.token_to_id(ASSISTANT)
        self.padding: int = tokenizer.token_to_id(PADDING)

    @classmethod
    def load(cls, path: Path) -> TextTokenizer:
        """From a ``tokenizer.json``; TokenizerError where it isn't one."""
        try:
            return cls(Tokenizer.from_file(str(path)))
        except TokenizerError:
            raise
        except Exception as error:  # the library raises plain Exception
            raise TokenizerError(f"{path} is no usable tokenizer.json: {error}") from error

    @property
    def vocab_size(self) -> int:
        """Tokens with the special ones; ids are 0 to ``vocab_size - 1``."""
        return self._tokenizer.get_vocab_size(with_added_tokens=True)

    @property
    def special_ids(self) -> tuple[int, ...]:
        return tuple(self._tokenizer.token_to_id(token) for token in SPECIAL_TOKENS)

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids; special tokens are spelled out."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)
