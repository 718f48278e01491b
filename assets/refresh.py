"""The refresh sensor: the planner's walk, one asset a tick, for whoever works in the UI.

Off until it is switched on. A tick asks for the first asset that is stale with nothing stale above
it, and skips while a run is in progress.
"""

# No `from __future__ import annotations`: Dagster looks at the type of `context` itself.

from collections.abc import Callable

import dagster as dg

from assets.planner import Planner
from pipelines.datasets import digest
from pipelines.workspace import Workspace

_IN_PROGRESS = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def refresh_sensor(
    workspace: Workspace, definitions: Callable[[], dg.Definitions]
) -> dg.SensorDefinition:
    """``definitions`` gives the definitions that the sensor itself is part of."""

    @dg.sensor(
        name="refresh",
        target=dg.AssetSelection.all(),
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Materializes what is stale, layer by layer, one asset at a time.",
    )
    def refresh(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        running = context.instance.get_runs_count(dg.RunsFilter(statuses=_IN_PROGRESS))
        if running:
            return dg.SkipReason(f"{running} runs in progress")
        planner = Planner(workspace, definitions(), context.instance)
        if problems := planner.observe_landing():
            return dg.SkipReason("; ".join(problems.values()))
        blocked = []
        for status in planner.statuses():
            if status.below_stale or status.status == "fresh":
                continue
            if status.status == "blocked":
                blocked.append(f"{status.key}: {'; '.join(status.causes)}")
                continue
            key = dg.AssetKey(status.key.split("/"))
            return dg.RunRequest(run_key=_run_key(planner, key), asset_selection=[key])
        return dg.SkipReason("; ".join(blocked) or "nothing is stale")

    return refresh


def _run_key(planner: Planner, key: dg.AssetKey) -> str:
    """Equal for equal code and inputs: what failed isn't tried again until something changed."""
    parents = sorted(planner.graph.get(key).parent_keys)
    events = [planner.instance.get_latest_data_version_record(parent) for parent in parents]
    storage_ids = [event.storage_id if event else None for event in events]
    return digest([key.to_user_string(), planner.graph.get(key).code_version, storage_ids])[:32]
