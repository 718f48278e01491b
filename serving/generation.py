"""Text from a checkpoint: answers in the dialog format, and plain continuations.

A checkpoint's folder has its own ``tokenizer.json``: token ids of one tokenizer mean nothing in
another's vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from model.sampling import SamplingOptions, generate
from model.transformer import Transformer
from model.weights import load_model
from pipelines.chat.serialise import Messages, encode_prompt
from pipelines.text import normalise
from pipelines.tokenizer import TextTokenizer


@dataclass(frozen=True)
class Generation:
    """``tokens`` new tokens; ``finished``: the model ended the text itself."""

    text: str
    tokens: int
    finished: bool


class TextGenerator:
    """A model with its tokenizer, ready to write."""

    def __init__(self, model: Transformer, tokenizer: TextTokenizer) -> None:
        if tokenizer.vocab_size > model.config.vocab_size:
            raise ValueError(
                f"the tokenizer has {tokenizer.vocab_size} tokens, the model "
                f"{model.config.vocab_size}: they aren't of one checkpoint"
            )
        self.model = model
        self.tokenizer = tokenizer
        # An answer ends at <|endoftext|>; a model that goes on as the user ends it too.
        self._stop = (tokenizer.end_of_text, tokenizer.user)
        others = set(tokenizer.special_ids) - set(self._stop)
        # Rows of the embedding that no token has are never trained: they may not be drawn.
        self._forbidden = (*sorted(others), *range(tokenizer.vocab_size, model.config.vocab_size))

    @classmethod
    def load(cls, weights: Path, tokenizer: Path, device: str = "cpu") -> TextGenerator:
        """From a checkpoint's files; raises the errors of the model's and tokenizer's loaders."""
        return cls(load_model(weights, device), TextTokenizer.load(tokenizer))

    def answer(self, messages: Messages, options: SamplingOptions) -> Generation:
        """The assistant's next message in a dialog that ends with the user's.

        The oldest turns are left out where the dialog doesn't fit into the context.
        """
        prompt = self._fitting(messages, options.max_new_tokens)
        return self._collect(prompt, options)

    def continue_text(self, text: str, options: SamplingOptions) -> Generation:
        """What the model writes after ``text``, as a document of its own."""
        prompt = [self.tokenizer.end_of_text, *self.tokenizer.encode(normalise(text))]
        return self._collect(prompt[-self.model.config.context_length :], options)

    def stream(self, prompt: Sequence[int], options: SamplingOptions) -> Iterator[int]:
        """The new token ids, without the one that ends them."""
        return generate(self.model, list(prompt), options, self._stop, self._forbidden)

    def _collect(self, prompt: Sequence[int], options: SamplingOptions) -> Generation:
        ids = list(self.stream(prompt, options))
        finished = len(ids) < options.max_new_tokens
        return Generation(self.tokenizer.decode(ids), len(ids), finished)

    def _fitting(self, messages: Messages, new_tokens: int) -> list[int]:
        room = max(self.model.config.context_length - new_tokens, 1)
        messages = [(role, normalise(content)) for role, content in messages]
        prompt = encode_prompt(self.tokenizer, messages)
        while len(prompt) > room and len(messages) > 2:
            messages = messages[2:]
            prompt = encode_prompt(self.tokenizer, messages)
        return prompt
