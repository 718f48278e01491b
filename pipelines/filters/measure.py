"""What is measured of one document: a pure function from text to figures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from unicodedata import category, name

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


def measure(text: str, stop_words: Sequence[str]) -> Measurement:
    """Measure a normalised text."""
    letters = digits = specials = cyrillic = 0
    for character in text:
        kind = _class_of(character)
        letters += kind in "LC"
        cyrillic += kind == "C"
        digits += kind == "N"
        specials += kind == "S"
    hits = _stop_pattern(tuple(stop_words)).findall(text) if stop_words else []
    language, confidence = identify(text)
    signature, features = simhash(text)
    return Measurement(
        characters=len(text),
        letters=letters,
        digits=digits,
        specials=specials,
        cyrillic=cyrillic,
        letter_ratio=_ratio(letters, len(text)),
        special_ratio=_ratio(specials, len(text)),
        cyrillic_ratio=_ratio(cyrillic, letters),
        stop_words=len(hits),
        stop_word=hits[0].lower() if hits else None,
        language=language,
        language_confidence=confidence,
        simhash=signature,
        simhash_features=features,
    )


@lru_cache(maxsize=1 << 16)
def _class_of(character: str) -> str:
    """C Cyrillic letter, L other letter, N digit, W white space, S anything else."""
    kind = category(character)[0]
    if kind == "L":
        return "C" if name(character, "").startswith("CYRILLIC") else "L"
    if kind == "N":
        return "N"
    return "W" if character.isspace() else "S"


@lru_cache(maxsize=8)
def _stop_pattern(stop_words: tuple[str, ...]) -> re.Pattern[str]:
    """Any of the words, whatever the case, where neither side goes on with a word character."""
    longest_first = sorted(stop_words, key=len, reverse=True)
    alternatives = "|".join(re.escape(word) for word in longest_first)
    return re.compile(rf"(?<!\w)(?:{alternatives})(?!\w)", re.IGNORECASE)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
