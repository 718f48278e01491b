"""Dagster's own home (run history, event log): inside the data root, without telemetry.

``dagster dev`` reads ``.env`` of the working folder before it opens its instance, so that is where
the home is written down for it (``samovar setup``, ``samovar dev``). The command line sets the
environment variable itself.
"""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

from pipelines.config.load import PROFILE_VARIABLE
from pipelines.workspace import Workspace

HOME_VARIABLE = "DAGSTER_HOME"

_DAGSTER_YAML = """\
# Written by samovar; changes are kept.
telemetry: {enabled: false}
nux: {enabled: false}   # else a newsletter window covers the page at first open
run_retries: {enabled: true, max_retries: 2, retry_on_asset_or_op_failure: false}
run_monitoring:
  enabled: true
  start_timeout_seconds: 60
  cancel_timeout_seconds: 20
  poll_interval_seconds: 5
concurrency:
  runs: {max_concurrent_runs: 4}
"""


def dagster_home(workspace: Workspace) -> Path:
    """The profile's home, made when it isn't there."""
    home = workspace.storage.local_root / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "dagster.yaml"
    if not settings.exists():
        settings.write_text(_DAGSTER_YAML, encoding="utf-8")
    return home


def open_instance(workspace: Workspace) -> dg.DagsterInstance:
    """The profile's instance, also for the processes that are started from here."""
    home = str(dagster_home(workspace))
    os.environ[HOME_VARIABLE] = home
    return dg.DagsterInstance.from_config(home)


def write_env_file(workspace: Workspace) -> Path:
    """Tell ``dagster dev`` profile and home through ``.env``; other lines of it stay."""
    path = workspace.base / ".env"
    values = {
        PROFILE_VARIABLE: workspace.project.profile,
        HOME_VARIABLE: str(dagster_home(workspace)),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }
    old = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept = [line for line in old if line.partition("=")[0].strip() not in values]
    lines = [*kept, *(f"{name}={value}" for name, value in values.items())]
    content = "\n".join(lines) + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != content:
        path.write_text(content, encoding="utf-8")
    return path
