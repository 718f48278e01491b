"""What is measured of one document: a pure function from text to figures."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pipelines.filters.character_tables import CYRILLIC, DIGIT, LETTER, SPECIAL, class_of
from pipelines.filters.language import identify
from pipelines.simhash64 import simhash


@dataclass(frozen=True)
class Measurement:
    """Figures of one text. Ratios of an empty text are 0."""

    characters: int
    letters: int  # Unicode category L*
    digits: int  # N*
    specials: int  # neither letter, digit nor white space
    cyrillic: int  # letters of the Cyrillic script
    letter_ratio: float  # letters / characters
    special_ratio: float  # specials / characters
    cyrillic_ratio: float  # cyrillic / letters
    stop_words: int
    stop_word: str | None
    language: str
    language_confidence: float
    simhash: int
    simhash_features: int

    @classmethod
    def of_counts(
        cls, *, characters: int, letters: int, specials: int, cyrillic: int, **others: Any
    ) -> Measurement:
        """From everything but the ratios."""
        return cls(
            characters=characters,
            letters=letters,
            specials=specials,
            cyrillic=cyrillic,
            letter_ratio=_ratio(letters, characters),
            special_ratio=_ratio(specials, characters),
            cyrillic_ratio=_ratio(cyrillic, letters),
            **others,
        )


def measure(text: str, stop_words: Sequence[str]) -> Measurement:
    """Measure a normalised text."""
    counts = Counter(map(_class_of, text))
    cyrillic, digits, specials = counts[CYRILLIC], counts[DIGIT], counts[SPECIAL]
    letters = counts[LETTER] + cyrillic
    hits = _stop_pattern(tuple(stop_words)).findall(text.lower()) if stop_words else []
    language, confidence = identify(text)
    signature, features = simhash(text)
    return Measurement.of_counts(
        characters=len(text),
        letters=letters,
        digits=digits,
        specials=specials,
        cyrillic=cyrillic,
        stop_words=len(hits),
        stop_word=hits[0] if hits else None,
        language=language,
        language_confidence=confidence,
        simhash=signature,
        simhash_features=features,
    )


_class_of = lru_cache(maxsize=1 << 16)(class_of)


@lru_cache(maxsize=8)
def _stop_pattern(stop_words: tuple[str, ...]) -> re.Pattern[str]:
    """Any of the words in lower case, where neither side goes on with a word character."""
    longest_first = sorted(map(str.lower, stop_words), key=len, reverse=True)
    alternatives = "|".join(re.escape(word) for word in longest_first)
    return re.compile(rf"(?<!\w)(?:{alternatives})(?!\w)")


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
