"""``samovar stages``: what each dataset holds and what its latest build took."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from assets.definitions import nodes
from pipelines.engine import last_run
from pipelines.workspace import Workspace

_COLUMNS = ("rows", "dropped", "characters", "tokens", "bytes", "computed", "seconds", "peak_mb")


def collect(workspace: Workspace) -> list[dict[str, Any]]:
    """One record for each dataset that is built, in the order of the graph.

    ``computed``, ``seconds`` and ``peak_mb`` (the largest process's resident memory, MiB) are of
    the latest build, which may have reused some or all chunks.
    """
    records = []
    for node in nodes(workspace):
        manifest = workspace.dataset(node.key).find_manifest()
        if manifest is None:
            continue
        run = last_run(workspace.dataset(node.key))
        splits = ("train", "validation")
        by_split = {
            figure: sum(manifest.total(f"{split}_{figure}") for split in splits)
            for figure in ("documents", "characters", "tokens")
        }
        records.append(
            {
                "key": node.key,
                "rows": manifest.total("rows") or by_split["documents"],
                "dropped": sum(manifest.totals("drops").values()),
                "characters": manifest.total("characters") or by_split["characters"],
                "tokens": manifest.total("tokens") or by_split["tokens"],
                "chunks": len(manifest.chunks),
                **{name: run[name] for name in ("bytes", "computed", "seconds", "peak_mb")},
            }
        )
    return records


def show(records: list[dict[str, Any]], console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("asset")
    for column in _COLUMNS:
        table.add_column(column.replace("peak_mb", "peak MB"), justify="right")
    for record in records:
        cells = [f"{record[column]:,}" if record[column] else "" for column in _COLUMNS]
        table.add_row(record["key"], *cells)
    console.print(table)
    total = sum(record["seconds"] for record in records)
    console.print(f"{total:,.1f} s in all", style="dim")
