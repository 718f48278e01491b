"""Group ``documents``: measurements, near-duplicates, and the documents that pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from assets import figures
from assets.nodes import Check, Node, Verdict
from pipelines import documents, near_duplicates
from pipelines.engine import BuildReport
from pipelines.filters import measurements
from pipelines.workspace import Workspace

GROUP = "documents"


def nodes(workspace: Workspace) -> Iterator[Node]:
    project = workspace.project
    sources = near_duplicates.text_sources(project)
    for name in sources:
        yield Node(
            key=f"measurements/{name}",
            group=GROUP,
            description=(
                "Every figure of every document, also of those to be dropped: characters, "
                "letter, special and Cyrillic ratio, stop words, language with its normalised "
                "probability, simhash. No threshold plays a role here."
            ),
            deps=(f"raw/{name}",),
            stage=measurements.stage(project, name),
            build=lambda ws, observer, name=name: measurements.build_measurements(
                ws.project, ws.storage, name, ws.project.execution.workers, observer
            ),
            figures=figures.length_histogram_of(measurements.TABLE),
            checks=(_every_document_measured(name),),
        )
    if not sources:
        return
    yield Node(
        key="near_duplicates",
        group=GROUP,
        description=(
            "Which documents repeat an earlier kept one, by 64-bit simhash, among those that "
            "pass the filters, in document order."
        ),
        deps=tuple(f"measurements/{name}" for name in sources),
        stage=near_duplicates.stage(project),
        build=lambda ws, observer: near_duplicates.build_near_duplicates(
            ws.project, ws.storage, observer
        ),
        figures=lambda ws, report: {"near duplicates": report.manifest.total("duplicates")},
    )
    for group in project.groups:
        if group == "chat":
            continue
        names = project.sources_of(group)
        yield Node(
            key=f"documents/{group}",
            group=GROUP,
            description=(
                f"The documents of group {group} that passed every filter and repeat no other, "
                "normalised; and what was dropped, with stage, reason, value and threshold."
            ),
            deps=(
                *(f"raw/{name}" for name in names),
                *(f"measurements/{name}" for name in names),
                "near_duplicates",
            ),
            stage=documents.stage(project, group),
            build=lambda ws, observer, group=group: documents.build_documents(
                ws.project, ws.storage, group, ws.project.execution.workers, observer
            ),
            figures=_document_figures,
            checks=(CONSERVATION, ENOUGH_KEPT),
        )


def _document_figures(workspace: Workspace, report: BuildReport) -> Mapping[str, Any]:
    manifest = report.manifest
    return {
        "documents in": manifest.total("measured"),
        **figures.drops(manifest, manifest.total("measured")),
        **figures.length_histogram(report, documents.TABLE, column="text"),
    }


def _every_document_measured(name: str) -> Check:
    def run(workspace: Workspace, report: BuildReport) -> Verdict:
        rows = workspace.dataset(f"raw/{name}").manifest().total("rows")
        measured = report.manifest.total("documents")
        return Verdict(rows == measured, {"raw documents": rows, "measured": measured})

    return Check("every_document_measured", "Each raw document has measurements.", run)


def _conservation(workspace: Workspace, report: BuildReport) -> Verdict:
    manifest = report.manifest
    measured, kept = manifest.total("measured"), manifest.total("rows")
    dropped = sum(manifest.totals("drops").values())
    figures_ = {"documents in": measured, "kept": kept, "dropped": dropped}
    return Verdict(measured == kept + dropped, figures_)


def _enough_kept(workspace: Workspace, report: BuildReport) -> Verdict:
    measured, kept = report.manifest.total("measured"), report.manifest.total("rows")
    share = kept / measured if measured else 0.0
    bound = workspace.project.quality.min_kept_share
    return Verdict(kept > 0 and share >= bound, {"kept share": share, "at least": bound})


CONSERVATION = Check(
    "conservation", "Documents in = kept + dropped, summed over the reasons.", _conservation
)
ENOUGH_KEPT = Check(
    "enough_kept",
    "The filters keep at least quality.min_kept_share of the documents.",
    _enough_kept,
)
