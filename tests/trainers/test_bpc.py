"""Bits per character against brute force, a uniform model, and hand-counted documents."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from model.config import ModelConfig
from model.transformer import Transformer
from pipelines.shards.reader import TokenStream
from trainers.bpc import NothingToEvaluate, bits_per_character

END = 1


class Uniform(nn.Module):
    """Gives each of 64 tokens the same probability."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return torch.zeros(*tokens.shape, self.config.vocab_size)


def test_uniform_model(config: ModelConfig, make_stream: Callable[..., TokenStream]) -> None:
    """log2(64) = 6 bits for each token, the closing ones too, over the characters."""
    stream = make_stream([5, 40, 17])
    result = bits_per_character(Uniform(config), stream, start_token=END)
    assert (result.tokens, result.characters, result.documents) == (62, 3 * 59, 3)
    assert result.bits == pytest.approx(6 * 62)
    assert result.bits_per_character == pytest.approx(6 * 62 / (3 * 59))
    assert result.answer_bits is None


@pytest.mark.parametrize("stride", [1, 5, 8, 16])
def test_brute_force(
    config: ModelConfig, make_stream: Callable[..., TokenStream], stride: int
) -> None:
    """Token by token: one forward over exactly the context that the window rule grants it."""
    torch.manual_seed(0)
    model = Transformer(config, seed=4).eval()
    stream = make_stream([7, 16, 17, 45])
    bits, context = 0.0, config.context_length
    for document in stream.documents():
        inputs = [END, *stream.tokens(document.start, document.tokens).tolist()]
        for position in range(document.tokens):
            # The window that scores this position: the first, or a later one of `stride` more.
            last = context
            while last <= position:
                last = min(last + stride, document.tokens)
            first = max(0, min(last, document.tokens) - context)
            with torch.inference_mode():
                logits = model(torch.tensor([inputs[first : position + 1]]))[0, -1]
            log_probability = logits.double().log_softmax(0)[inputs[position + 1]]
            bits -= float(log_probability) / math.log(2)
    result = bits_per_character(model, stream, start_token=END, stride=stride, batch_size=3)
    assert result.bits == pytest.approx(bits, rel=1e-5)


def test_batch_size_plays_no_role(
    config: ModelConfig, make_stream: Callable[..., TokenStream]
) -> None:
    model = Transformer(config, seed=4)
    stream = make_stream([7, 16, 17, 45], masked=True)
    results = [
        bits_per_character(model, stream, start_token=END, batch_size=size) for size in (1, 2, 16)
    ]
    assert results[1].bits == pytest.approx(results[0].bits, rel=1e-5)
    assert results[2].answer_bits == pytest.approx(results[0].answer_bits, rel=1e-5)


def test_answers_alone(config: ModelConfig, make_stream: Callable[..., TokenStream]) -> None:
    stream = make_stream([11, 30], masked=True)
    result = bits_per_character(Uniform(config), stream, start_token=END)
    supervised = int(stream.mask(0, len(stream)).sum())
    assert supervised == 6 + 16
    assert result.answer_bits == pytest.approx(6 * supervised)
    assert result.answer_characters == 3 * (5 + 15)
    assert result.answer_bits_per_character == pytest.approx(6 * supervised / 60)


def test_whole_documents_from_the_front(
    config: ModelConfig, make_stream: Callable[..., TokenStream]
) -> None:
    stream = make_stream([5, 40, 17])
    result = bits_per_character(Uniform(config), stream, start_token=END, max_characters=13)
    assert (result.documents, result.characters) == (2, 12 + 117)


def test_nothing_to_evaluate(config: ModelConfig) -> None:
    with pytest.raises(NothingToEvaluate, match="validation split is empty"):
        bits_per_character(Uniform(config), TokenStream([]), start_token=END)


def test_mode_is_left_as_it_was(
    config: ModelConfig, make_stream: Callable[..., TokenStream]
) -> None:
    model = Transformer(config, seed=4).train()
    bits_per_character(model, make_stream([9]), start_token=END)
    assert model.training
