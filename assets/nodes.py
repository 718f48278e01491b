"""A node of the graph: one dataset, what it is made from, and who builds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipelines.engine import BuildReport, Observer, Stage
from pipelines.workspace import Workspace


@dataclass(frozen=True)
class Verdict:
    """What a check found; ``figures`` are shown beside it."""

    passed: bool
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Check:
    """Something that must hold of a dataset. A failed one stops the refresh below its asset."""

    name: str
    description: str
    run: Callable[[Workspace, BuildReport], Verdict]


@dataclass(frozen=True)
class Node:
    """``key`` is that of the dataset and, parted at ``/``, of the asset.

    ``build`` brings the dataset up to date. ``figures`` gives metadata beyond what every asset
    carries; values are numbers, strings or Dagster's MetadataValue.
    """

    key: str
    group: str
    description: str
    deps: tuple[str, ...]
    stage: Stage
    build: Callable[[Workspace, Observer | None], BuildReport]
    figures: Callable[[Workspace, BuildReport], Mapping[str, Any]] | None = None
    checks: tuple[Check, ...] = ()
    kinds: tuple[str, ...] = ("python",)
