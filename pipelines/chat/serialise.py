"""A dialog as token ids and mask: the one place that knows the serialised form.

    <|user|>Привет!<|assistant|>Привет! Чем помочь?<|endoftext|>

Nothing is added between the parts. Every answer ends with its own ``<|endoftext|>``, so that the
model learns to stop after each, and ``<|user|>`` of the next turn follows. The mask is 1 on the
tokens of the answers and on the ``<|endoftext|>`` that ends each, 0 on all else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from pipelines.shards.reader import MASK_DTYPE, TOKEN_DTYPE

Messages = Sequence[tuple[str, str]]  # (role, content)


class Encoder(Protocol):
    """What serialisation needs of a tokenizer (``pipelines.tokenizer.TextTokenizer``)."""

    user: int
    assistant: int
    end_of_text: int

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]: ...


def encode_dialogs(
    tokenizer: Encoder, dialogs: Iterable[Messages]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each dialog its ids ``(n,) uint16`` and mask ``(n,) uint8``."""
    dialogs = list(dialogs)
    contents = [content for messages in dialogs for _, content in messages]
    encoded = iter(tokenizer.encode_batch(contents))
    result = []
    for messages in dialogs:
        ids: list[int] = []
        mask: list[int] = []
        for role, _ in messages:
            content = next(encoded)
            if role == "assistant":
                ids += [tokenizer.assistant, *content, tokenizer.end_of_text]
                mask += [0, *[1] * len(content), 1]
            else:
                ids += [tokenizer.user, *content]
                mask += [0] * (1 + len(content))
        result.append((np.array(ids, TOKEN_DTYPE), np.array(mask, MASK_DTYPE)))
    return result


def encode_prompt(tokenizer: Encoder, messages: Messages) -> list[int]:
    """Ids of a dialog so far, up to and with the ``<|assistant|>`` that the model goes on from.

    ``messages`` ends with the user's.
    """
    if not messages or messages[-1][0] != "user":
        raise ValueError("a prompt ends with a message of the user")
    *answered, question = messages
    ids: list[int] = []
    if answered:
        ids += encode_dialogs(tokenizer, [answered])[0][0].tolist()
    (content,) = tokenizer.encode_batch([question[1]])
    return [*ids, tokenizer.user, *content, tokenizer.assistant]
