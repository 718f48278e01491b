"""A node as a Dagster asset: builds the dataset, reports what it did, runs the checks."""

# No `from __future__ import annotations`: Dagster looks at the type of `context` itself.

import time
from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets.nodes import Node
from pipelines.engine import BuildReport, Observer, Progress
from pipelines.workspace import Workspace

_LOG_EVERY_S = 15.0

# Who else wants to see progress: the command line puts its progress bar here.
observers: list[Observer] = []


def asset_of(node: Node, workspace: Workspace) -> dg.AssetsDefinition:
    """The asset of a node. Checks run with it, over the dataset that it just wrote.

    It is in no concurrency pool: a run that is killed keeps its slot until a daemon notices, and
    without one the next run would wait for ever. The dataset's own lock dies with its holder.
    """
    key = dg.AssetKey(node.key.split("/"))

    @dg.asset(
        key=key,
        deps=[dg.AssetKey(dep.split("/")) for dep in node.deps],
        group_name=node.group,
        description=node.description,
        code_version=node.stage.code_version,
        kinds=set(node.kinds),
        check_specs=[
            dg.AssetCheckSpec(check.name, asset=key, description=check.description, blocking=True)
            for check in node.checks
        ],
    )
    def build(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        report = node.build(workspace, _observer(context))
        context.log.info(_summary(report))
        results = []
        for check in node.checks:
            verdict = check.run(workspace, report)
            results.append(
                dg.AssetCheckResult(
                    passed=verdict.passed,
                    check_name=check.name,
                    asset_key=key,
                    metadata=dict(verdict.figures),
                )
            )
        return dg.MaterializeResult(
            metadata=_metadata(node, workspace, report),
            data_version=dg.DataVersion(report.data_version),
            check_results=results,
        )

    return build


def _observer(context: dg.AssetExecutionContext) -> Observer:
    """Progress to Dagster's log now and then, and to whoever else looks on."""
    last = time.monotonic()

    def observe(progress: Progress) -> None:
        nonlocal last
        for other in observers:
            other(progress)
        if time.monotonic() - last >= _LOG_EVERY_S:
            last = time.monotonic()
            context.log.info(f"{progress.done:,} of {progress.total:,}: {progress.chunk}")

    return observe


def _summary(report: BuildReport) -> str:
    names = ", ".join(report.computed[:8]) + (", …" if len(report.computed) > 8 else "")
    return (
        f"{report.dataset.key}: {len(report.computed)} chunks computed, {report.reused} reused, "
        f"{report.removed} files removed, {report.seconds:.1f} s" + (f" ({names})" * bool(names))
    )


def _metadata(node: Node, workspace: Workspace, report: BuildReport) -> Mapping[str, Any]:
    manifest = report.manifest
    size = sum(chunk.bytes for chunk in manifest.chunks)
    rows, characters = manifest.total("rows"), manifest.total("characters")
    seconds = max(report.seconds, 1e-9)
    fresh = sum(
        chunk.stats.get("characters", 0)
        for chunk in manifest.chunks
        if chunk.name in set(report.computed)
    )
    metadata: dict[str, Any] = {
        "chunks": len(manifest.chunks),
        "chunks computed": len(report.computed),
        "chunks reused": report.reused,
        "bytes": size,
        "seconds": round(report.seconds, 3),
        "peak memory, MB": round(report.peak_mb, 1),
        "folder": dg.MetadataValue.path(report.dataset.url),
    }
    if rows:
        metadata["dagster/row_count"] = rows
    if characters:
        metadata["characters"] = characters
    if fresh:
        metadata["characters a second"] = round(fresh / seconds)
    if node.figures is not None:
        metadata.update(node.figures(workspace, report))
    return metadata
