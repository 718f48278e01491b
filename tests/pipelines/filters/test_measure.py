"""Measurements against independent references."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langid.langid import LanguageIdentifier, model

from pipelines.filters.language import identify
from pipelines.filters.measure import measure

_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)


@given(_TEXT)
def test_character_classes_by_brute_force(text: str) -> None:
    kinds = [unicodedata.category(character)[0] for character in text]
    letters, digits = kinds.count("L"), kinds.count("N")
    spaces = sum(c.isspace() for c, kind in zip(text, kinds, strict=True) if kind not in "LN")
    cyrillic = sum(
        kind == "L" and "CYRILLIC" in unicodedata.name(c, "")
        for c, kind in zip(text, kinds, strict=True)
    )
    measured = measure(text, ())
    assert (measured.characters, measured.letters, measured.digits) == (len(text), letters, digits)
    assert measured.specials == len(text) - letters - digits - spaces
    assert measured.cyrillic == cyrillic
    assert measured.letter_ratio == (letters / len(text) if text else 0)
    assert measured.cyrillic_ratio == (cyrillic / letters if letters else 0)


def test_language_is_langids_normalised_probability(prose: list[str]) -> None:
    reference = LanguageIdentifier.from_modelstring(model, norm_probs=True)
    plain = LanguageIdentifier.from_modelstring(model, norm_probs=False)
    for text in [*prose[:20], "Hello world, this is English.", "", "12345", "Ой"]:
        label, probability = identify(text)
        assert (label, probability) == pytest.approx(reference.classify(text))
        assert 0 <= probability <= 1
    # The package's default is a log-probability, far from anything that 0.6 could be held against.
    assert plain.classify(prose[0])[1] < -100


@pytest.mark.parametrize(
    ("text", "hits", "first"),
    [
        ("Вакансия открыта", 1, "вакансия"),
        ("ВАКАНСИЯ, казино; казино", 3, "вакансия"),
        ("вакансиями не торгуем", 0, None),
        ("мегаказино", 0, None),
        ("прайс-лист", 1, "прайс-лист"),
        ("скачать бесплатно!", 1, "скачать бесплатно"),
    ],
)
def test_stop_words_are_whole_words(text: str, hits: int, first: str | None) -> None:
    words = ("вакансия", "казино", "прайс-лист", "скачать бесплатно")
    measured = measure(text, words)
    assert (measured.stop_words, measured.stop_word) == (hits, first)
