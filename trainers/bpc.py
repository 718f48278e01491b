"""Bits per character (BPC): how many bits the model needs to write the validation text.

Why not perplexity, or the loss? Both are *per token*, and a token is whatever the tokenizer made
of the text: with a larger vocabulary each token carries more text, so its loss is higher for an
equally good model. Two models can only be compared by what they do to the same *text*. So the
whole cost of a text, in bits, is divided by the number of its characters, which no tokenizer
changes:

    BPC = sum over all tokens of -log2 p(token | the tokens before it) / characters

For this to be an honest code length (one could really compress the text to that many bits, with
an arithmetic coder) each point below matters; leaving any out is a known fault of such figures:

* bits, not nats: divided by ln 2;
* the first token is predicted too, from one start token, ``<|endoftext|>``, and nothing else;
* the closing ``<|endoftext|>`` is predicted: a reader must know where a document ends;
* every token is predicted exactly once, and the characters are those of exactly the documents
  whose tokens were counted: documents are taken whole, from the front;
* characters are counted in the source text (they stand in the shards' index), as tokens of a
  byte-level tokenizer may be pieces of a character that decode to nothing.

A document longer than the context is scored in overlapping windows: the first scores all of its
positions, each later one only its last ``stride``, so that every token is scored once and has at
least ``context - stride`` tokens before it. A smaller stride gives more context and costs more;
the figure is an upper bound that falls with it.

On streams with masks the same is given for the supervised tokens alone: the bits of the answers,
each given its question, over the characters of the answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from pipelines.shards.reader import DocumentSpan, TokenStream


class NothingToEvaluate(ValueError):
    """The stream has no characters, so that bits per character have no value."""


@dataclass(frozen=True)
class BpcResult:
    """Totals over the scored documents; the answer figures are None on streams without masks,
    and the answers' BPC also where no answer has a character."""

    bits: float
    characters: int
    tokens: int
    documents: int
    bits_per_character: float
    answer_bits: float | None
    answer_characters: int | None
    answer_bits_per_character: float | None


@dataclass(frozen=True)
class Window:
    """Positions ``first … last - 1`` of a document's predictions are the model's input; those
    from ``scored`` on count. Position 0 has the start token as input and predicts token 0."""

    document: DocumentSpan
    first: int
    scored: int
    last: int


def bits_per_character(
    model: nn.Module,
    stream: TokenStream,
    *,
    start_token: int,
    max_characters: int | None = None,
    stride: int | None = None,
    batch_size: int = 16,
    on_progress: Callable[[int, int], None] | None = None,
) -> BpcResult:
    """BPC of ``model`` on the documents of ``stream``, from the front until ``max_characters``.

    ``model(tokens (B, T)) -> logits (B, T, V)``, with ``model.config.context_length``; it is
    evaluated where its parameters are and left in the mode it was in. ``stride`` is 1 to the
    context length (default: half). ``on_progress`` gets (tokens scored, tokens in all). The
    result doesn't depend on ``batch_size`` beyond rounding.
    """
    context = model.config.context_length
    stride = max(1, context // 2) if stride is None else stride
    if not 1 <= stride <= context:
        raise ValueError(f"stride = {stride} must be 1 to the context length {context}")
    if batch_size < 1:
        raise ValueError(f"batch_size = {batch_size} must be at least 1")
    documents = list(stream.documents_from_front(max_characters))
    bits, answer_bits = _score(
        model, stream, documents, start_token, stride, batch_size, on_progress
    )
    characters = sum(document.characters for document in documents)
    if characters == 0:
        raise NothingToEvaluate(
            f"{len(documents)} documents with 0 characters: bits per character have no value; "
            "the validation split is empty, so add data or raise its share"
        )
    answer_characters = sum(document.answer_characters for document in documents)
    has_answers = stream.has_mask
    return BpcResult(
        bits=bits,
        characters=characters,
        tokens=sum(document.tokens for document in documents),
        documents=len(documents),
        bits_per_character=bits / characters,
        answer_bits=answer_bits if has_answers else None,
        answer_characters=answer_characters if has_answers else None,
        answer_bits_per_character=(
            answer_bits / answer_characters if has_answers and answer_characters else None
        ),
    )


def document_windows(document: DocumentSpan, context: int, stride: int) -> Iterator[Window]:
    """The windows that score each of a document's tokens once."""
    scored = 0
    last = min(context, document.tokens)
    while scored < document.tokens:
        yield Window(document, max(0, last - context), scored, last)
        scored, last = last, min(last + stride, document.tokens)


@torch.inference_mode()
def _score(
    model: nn.Module,
    stream: TokenStream,
    documents: Sequence[DocumentSpan],
    start_token: int,
    stride: int,
    batch_size: int,
    on_progress: Callable[[int, int], None] | None,
) -> tuple[float, float]:
    """(bits of all tokens, bits of the tokens whose mask is 1)."""
    context = model.config.context_length
    device = next(model.parameters()).device
    total = sum(document.tokens for document in documents)
    # The longest first: windows of one batch are of nearly one length, so there is little
    # padding, and if memory is short, it is so in the first batch.
    ordered = sorted(documents, key=lambda document: (-document.tokens, document.start))
    windows = (w for document in ordered for w in document_windows(document, context, stride))
    nats, answer_nats, done = 0.0, 0.0, 0
    was_training = model.training
    model.eval()
    try:
        while batch := tuple(islice(windows, batch_size)):
            inputs, targets, scored, answers = _arrays(stream, batch, start_token)
            logits = model(torch.from_numpy(inputs).to(device))
            losses = _cross_entropy(logits, torch.from_numpy(targets).to(device))
            nats += float((losses * scored).sum())
            answer_nats += float((losses * answers).sum())
            done += int(scored.sum())
            if on_progress:
                on_progress(done, total)
    finally:
        model.train(was_training)
    return nats / math.log(2), answer_nats / math.log(2)


def _cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> np.ndarray:
    """(B, T) nats in float64, from logits (B, T, V) and targets (B, T)."""
    losses = functional.cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), reduction="none"
    )
    return losses.view(targets.shape).double().cpu().numpy()


def _arrays(
    stream: TokenStream, windows: Sequence[Window], start_token: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(inputs int64, targets int64, counts float64, counts as an answer float64), each (B, T).

    Shorter windows are padded on the right, where a causal model's earlier positions don't look.
    """
    shape = len(windows), max(window.last - window.first for window in windows)
    inputs = np.full(shape, start_token, np.int64)
    targets = np.zeros(shape, np.int64)
    scored = np.zeros(shape, np.float64)
    answers = np.zeros(shape, np.float64)
    for row, window in enumerate(windows):
        length = window.last - window.first
        start = window.document.start + window.first
        targets[row, :length] = stream.tokens(start, length)
        inputs[row, 1:length] = targets[row, : length - 1]
        if window.first > 0:  # at 0 the start token stands there already
            inputs[row, 0] = stream.tokens(start - 1, 1)[0]
        counts = slice(window.scored - window.first, length)
        scored[row, counts] = 1
        answers[row, counts] = stream.mask(start, length)[counts]
    return inputs, targets, scored, answers
