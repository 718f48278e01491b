"""Metadata of the assets: tables and plots for Dagster's UI."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data_quality import plots
from pipelines.datasets import Manifest
from pipelines.engine import BuildReport
from pipelines.workspace import Workspace


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Any:
    """Rows as a table; column types are those of the first row."""
    types = [type(value) for value in rows[0]] if rows else [str] * len(columns)
    names = {int: "int", float: "float", bool: "bool"}
    schema = dg.TableSchema(
        columns=[
            dg.TableColumn(column, names.get(kind, "string"))
            for column, kind in zip(columns, types, strict=True)
        ]
    )
    records = [dg.TableRecord(dict(zip(columns, row, strict=True))) for row in rows]
    return dg.MetadataValue.table(records, schema=schema)


def drops(manifest: Manifest, total: int) -> Mapping[str, Any]:
    """Kept and dropped counts, and the drops by reason with their share of ``total``."""
    reasons = manifest.totals("drops")
    rows = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    shares = [(reason, count, f"{count / total:.2%}") for reason, count in rows]
    return {
        "kept": manifest.total("rows"),
        "dropped": sum(reasons.values()),
        "drops by reason": table(["reason", "count", "share"], shares),
    }


def length_histogram_of(suffix: str) -> Callable[[Workspace, BuildReport], Mapping[str, Any]]:
    """Figures of a dataset whose tables have a ``characters`` column."""
    return lambda workspace, report: length_histogram(report, suffix, column="characters")


def length_histogram(report: BuildReport, suffix: str, column: str) -> Mapping[str, Any]:
    """Lengths in characters, chunk by chunk; of a text column the lengths are computed."""
    counts = np.zeros(len(plots.LENGTH_BINS) - 1, np.int64)
    for each in report.dataset.tables(suffix, [column]):
        values = each[column]
        lengths = values if pa.types.is_integer(values.type) else pc.utf8_length(values)
        counts += np.histogram(lengths.to_numpy(), plots.LENGTH_BINS)[0]
    svg = plots.length_histogram(counts)
    return {"lengths": dg.MetadataValue.md(plots.as_markdown(svg, "lengths in characters"))}


def loss_curve(steps: pa.Table) -> Any:
    """The loss over the steps of a STEPS table."""
    svg = plots.loss_curve(steps["step"].to_pylist(), steps["loss"].to_pylist())
    return dg.MetadataValue.md(plots.as_markdown(svg, "loss by step"))
