"""The sensor asks for what the planner would run next, and for nothing when all is fresh."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from assets.definitions import build_definitions
from assets.instance import open_instance
from pipelines.workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("built")]


def tick(workspace: Workspace) -> dg.RunRequest | dg.SkipReason:
    definitions = build_definitions(workspace)
    (sensor,) = definitions.sensors
    with open_instance(workspace) as instance:
        data = sensor.evaluate_tick(
            dg.build_sensor_context(instance, definitions=definitions, sensor_name=sensor.name)
        )
    return data.run_requests[0] if data.run_requests else dg.SkipReason(data.skip_message)


def test_fresh_graph_is_left_alone(built_project: Path) -> None:
    result = tick(Workspace.open(file=built_project))
    assert isinstance(result, dg.SkipReason)
    assert result.skip_message == "nothing is stale"


def test_changed_setting_asks_for_the_first_stale_asset(built_project: Path) -> None:
    changed = Workspace.open(overrides=["tokenizer.min_frequency=3"], file=built_project)
    result = tick(changed)
    assert isinstance(result, dg.RunRequest)
    assert result.asset_selection == [dg.AssetKey("tokenizer")]
    assert tick(changed).run_key == result.run_key
    other = tick(Workspace.open(overrides=["tokenizer.min_frequency=4"], file=built_project))
    assert other.run_key != result.run_key


def test_missing_files_are_named(built_project: Path) -> None:
    for path in (built_project.parent / "landing" / "web").iterdir():
        path.unlink()
    result = tick(Workspace.open(file=built_project))
    assert isinstance(result, dg.SkipReason)
    assert "landing/web" in result.skip_message
