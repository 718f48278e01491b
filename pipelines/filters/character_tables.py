"""What the kernels need to know of each code point, as arrays indexed by it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from unicodedata import category, name

import numpy as np

CODE_POINTS = 0x110000
# Above this no character is a letter, digit or white space, or has another case (Unicode 16):
# variation selectors, tags, private use and what isn't assigned.
_LAST_OF_INTEREST = 0x34000

WHITE_SPACE, SPECIAL, DIGIT, LETTER, CYRILLIC = range(5)


@dataclass(frozen=True)
class CharacterTables:
    """``kind`` (n,) uint8: one of the five above. ``word`` (n,) bool: matched by ``\\w``.
    ``lower`` (n,) int32: the lower-case code point, or -1 where lower-casing a text isn't done
    character by character (``İ`` becomes two, ``Σ`` depends on its neighbours)."""

    kind: np.ndarray
    word: np.ndarray
    lower: np.ndarray


@lru_cache(maxsize=1)
def character_tables() -> CharacterTables:
    """The tables of this Python's Unicode version; built once a process, in a tenth of a second."""
    kind = np.full(CODE_POINTS, SPECIAL, np.uint8)
    word = np.zeros(CODE_POINTS, bool)
    lower = np.arange(CODE_POINTS, dtype=np.int32)
    for code in range(_LAST_OF_INTEREST):
        character = chr(code)
        kind[code] = class_of(character)
        word[code] = character.isalnum() or character == "_"
        small = character.lower()
        if small != character:
            lower[code] = ord(small) if len(small) == 1 else -1
    lower[ord("Σ")] = -1
    return CharacterTables(kind, word, lower)


def class_of(character: str) -> int:
    """The kind of one character, by its Unicode category, name and Python's ``isspace``."""
    general = category(character)[0]
    if general == "L":
        return CYRILLIC if name(character, "").startswith("CYRILLIC") else LETTER
    if general == "N":
        return DIGIT
    return WHITE_SPACE if character.isspace() else SPECIAL
