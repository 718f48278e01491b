"""Which assets are stale, and refreshing exactly those.

Dagster's staleness is one level deep: what is below a stale asset turns stale only when that one
has run and its data version has moved. So the refresh walks the graph in topological order and
asks again before each asset; unchanged output stops the wave there. It doesn't go below an asset
that failed, or whose latest blocking check failed.

This is built on Dagster internals (``CachingStaleStatusResolver``), hence the pinned version.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import dagster as dg
from dagster._core.definitions.data_version import DATA_VERSION_TAG, CachingStaleStatusResolver
from dagster._core.errors import DagsterExecutionInterruptedError
from dagster._core.loader import LoadingContextForTest
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from assets.raw import landing_version
from pipelines.sources.landing import SourceError
from pipelines.workspace import Workspace

_VERDICTS = {
    AssetCheckExecutionRecordStatus.FAILED: "failed",
    AssetCheckExecutionRecordStatus.PLANNED: "didn't finish",
}

Status = Literal["fresh", "stale", "missing", "blocked"]
LANDING = "landing"


@dataclass(frozen=True)
class AssetStatus:
    """``causes`` say why it isn't fresh. ``below_stale``: something above it isn't fresh, and may
    change it."""

    key: str
    group: str
    status: Status
    causes: tuple[str, ...] = ()
    below_stale: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of one asset in a refresh."""

    key: str
    result: Literal["materialized", "failed", "blocked"]
    causes: tuple[str, ...] = ()
    error: BaseException | None = None


