"""The compiled measurements equal the definition, whatever the text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.filters import kernels
from pipelines.filters.measure import Measurement, measure

WORDS = ("вакансия", "прайс-лист", "прайс", "SEO", "скачать бесплатно", "(реклама)", "ещё")
_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=60) | st.text(
    st.sampled_from("ваканисяпрй-лт SEOscо().,Ёёщ\nİΣσßẞ😀0٣"), max_size=60
)


def assert_equal(got: Measurement, expected: Measurement) -> None:
    one, other = vars(got).copy(), vars(expected).copy()
    assert one.pop("language_confidence") == pytest.approx(
        other.pop("language_confidence"), abs=1e-9
    )
    assert one == other


@settings(max_examples=300)
@given(st.lists(_TEXT, max_size=4))
def test_any_text(texts: list[str]) -> None:
    for got, text in zip(kernels.measure_texts(texts, WORDS), texts, strict=True):
        assert_equal(got, measure(text, WORDS))


def test_prose(prose: list[str]) -> None:
    texts = [*prose, "\n\n".join(prose)]
    for got, text in zip(kernels.measure_texts(texts, WORDS), texts, strict=True):
        assert_equal(got, measure(text, WORDS))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "я",
            "дом",
            "дома",
            "?!…",
            "\u0301",
            "İstanbul",
            "ΟΔΥΣΣΕΥΣ",
            "ДΣ",
            "ǅ",
            "ﬀ",
            "𝔘𝔫𝔦",
            "😀" * 9,
        ),
        "ха" * 1_000,
        "а😀бв" * 300,
        "Прайс-лист: прайс, ПРАЙС-ЛИСТА нет; ещё seo-SEO (реклама)",
        "日本語の文章をここに" * 3,
        "e\u0301" * 50,
        "".join(map(chr, range(0x20, 0xD800))),
        "".join(map(chr, range(0x10000, 0x12000))),
    ],
)
def test_hard_texts(text: str) -> None:
    (got,) = kernels.measure_texts([text], WORDS)
    assert_equal(got, measure(text, WORDS))


def test_no_texts_and_no_words() -> None:
    assert kernels.measure_texts([], ()) == []
    (got,) = kernels.measure_texts(["Вакансия"], ())
    assert (got.stop_words, got.stop_word) == (0, None)


def test_full_table_of_grams_forgets_and_stays_right(
    monkeypatch: pytest.MonkeyPatch, prose: list[str]
) -> None:
    table = np.zeros((64, 2), np.uint64)
    monkeypatch.setattr(kernels, "_grams", lambda: table)
    for got, text in zip(kernels.measure_texts(prose, ()), prose, strict=True):
        assert got.simhash == measure(text, ()).simhash
    assert (table[:, 0] != 0).all()
