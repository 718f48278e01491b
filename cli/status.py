"""``samovar status``: fresh, stale or missing, with reasons."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assets.definitions import build_definitions
from assets.instance import open_instance
from assets.planner import Planner
from pipelines.workspace import Workspace

_COLOURS = {"fresh": "green", "stale": "yellow", "missing": "dim", "blocked": "red"}


def collect(workspace: Workspace) -> dict[str, Any]:
    """``{"problems": {source: text}, "assets": [{key, group, status, causes, …}]}``."""
    with open_instance(workspace) as instance:
        planner = Planner(workspace, build_definitions(workspace), instance)
        problems = planner.observe_landing()
        assets = []
        for status in planner.statuses():
            manifest = workspace.dataset(status.key).find_manifest()
            assets.append(
                {
                    "key": status.key,
                    "group": status.group,
                    "status": status.status,
                    "causes": list(status.causes),
                    "below_stale": status.below_stale,
                    "data_version": manifest.data_version if manifest else None,
                    "chunks": len(manifest.chunks) if manifest else 0,
                    "bytes": sum(chunk.bytes for chunk in manifest.chunks) if manifest else 0,
                }
            )
    return {"problems": problems, "assets": assets}


def show(statuses: dict[str, Any], console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("asset", "group", "status", "why"):
        table.add_column(column, overflow="fold")
    for asset in statuses["assets"]:
        colour = _COLOURS[asset["status"]]
        why = "; ".join(asset["causes"][:3])
        if asset["status"] == "fresh" and asset["below_stale"]:
            why = "something above it isn't up to date"
        table.add_row(
            asset["key"],
            asset["group"],
            f"[{colour}]{asset['status']}[/{colour}]",
            f"[dim]{escape(why)}[/dim]",
        )
    console.print(table)
    for problem in statuses["problems"].values():
        console.print(f"[red]error:[/red] {escape(problem)}", soft_wrap=True)
    open_ = sum(asset["status"] != "fresh" for asset in statuses["assets"])
    if open_:
        console.print(f"{open_} to do: samovar materialize --stale", soft_wrap=True)
    elif not statuses["problems"]:
        console.print("Nothing is stale.")
