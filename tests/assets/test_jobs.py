"""The jobs, run as Dagster runs them: one run for many assets, checks included."""

from __future__ import annotations

import pytest

from assets.definitions import DATA_GROUPS, build_definitions, nodes
from assets.instance import open_instance
from assets.planner import Planner
from pipelines.workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("jobs")]


def test_prepare_then_train_is_everything(workspace: Workspace) -> None:
    definitions = build_definitions(workspace)
    data = {node.key for node in nodes(workspace) if node.group in DATA_GROUPS}
    model = {node.key for node in nodes(workspace)} - data
    with open_instance(workspace) as instance:
        done = {}
        for name in ("prepare_data", "train"):
            result = definitions.resolve_job_def(name).execute_in_process(instance=instance)
            assert result.success
            done[name] = {
                event.asset_key.to_user_string()
                for event in result.get_asset_materialization_events()
            }
            checks = result.get_asset_check_evaluations()
            assert checks and all(check.passed for check in checks)
        assert done == {"prepare_data": data, "train": model}
        keys = definitions.resolve_job_def("everything").asset_layer.executable_asset_keys
        assert {key.to_user_string() for key in keys} == data | model
        # What the jobs built is what the planner would have: only the landed files' first
        # observation is new to it, and that computes nothing again.
        planner = Planner(workspace, definitions, instance)
        assert planner.observe_landing() == {}
        outcomes = list(planner.refresh(planner.keys()))
        assert {outcome.key for outcome in outcomes} <= {"raw/web", "raw/articles", "raw/dialogs"}
        assert {outcome.result for outcome in outcomes} <= {"materialized"}
