"""Simhash: the values of the ``simhash`` package, and brute force where the package fails."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simhash import Simhash

from pipelines.simhash64 import simhash

_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=80)


def brute_force(text: str) -> int:
    """Bit by bit in Python integers, from the package's definition."""
    content = "".join(re.findall(r"[\w\u4e00-\u9fcc]+", text.lower()))
    windows = [content[i : i + 4] for i in range(max(len(content) - 3, 1))]
    sums = [0] * 64
    for window in windows:
        value = int.from_bytes(hashlib.md5(window.encode()).digest()[-8:], "big")
        for bit in range(64):
            sums[bit] += value >> bit & 1
    return sum(1 << bit for bit in range(64) if 2 * sums[bit] > len(windows))


def test_package_on_prose(prose: list[str]) -> None:
    for text in prose:
        assert simhash(text)[0] == Simhash(text).value


@given(_TEXT)
def test_package_on_any_text(text: str) -> None:
    assert simhash(text)[0] == Simhash(text).value == brute_force(text)


def test_feature_more_than_255_times() -> None:
    text = "ха" * 400 + " и смеялись до утра"
    with pytest.raises(OverflowError):
        _ = Simhash(text).value
    assert simhash(text)[0] == brute_force(text)


def test_features_are_counted() -> None:
    assert simhash("")[1] == 0
    assert simhash("?!… —")[1] == 0
    assert simhash("дом")[1] == 1
    assert simhash("домик!")[1] == 2
