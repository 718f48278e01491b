"""Groups ``raw``: the landed files of each source, and the raw records read from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from assets import figures
from assets.nodes import Node
from pipelines.config import Source
from pipelines.engine import BuildReport
from pipelines.sources import raw
from pipelines.sources.landing import landed_files, listing_digest
from pipelines.workspace import Workspace

GROUP = "raw"


def landing_version(workspace: Workspace, name: str) -> str:
    """The data version of a source's files: a digest of names, sizes and modification times.

    Raises SourceError where there are no files.
    """
    source = workspace.project.sources[name]
    return listing_digest(landed_files(name, source, workspace.base))


def landing_asset(workspace: Workspace, name: str) -> dg.SourceAsset:
    """The observed files of a source. Observing costs a directory listing."""
    source = workspace.project.sources[name]

    @dg.observable_source_asset(
        key=["landing", name],
        group_name=GROUP,
        description=f"{source.title or name}: the files as they were landed.\n\n{_facts(source)}",
    )
    def landing() -> dg.DataVersion:
        return dg.DataVersion(landing_version(workspace, name))

    return landing


def nodes(workspace: Workspace) -> Iterator[Node]:
    project = workspace.project
    for name, source in project.active_sources.items():
        records = "dialogs" if source.kind == "dialogs" else "documents"
        yield Node(
            key=f"raw/{name}",
            group=GROUP,
            description=(
                f"{source.title or name}: raw {records}, the text as it was decoded. Records "
                f"that can't be read are dropped with a reason.\n\n{_facts(source)}"
            ),
            deps=(f"landing/{name}",),
            stage=raw.stage(project, name),
            build=lambda ws, observer, name=name: raw.build_raw(
                ws.project, ws.storage, name, ws.base, ws.project.execution.workers, observer
            ),
            figures=_figures,
        )


def _figures(workspace: Workspace, report: BuildReport) -> Mapping[str, Any]:
    manifest = report.manifest
    return {
        "unreadable records": manifest.total("bad"),
        "replaced surrogates": manifest.total("replaced_surrogates"),
        **figures.drops(manifest, manifest.total("rows") + manifest.total("bad")),
    }


def _facts(source: Source) -> str:
    lines = [("Origin", source.origin), ("Licence", source.licence), ("To get it", source.download)]
    return "\n".join(f"- {label}: {text}" for label, text in lines if text)
