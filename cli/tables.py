"""Query results as tables on the terminal."""

from __future__ import annotations

from typing import Any

import duckdb
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_MAX_CELL = 200
_NUMERIC = ("NUMBER", "INT", "BIGINT", "HUGEINT", "UINT", "UBIGINT", "DOUBLE", "FLOAT", "DEC")


def show_result(cursor: duckdb.DuckDBPyConnection, limit: int, console: Console) -> None:
    """The first ``limit`` rows of an executed statement, and a line when there are more."""
    rows = cursor.fetchmany(limit + 1)
    table = Table(box=None, pad_edge=False)
    for name, kind, *_ in cursor.description:
        right = str(kind).startswith(_NUMERIC)
        table.add_column(escape(name), justify="right" if right else "left", overflow="fold")
    for row in rows[:limit]:
        table.add_row(*(_cell(value) for value in row))
    console.print(table)
    if len(rows) > limit:
        console.print(f"… more than {limit} rows; --limit shows more", style="dim")


def records(cursor: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    """All rows of an executed statement by column name."""
    names = [name for name, *_ in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _cell(value: Any) -> str:
    if value is None:
        return "[dim]null[/dim]"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return escape(text if len(text) <= _MAX_CELL else f"{text[:_MAX_CELL]}…")
