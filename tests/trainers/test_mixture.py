"""Which window is which sample: proportions and coverage against brute force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.shards.reader import TokenStream
from trainers.loader import EmptyGroup, TokenLoader
from trainers.mixture import Mixture, StreamTooShort, block_counts, window_starts
from trainers.options import TrainingOptions

WEIGHTS = {"web": 0.68, "chat": 0.27, "articles": 0.05}


def test_a_block_has_exact_counts() -> None:
    assert block_counts(WEIGHTS) == {"web": 680, "chat": 270, "articles": 50}
    assert sum(block_counts({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}).values()) == 1000
    group, _ = Mixture(WEIGHTS, seed=5).locate(np.arange(3_000, 4_000))
    assert np.bincount(group).tolist() == [50, 270, 680]


def test_samples_of_a_group_are_counted_without_a_gap() -> None:
    mixture = Mixture(WEIGHTS, seed=5)
    group, k = mixture.locate(np.arange(2_500))
    for index, name in enumerate(mixture.groups):
        assert k[group == index].tolist() == list(range(mixture.samples_before(2_500)[name]))


@settings(max_examples=30, deadline=None)
@given(st.integers(17, 400), st.integers(0, 5))
def test_an_epoch_has_each_window_once(tokens: int, seed: int) -> None:
    context = 16
    windows = tokens // context
    for epoch in range(3):
        samples = np.arange(epoch * windows, (epoch + 1) * windows)
        starts = window_starts(
            samples, group="web", stream_tokens=tokens, context=context, seed=seed
        )
        targets = [(start + 1 + i) % tokens for start in starts.tolist() for i in range(context)]
        assert max(Counter(targets).values()) == 1
        assert len(set(targets)) == windows * context


def test_batches_are_a_function_of_the_step(
    streams: dict[str, TokenStream], options: Callable[..., TrainingOptions]
) -> None:
    loader, again = (TokenLoader(streams, options(), 16) for _ in range(2))
    late = loader.batch(7)
    for step in range(8):
        batch = again.batch(step)
    assert np.array_equal(late.tokens, batch.tokens)
    assert np.array_equal(late.tokens[:, 1:], late.targets[:, :-1])


def test_mask_belongs_to_the_target(
    streams: dict[str, TokenStream], options: Callable[..., TrainingOptions]
) -> None:
    chat = {"chat": streams["chat"]}
    loader = TokenLoader(chat, options(mixture={"chat": 1.0}), 16)
    stream = streams["chat"]
    tokens, mask = stream.tokens(0, len(stream)), stream.mask(0, len(stream))
    batch = loader.windows(np.arange(12))
    starts = window_starts(
        np.arange(12), group="chat", stream_tokens=len(stream), context=16, seed=3
    )
    for row, start in enumerate(starts.tolist()):
        positions = (start + 1 + np.arange(16)) % len(stream)
        assert np.array_equal(batch.targets[row], tokens[positions])
        assert np.array_equal(batch.mask[row], mask[positions])


def test_a_group_without_tokens_is_a_clear_error(
    streams: dict[str, TokenStream],
    make_stream: Callable[..., TokenStream],
    options: Callable[..., TrainingOptions],
) -> None:
    with pytest.raises(EmptyGroup, match="'chat' has 40.0% of the mixture"):
        TokenLoader({"web": streams["web"]}, options(), 16)
    with pytest.raises(StreamTooShort, match="fewer than one window of 17"):
        TokenLoader({**streams, "chat": make_stream([9], seed=7)}, options(), 16)
