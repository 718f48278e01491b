"""Group ``quality``: the report page over everything that was built."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from assets.checkpoints import PHASES
from assets.evaluation import BPC_KEY, SAMPLES_KEY
from assets.nodes import Node
from pipelines.engine import BuildReport, Observer, Part, Stage, Task, TaskContext, build
from pipelines.groups import CHAT, records_key
from pipelines.near_duplicates import text_sources
from pipelines.tokenizer.training import KEY as TOKENIZER
from pipelines.workspace import Workspace

KEY = "data_quality/report"
FILE = "report.html"
VERSION = 2


def nodes(workspace: Workspace) -> Iterator[Node]:
    yield Node(
        key=KEY,
        group="quality",
        description=(
            "One page: what came in, what was dropped and why, lengths and languages, repeats, "
            "the training curves, bits per character, samples. The tables behind it are the "
            'views of `samovar sql "…"`.'
        ),
        deps=inputs_of(workspace),
        stage=stage(workspace),
        build=build_report,
        figures=lambda ws, report: {
            "page": dg.MetadataValue.path(str(report.dataset.path(report.manifest.chunks[0], FILE)))
        },
        kinds=("duckdb",),
    )


def inputs_of(workspace: Workspace) -> tuple[str, ...]:
    """The datasets that the page shows."""
    project = workspace.project
    texts = text_sources(project)
    return (
        *(f"raw/{name}" for name in project.active_sources),
        *(f"measurements/{name}" for name in texts),
        *(["near_duplicates"] if texts else []),
        *(records_key(group) for group in project.groups),
        *(f"dialogs/{name}" for name in project.sources_of(CHAT)),
        TOKENIZER,
        *(f"shards/{group}" for group in project.groups),
        *(f"checkpoints/{phase}" for phase in PHASES),
        BPC_KEY,
        SAMPLES_KEY,
    )


def stage(workspace: Workspace) -> Stage:
    # The thresholds are drawn into the histograms.
    config = {
        "profile": workspace.project.profile,
        "filters": workspace.project.filters.model_dump(exclude={"stop_words"}),
    }
    return Stage(KEY, VERSION, config)


def build_report(workspace: Workspace, observer: Observer | None = None) -> BuildReport:
    inputs = {key: workspace.dataset(key).manifest().data_version for key in inputs_of(workspace)}
    task = Task("report", write_report, (workspace,), inputs)
    return build(workspace.dataset(KEY), stage(workspace), [task], observer=observer)


def write_report(context: TaskContext, workspace: Workspace) -> Iterator[Part]:
    """Task function: the page as one self-contained HTML file."""
    from data_quality.report import render_report

    path = context.scratch / FILE
    path.write_text(render_report(workspace), encoding="utf-8")
    yield Part(files={FILE: path}, stats={"rows": 1})
