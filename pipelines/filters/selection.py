"""Selection: which documents pass, from the table of measurements alone.

The filters are tried in the order of :func:`filters_of`; the first that fails is the reason, and
every one that fails is recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.config.models import Filters


@dataclass(frozen=True)
class Filter:
    """One filter: documents fail where ``failing`` (a boolean array over the table) is true."""

    reason: str
    column: str
    threshold: float | None
    failing: np.ndarray
    detail: str | None = None  # a further column that tells more


@dataclass(frozen=True)
class Selection:
    """``kept``: boolean array over the rows; the filters in order, for the reasons."""

    kept: np.ndarray
    filters: tuple[Filter, ...]

    def failed(self, row: int) -> list[Filter]:
        """All filters that the row fails, in order; empty for a kept one."""
        return [each for each in self.filters if each.failing[row]]


def filters_of(table: pa.Table, thresholds: Filters) -> tuple[Filter, ...]:
    """The filters of the configuration over a MEASUREMENTS table."""

    def column(name: str) -> np.ndarray:
        return table[name].to_numpy(zero_copy_only=False)

    t = thresholds
    characters = column("characters")
    confidence = column("language_confidence")
    other_language = column("language") != t.language
    return (
        Filter("too_short", "characters", t.min_chars, characters < t.min_chars),
        Filter("too_long", "characters", t.max_chars, characters > t.max_chars),
        Filter(
            "low_letter_ratio",
            "letter_ratio",
            t.min_letter_ratio,
            column("letter_ratio") < t.min_letter_ratio,
        ),
        Filter(
            "high_special_ratio",
            "special_ratio",
            t.max_special_ratio,
            column("special_ratio") > t.max_special_ratio,
        ),
        Filter(
            "low_cyrillic_ratio",
            "cyrillic_ratio",
            t.min_cyrillic_ratio,
            column("cyrillic_ratio") < t.min_cyrillic_ratio,
        ),
        Filter(
            "stop_word",
            "stop_words",
            t.max_stop_words,
            column("stop_words") > t.max_stop_words,
            detail="stop_word",
        ),
        Filter("other_language", "language_confidence", None, other_language, detail="language"),
        Filter(
            "low_language_confidence",
            "language_confidence",
            t.lang_conf_threshold,
            ~other_language & (confidence < t.lang_conf_threshold),
            detail="language",
        ),
    )


def select(table: pa.Table, thresholds: Filters) -> Selection:
    """Apply the thresholds to a MEASUREMENTS table."""
    filters = filters_of(table, thresholds)
    kept = np.ones(table.num_rows, bool)
    for each in filters:
        kept &= ~each.failing
    return Selection(kept, filters)


def slice_of(filters: Filters) -> Mapping[str, Any]:
    """What selection reads of the configuration: all but the word list, which is measured."""
    return filters.model_dump(exclude={"stop_words"})
