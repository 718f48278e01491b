"""Measurement of documents: the compiled pass against the packages' own chain.

The peer is ``langid`` (normalised), ``simhash`` and character ratios in plain Python, on the front
of the same documents. Both in one process on one core; speeds are MB of UTF-8 a second.
"""

from __future__ import annotations

import time
import unicodedata
from pathlib import Path
from typing import Any

from pipelines.config import Project, Source
from pipelines.filters.measure import measure
from pipelines.sources.landing import landed_files
from pipelines.sources.records import read_records
from pipelines.text import normalise

_SAMPLE_BYTES = 3_000_000  # the packages' chain takes a second for each 1.4 MB


def run(project: Project, data: Path) -> dict[str, Any]:
    """Measure the documents of the files at ``data`` (a file or a folder); see the module."""
    texts = _texts(data)
    if not texts:
        raise ValueError(f"{data}: no record has a text")
    stop_words = tuple(project.filters.stop_words)
    started = time.perf_counter()
    from pipelines.filters.kernels import measure_texts

    measure_texts(texts[:1], stop_words)
    first_call = time.perf_counter() - started
    started = time.perf_counter()
    measured = measure_texts(texts, stop_words)
    cold = time.perf_counter() - started
    started = time.perf_counter()
    measure_texts(texts, stop_words)
    warm = time.perf_counter() - started

    front = _front(texts, _SAMPLE_BYTES)
    started = time.perf_counter()
    for text in front:
        _packages(text)
    packages = time.perf_counter() - started
    expected = [measure(text, stop_words) for text in front]
    mismatches = sum(
        not _equal(vars(one), vars(other)) for one, other in zip(measured, expected, strict=False)
    )
    size, front_size = _megabytes(texts), _megabytes(front)
    return {
        "documents": len(texts),
        "megabytes": round(size, 3),
        "first_call_seconds": round(first_call, 3),
        "ours_mb_per_s": round(size / cold, 2),
        "ours_again_mb_per_s": round(size / warm, 2),  # every 4-gram's hash is known
        "packages_mb_per_s": round(front_size / packages, 2),
        "ratio": round(size / cold * packages / front_size, 2),
        "compared": len(front),
        "mismatches": mismatches,
    }


def _packages(text: str) -> tuple:
    """What a script made of the packages would do for one document."""
    from simhash import Simhash

    from pipelines.filters.language import identify

    categories = [unicodedata.category(character)[0] for character in text]
    letters = categories.count("L")
    specials = sum(
        kind not in "LN" and not character.isspace()
        for kind, character in zip(categories, text, strict=True)
    )
    try:
        signature = Simhash(text).value
    except OverflowError:  # a 4-gram more than 255 times: the package's fault on numpy 2
        signature = None
    return letters, specials, identify(text), signature


def _texts(data: Path) -> list[str]:
    source = Source(kind="text", group="web", paths=[str(data.absolute())])
    return [
        normalise(record["text"])
        for file in landed_files("data", source, Path())
        for record in read_records(file.path)
        if isinstance(record, dict) and isinstance(record.get("text"), str)
    ]


def _front(texts: list[str], size: int) -> list[str]:
    front = []
    for text in texts:
        if size <= 0:
            break
        front.append(text)
        size -= len(text.encode())
    return front


def _megabytes(texts: list[str]) -> float:
    return sum(len(text.encode()) for text in texts) / 1e6


def _equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    near = abs(one["language_confidence"] - other["language_confidence"]) <= 1e-9
    return near and all(one[key] == other[key] for key in one if key != "language_confidence")
