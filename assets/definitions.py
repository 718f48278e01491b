"""The graph of a profile put together: assets with their checks, jobs, the refresh sensor."""

from __future__ import annotations

import itertools
import warnings

import dagster as dg

from assets import chat, checkpoints, documents, evaluation, quality, raw, tokens
from assets.factory import asset_of
from assets.nodes import Node
from assets.refresh import refresh_sensor
from pipelines.workspace import Workspace

DATA_GROUPS = ("raw", "documents", "chat", "tokenizer", "shards")
_MODULES = (raw, documents, chat, tokens, checkpoints, evaluation, quality)


def nodes(workspace: Workspace) -> list[Node]:
    """All nodes of the active profile's graph."""
    return list(itertools.chain.from_iterable(module.nodes(workspace) for module in _MODULES))


def build_definitions(workspace: Workspace) -> dg.Definitions:
    """Everything Dagster needs to know. Nothing here reads any data."""
    with warnings.catch_warnings():
        # observable_source_asset is in beta; it alone gives a source's files a data version that
        # makes its downstream stale.
        warnings.simplefilter("ignore", dg.BetaWarning)
        landing = [raw.landing_asset(workspace, name) for name in workspace.project.use_sources]
    data = dg.AssetSelection.groups(*DATA_GROUPS)
    # A landing folder is observed, never materialized.
    data -= dg.AssetSelection.key_prefixes("landing")
    model = dg.AssetSelection.groups(checkpoints.GROUP, evaluation.GROUP, "quality")
    definitions = dg.Definitions(
        assets=[*landing, *(asset_of(node, workspace) for node in nodes(workspace))],
        jobs=[
            _job("prepare_data", data, "From the raw files to token shards."),
            _job("train", model, "Pretraining, SFT, evaluation, and the report."),
            _job("everything", data | model, "From the raw files to the report."),
        ],
        sensors=[refresh_sensor(workspace, lambda: definitions)],
        # Stages use all cores themselves, and each depends on the one before.
        executor=dg.in_process_executor,
    )
    return definitions


def _job(
    name: str, selection: dg.AssetSelection, description: str
) -> dg.UnresolvedAssetJobDefinition:
    return dg.define_asset_job(name, selection, description=description)
