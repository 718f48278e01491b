"""Selection: the exact reason for each document, and the sample's own labels."""

from __future__ import annotations

from dataclasses import asdict, replace

import pyarrow as pa
import pytest

from pipelines.config.models import Filters
from pipelines.filters.measure import Measurement, measure
from pipelines.filters.selection import select
from pipelines.schemas import MEASUREMENTS

GOOD = Measurement(
    characters=500,
    letters=400,
    digits=0,
    specials=20,
    cyrillic=400,
    letter_ratio=0.8,
    special_ratio=0.04,
    cyrillic_ratio=1.0,
    stop_words=0,
    stop_word=None,
    language="ru",
    language_confidence=0.99,
    simhash=1,
    simhash_features=400,
)


def table_of(*measurements: Measurement) -> pa.Table:
    rows = [
        {"id": str(i), "source": "s", "row": i, "part": 0, "parts": 1, **asdict(m)}
        for i, m in enumerate(measurements)
    ]
    return pa.Table.from_pylist(rows, schema=MEASUREMENTS)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"characters": 49}, "too_short"),
        ({"characters": 50}, None),
        ({"characters": 5000}, None),
        ({"characters": 5001}, "too_long"),
        ({"letter_ratio": 0.39}, "low_letter_ratio"),
        ({"letter_ratio": 0.4}, None),
        ({"special_ratio": 0.26}, "high_special_ratio"),
        ({"special_ratio": 0.25}, None),
        ({"cyrillic_ratio": 0.49}, "low_cyrillic_ratio"),
        ({"stop_words": 1}, "stop_word"),
        ({"language": "uk"}, "other_language"),
        ({"language_confidence": 0.59}, "low_language_confidence"),
        ({"language_confidence": 0.6}, None),
    ],
)
def test_reason(change: dict, reason: str | None) -> None:
    selected = select(table_of(replace(GOOD, **change)), Filters())
    assert [each.reason for each in selected.failed(0)] == ([reason] if reason else [])
    assert selected.kept.tolist() == [reason is None]


def test_first_failure_is_the_reason_and_all_are_told() -> None:
    bad = replace(GOOD, characters=10, letter_ratio=0.1, language="en")
    selected = select(table_of(GOOD, bad), Filters())
    reasons = [each.reason for each in selected.failed(1)]
    assert reasons == ["too_short", "low_letter_ratio", "other_language"]
    assert selected.kept.tolist() == [True, False]


def test_empty_document_and_empty_table() -> None:
    assert select(table_of(measure("", ())), Filters()).failed(0)[0].reason == "too_short"
    assert select(table_of(), Filters()).kept.tolist() == []