class Planner:
    """Staleness and refresh of one workspace's graph on one Dagster instance."""

    def __init__(
        self, workspace: Workspace, defs: dg.Definitions, instance: dg.DagsterInstance
    ) -> None:
        self.workspace = workspace
        self.defs = defs
        self.instance = instance
        self.graph = defs.resolve_asset_graph()

    def keys(self, selection: str | None = None) -> list[dg.AssetKey]:
        """Materializable assets in topological order; ``selection`` is in Dagster's syntax.

        A plain ``documents/web`` works as a key. Raises ValueError for one that selects nothing.
        """
        ordered = [
            key for key in self.graph.toposorted_asset_keys if self.graph.get(key).is_materializable
        ]
        if selection is None:
            return ordered
        try:
            chosen = dg.AssetSelection.from_string(_as_selection(selection)).resolve(self.graph)
        except (
            dg.DagsterInvalidSubsetError,
            dg.DagsterInvalidDefinitionError,
            ValueError,
        ) as error:
            raise ValueError(f"{selection!r} is no selection of assets: {error}") from error
        found = [key for key in ordered if key in chosen]
        if not found:
            names = ", ".join(key.to_user_string() for key in ordered)
            raise ValueError(f"{selection!r} selects no asset; there are: {names}")
        return found

    def observe_landing(self) -> dict[str, str]:
        """Record the landed files' versions where they changed; problems by source."""
        problems = {}
        for name in self.workspace.project.use_sources:
            key = dg.AssetKey([LANDING, name])
            try:
                version = landing_version(self.workspace, name)
            except SourceError as error:
                problems[name] = str(error)
                continue
            if self._observed(key) != version:
                # The event that a run of the observable source would leave, without the run.
                tags = {DATA_VERSION_TAG: version}
                self.instance.report_runless_asset_event(dg.AssetObservation(key, tags=tags))
        return problems

    def statuses(self) -> list[AssetStatus]:
        """The status of each asset, in topological order."""
        resolver = self._resolver()
        unsettled: set[dg.AssetKey] = set()
        result = []
        for key in self.keys():
            below = bool(self.graph.get(key).parent_keys & unsettled)
            status = replace(self._status(resolver, key), below_stale=below)
            if below or status.status != "fresh":
                unsettled.add(key)
            result.append(status)
        return result

    def refresh(
        self, keys: Sequence[dg.AssetKey], on_start: Callable[[AssetStatus], None] | None = None
    ) -> Iterator[Outcome]:
        """Materialize what is stale among ``keys`` (topological), asking anew before each."""
        yield from self._run(keys, only_stale=True, on_start=on_start)

    def materialize(
        self, keys: Sequence[dg.AssetKey], on_start: Callable[[AssetStatus], None] | None = None
    ) -> Iterator[Outcome]:
        """Materialize all of ``keys`` (topological); chunks that are there are reused."""
        yield from self._run(keys, only_stale=False, on_start=on_start)

    def _run(
        self,
        keys: Sequence[dg.AssetKey],
        only_stale: bool,
        on_start: Callable[[AssetStatus], None] | None,
    ) -> Iterator[Outcome]:
        stopped: set[dg.AssetKey] = set()
        resolver = self._resolver()
        for key in keys:
            status = self._status(resolver, key)
            above = [parent for parent in self.graph.get(key).parent_keys if parent in stopped]
            if above:
                stopped.add(key)
                causes = tuple(f"{parent.to_user_string()} isn't up to date" for parent in above)
                yield Outcome(status.key, "blocked", causes)
                continue
            if only_stale and status.status == "fresh":
                continue
            if status.status == "blocked":
                stopped.add(key)
                yield Outcome(status.key, "blocked", status.causes)
                continue
            if on_start is not None:
                on_start(status)
            error = self._execute(key)
            if error is not None:
                stopped.add(key)
                yield Outcome(status.key, "failed", status.causes, error)
            else:
                yield Outcome(status.key, "materialized", status.causes)
            resolver = self._resolver()

    def _execute(self, key: dg.AssetKey) -> BaseException | None:
        job = self.defs.resolve_implicit_job_def_def_for_assets([key])
        quiet = {"loggers": {"console": {"config": {"log_level": _log_level()}}}}
        try:
            result = job.execute_in_process(
                instance=self.instance, asset_selection=[key], run_config=quiet
            )
        except DagsterExecutionInterruptedError as interruption:
            # Dagster's name for Ctrl-C; whoever called is to end, not to go on with the next asset.
            raise KeyboardInterrupt from interruption
        except Exception as error:
            return error
        return None if result.success else RuntimeError("the run failed")

    def _resolver(self) -> CachingStaleStatusResolver:
        context = LoadingContextForTest(self.instance)
        return CachingStaleStatusResolver(self.instance, self.graph, context)

    def _status(self, resolver: CachingStaleStatusResolver, key: dg.AssetKey) -> AssetStatus:
        node = self.graph.get(key)
        name = key.to_user_string()
        above = [check for parent in node.parent_keys for check in self._open_checks(parent)]
        if above:
            return AssetStatus(name, node.group_name, "blocked", tuple(above))
        status = resolver.get_status(key, None).name.lower()
        causes = resolver.get_stale_root_causes(key, None)
        reasons = tuple(
            dict.fromkeys(f"{cause.asset_key.to_user_string()} {cause.reason}" for cause in causes)
        )
        if status == "fresh" and (own := self._open_checks(key)):
            # It ran, but it isn't known that what must hold of it does: nothing to build on.
            return AssetStatus(name, node.group_name, "stale", tuple(own))
        return AssetStatus(name, node.group_name, status, reasons)

    def _open_checks(self, key: dg.AssetKey) -> list[str]:
        """Blocking checks of an asset that didn't pass at its latest run, each with what it did.

        A run that was killed leaves its checks planned for ever: they count as not passed.
        """
        checks = [
            check
            for check in self.graph.asset_check_keys
            if check.asset_key == key and self.graph.get(check).blocking
        ]
        if not checks:
            return []
        records = self.instance.event_log_storage.get_latest_asset_check_execution_by_key(checks)
        return [
            f"check {key.to_user_string()}:{check.name} {_VERDICTS.get(record.status, 'is open')}"
            for check, record in records.items()
            if record.status != AssetCheckExecutionRecordStatus.SUCCEEDED
        ]

    def _observed(self, key: dg.AssetKey) -> str | None:
        records = self.instance.fetch_observations(key, limit=1).records
        if not records:
            return None
        return records[0].asset_observation.data_version


def _as_selection(text: str) -> str:
    """``documents/web+`` as ``key:"documents/web"+``; what has Dagster's syntax stays."""
    if any(mark in text for mark in (":", '"', "(", " ", "*")):
        return text
    core = text.strip("+")
    before, _, after = text.partition(core)
    return f'{before}key:"{core}"{after}'


def _log_level() -> str:
    return os.environ.get("SAMOVAR_LOG_LEVEL", "CRITICAL")
