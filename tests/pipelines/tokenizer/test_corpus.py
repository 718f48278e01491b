"""How many characters each group gives."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.tokenizer.corpus import budget

MIX = {"web": 0.4, "articles": 0.2, "chat": 0.4}


def test_enough_of_everything() -> None:
    available = {"web": 10_000, "articles": 10_000, "chat": 10_000}
    assert budget(MIX, 1_000, available) == {"web": 400, "articles": 200, "chat": 400}


def test_a_scarce_group_shrinks_the_whole() -> None:
    available = {"web": 10_000, "articles": 10_000, "chat": 200}
    assert budget(MIX, 1_000, available) == {"web": 200, "articles": 100, "chat": 200}


def test_a_group_without_text_leaves_plain_and_chat_as_they_are() -> None:
    available = {"web": 10_000, "articles": 0, "chat": 10_000}
    assert budget(MIX, 1_000, available) == {"web": 600, "chat": 400}


def test_without_chat_plain_text_gives_all() -> None:
    available = {"web": 10_000, "articles": 10_000}
    assert budget(MIX, 900, available) == {"web": 600, "articles": 300}


def test_no_text_at_all_is_a_clear_error() -> None:
    with pytest.raises(ValueError, match="no group of tokenizer.mix has any text"):
        budget(MIX, 1_000, {"web": 0, "chat": 0})


@given(
    st.dictionaries(st.sampled_from(sorted(MIX)), st.integers(1, 100_000), min_size=1),
    st.integers(1_000, 1_000_000),
)
def test_never_more_than_there_is_and_always_in_proportion(
    available: dict[str, int], corpus_chars: int
) -> None:
    taken = budget(MIX, corpus_chars, available)
    assert all(0 <= count <= available[group] for group, count in taken.items())
    total = sum(taken.values())
    assert total <= corpus_chars + len(taken)
    plain = sum(count for group, count in taken.items() if group != "chat")
    if "chat" in taken and len(taken) > 1:
        assert math.isclose(plain, 1.5 * taken["chat"], abs_tol=4)
