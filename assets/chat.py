"""Group ``chat``: normalised dialogs of each source, and the chat set without repeats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from assets import figures
from assets.nodes import Check, Node, Verdict
from pipelines.chat import dialogs, repeats
from pipelines.engine import BuildReport
from pipelines.workspace import Workspace

GROUP = "chat"


def nodes(workspace: Workspace) -> Iterator[Node]:
    project = workspace.project
    names = project.sources_of("chat")
    for name in names:
        yield Node(
            key=f"dialogs/{name}",
            group=GROUP,
            description=(
                "Dialogs with the roles user and assistant in turn: role names mapped, system "
                "text before the first user message, adjacent messages joined; what can't be "
                "used is dropped with a reason."
            ),
            deps=(f"raw/{name}",),
            stage=dialogs.stage(project, name),
            build=lambda ws, observer, name=name: dialogs.build_dialogs(
                ws.project, ws.storage, name, ws.project.execution.workers, observer
            ),
            figures=_figures,
            checks=(_conservation(f"raw/{name}"),),
        )
    if names:
        deps = tuple(f"dialogs/{name}" for name in names)
        yield Node(
            key=repeats.KEY,
            group=GROUP,
            description="The chat set: all sources' dialogs without exact and near repeats.",
            deps=deps,
            stage=repeats.stage(project),
            build=lambda ws, observer: repeats.build_chat(ws.project, ws.storage, observer),
            figures=_figures,
            checks=(_conservation(*deps),),
        )


def _figures(workspace: Workspace, report: BuildReport) -> Mapping[str, Any]:
    manifest = report.manifest
    return {
        "answers": manifest.total("turns"),
        **figures.drops(manifest, manifest.total("read")),
        **figures.length_histogram(report, dialogs.TABLE, column="characters"),
    }


def _conservation(*inputs: str) -> Check:
    """Dialogs in (the rows of the input datasets) = kept + dropped."""

    def run(workspace: Workspace, report: BuildReport) -> Verdict:
        rows = sum(workspace.dataset(key).manifest().total("rows") for key in inputs)
        kept = report.manifest.total("rows")
        dropped = sum(report.manifest.totals("drops").values())
        figures_ = {"dialogs in": rows, "kept": kept, "dropped": dropped}
        return Verdict(rows == kept + dropped, figures_)

    return Check("conservation", "Dialogs in = kept + dropped, summed over the reasons.", run)
