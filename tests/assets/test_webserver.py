"""The UI's own way: a real ``dagster dev``, asked and driven through its GraphQL interface."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("built")]

_NODES = """
{ assetNodes { assetKey { path } groupName description staleStatus isObservable jobNames
  assetChecksOrError { ... on AssetChecks { checks { name blocking } } }
  assetMaterializations(limit: 1) { metadataEntries { label __typename } } } }
"""
_LAUNCH = """
mutation($selector: JobOrPipelineSelector!) {
  launchPipelineExecution(executionParams: {selector: $selector, mode: "default"}) {
    __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }
"""
_RUN = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"


class Server:
    """A running ``dagster dev`` of a project."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/graphql"

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(self.url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            result = json.load(answer)
        assert "errors" not in result, result["errors"]
        return result["data"]

    def nodes(self) -> dict[str, dict[str, Any]]:
        found = self.ask(_NODES)["assetNodes"]
        return {"/".join(node["assetKey"]["path"]): node for node in found}

    def materialize(self, *keys: str) -> str:
        """Launch a run as the UI does; returns its final status."""
        selector = {
            "repositoryName": "__repository__",
            "repositoryLocationName": "samovar",
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [{"path": key.split("/")} for key in keys],
        }
        launched = self.ask(_LAUNCH, selector=selector)["launchPipelineExecution"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            status = self.ask(_RUN, id=launched["run"]["runId"])["runOrError"]["status"]
            if status in ("SUCCESS", "FAILURE", "CANCELED"):
                return status
            time.sleep(0.5)
        raise AssertionError("the run didn't end")


@pytest.fixture
def server(
    built_project: Path, run_samovar: Callable[..., subprocess.CompletedProcess[str]]
) -> Iterator[Server]:
    # What `samovar setup` writes into .env is all that `dagster dev` is told.
    assert run_samovar(built_project, "setup").returncode == 0
    (built_project.parent / "pyproject.toml").write_text(
        '[tool.dagster]\nmodule_name = "assets.code_location"\ncode_location_name = "samovar"\n',
        encoding="utf-8",
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [Path(sys.executable).with_name("dagster"), "dev", "--port", str(port)],
        cwd=built_project.parent,
        env={**os.environ, "SAMOVAR_PROJECT": str(built_project)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    server = Server(port)
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                if server.nodes():
                    break
            except OSError:
                pass
            assert process.poll() is None, process.stdout.read().decode()
            assert time.monotonic() < deadline, "the webserver didn't come up"
            time.sleep(0.5)
        yield server
    finally:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def test_graph_in_the_ui(server: Server, built_project: Path, prose: list[str]) -> None:
    nodes = server.nodes()
    groups = {node["groupName"] for node in nodes.values()}
    assert groups == {
        *("raw", "documents", "chat", "tokenizer", "shards"),
        *("checkpoints", "evaluation", "quality"),
    }
    assert all(node["description"] for node in nodes.values())
    built = {key: node for key, node in nodes.items() if not node["isObservable"]}
    assert {node["staleStatus"] for node in built.values()} == {"FRESH"}
    labels = {
        key: {e["label"] for m in node["assetMaterializations"] for e in m["metadataEntries"]}
        for key, node in built.items()
    }
    assert {"drops by reason", "lengths", "kept", "dropped"} <= labels["documents/web"]
    assert {"loss", "final loss"} <= labels["checkpoints/pretrain"]
    assert all({"seconds", "chunks", "bytes", "folder"} <= found for found in labels.values())
    checks = {
        f"{key}:{check['name']}"
        for key, node in built.items()
        for check in node["assetChecksOrError"]["checks"]
        if check["blocking"]
    }
    assert {
        "documents/web:conservation",
        "dialogs/chat:conservation",
        "tokenizer:round_trip",
        "shards/chat:mask_only_on_answers",
        "checkpoints/sft:finite_loss",
    } <= checks
    jobs = {name for node in built.values() for name in node["jobNames"]}
    assert {"prepare_data", "train", "everything"} <= jobs

    # A new file: the UI's materialization builds the raw dataset, and what is below turns stale.
    added = built_project.parent / "landing" / "web" / "002.txt"
    added.write_text("\n===\n".join(prose[24:28]), encoding="utf-8")
    assert server.materialize("raw/web") == "SUCCESS"
    nodes = server.nodes()
    assert nodes["raw/web"]["staleStatus"] == "FRESH"
    assert nodes["measurements/web"]["staleStatus"] == "STALE"
    assert nodes["raw/articles"]["staleStatus"] == "FRESH"


def test_webserver_listens_on_loopback_only(server: Server) -> None:
    port = int(server.url.rpartition(":")[2].partition("/")[0])
    listening = [
        line.split()[1]
        for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
        if line.split()[3] == "0A"  # LISTEN
    ]
    addresses = {entry.split(":")[0] for entry in listening if int(entry.split(":")[1], 16) == port}
    assert addresses == {"0100007F"}
