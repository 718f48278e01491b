"""Normalisation and splitting as properties, with hand-checked cases."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.text import normalise, split_long

_TEXT = st.text(max_size=80) | st.text(
    st.sampled_from("аб \n\t\r\u00a0\u200b\ufeff\u00ad\u0301\u0306и.!»\u2028\x00"), max_size=40
)


@given(_TEXT)
def test_normalise_is_idempotent_and_clean(text: str) -> None:
    clean = normalise(text)
    assert normalise(clean) == clean
    assert unicodedata.is_normalized("NFC", clean)
    assert not re.search(r"[\r\ufeff\u200b-\u200f\u00ad\x00-\x08\ud800-\udfff]|\n{3}", clean)
    assert clean == clean.strip()


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("\ufeffПри\u00adвет,\r\nмир \r\n", "Привет,\nмир"),
        ("и\u0306од", "йод"),
        ("а\n\n\n\nб", "а\n\nб"),
        ("строка\u2028строка", "строка\nстрока"),
        ("\u200b \x00", ""),
    ],
)
def test_normalise_hand_checked(raw: str, clean: str) -> None:
    assert normalise(raw) == clean


@given(st.text(st.sampled_from("абв .!?\n»"), max_size=300), st.integers(5, 60))
def test_split_keeps_every_visible_character(text: str, limit: int) -> None:
    text = normalise(text)
    pieces = split_long(text, limit)
    assert all(len(piece) <= limit for piece in pieces)
    assert re.sub(r"\s", "", "".join(pieces)) == re.sub(r"\s", "", text)


def test_split_prefers_paragraphs_then_sentences() -> None:
    paragraphs = "а" * 30 + "\n\n" + "б" * 30
    assert split_long(paragraphs, 40) == ["а" * 30, "б" * 30]
    sentences = "Раз два три. Четыре пять шесть! Семь восемь."
    assert split_long(sentences, 34) == ["Раз два три. Четыре пять шесть!", "Семь восемь."]
    assert split_long("ш" * 10, 4) == ["шшшш", "шшшш", "шш"]
    assert split_long("коротко", 40) == ["коротко"]
