"""The official A2A SDK as a client of the swarm: 1.x in both versions, and 0.3 as it was."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ccswarm.support.a2a_standard_server import TEXT, Served, served
from tests.ccswarm.support.runs import RunVerbs
from tests.clients.installing import SECONDS, new_environment
from tests.conftest import client_environment

pytestmark = pytest.mark.clients
NEW, OLD = "a2a-sdk==1.3.0", "a2a-sdk==0.3.26"
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def server(shared_home: Path) -> Iterator[Served]:
    verbs = RunVerbs(shared_home, TEXT)
    os.mkfifo(verbs.pipe)
    with served(verbs) as server:
        yield server


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory, shared_home: Path) -> Path:
    return new_environment(tmp_path_factory.mktemp("new") / "venv", NEW, home=shared_home)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory, shared_home: Path) -> Path:
    return new_environment(tmp_path_factory.mktemp("old") / "venv", OLD, home=shared_home)


def driven(programs: Path, script: str, server: Served, home: Path, *words: str) -> Any:
    """What the client saw."""
    command = [str(programs / "python"), str(HERE / script), f"http://127.0.0.1:{server.port}", *words]
    ran = subprocess.run(
        command, env=client_environment(home), capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def kinds(events: list[Any]) -> list[str]:
    return [next(iter(event)) for event in events]


@pytest.mark.parametrize(
    ("version", "binding", "transport"),
    [
        ("1.0", "JSONRPC", "JsonRpcTransport"),
        ("1.0", "HTTP+JSON", "RestTransport"),
        ("0.3", "JSONRPC", "CompatJsonRpcTransport"),
    ],
)
def test_the_present_sdk(
    server: Served, shared_home: Path, new: Path, version: str, binding: str, transport: str
) -> None:
    found = driven(new, "a2a_new_client.py", server, shared_home, version, binding)
    assert found["transport"] == transport
    assert found["skills"] == ["ada", "ann", "eve", "flo", "bob", "ccswarm.plan"]
    assert kinds(found["streamed"]) == [
        "task",
        "statusUpdate",
        "statusUpdate",
        "artifactUpdate",
        "statusUpdate",
        "statusUpdate",
    ]
    assert found["streamed"][-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert found["answered"] == found["got"]
    assert found["got"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert found["got"]["artifacts"][0]["parts"][1]["data"]["steps"]["do"]["params"]["arguments"]["text"] == "say"
    assert found["faults"] == ["TaskNotFoundError", "TaskNotCancelableError", "PushNotificationNotSupportedError"]
    assert (found["cancelled"], kinds(found["followed"])[0]) == ("TASK_STATE_CANCELED", "task")
    assert found["followed"][-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"
    if version == "1.0":
        assert found["listed"][1] == found["got"]["id"]


def test_the_sdk_of_version_0_3(server: Served, shared_home: Path, old: Path) -> None:
    found = driven(old, "a2a_old_client.py", server, shared_home)
    assert found["skills"][0] == "ada"
    assert [event and event["kind"] for event in found["streamed"]] == [
        None,
        "status-update",
        "status-update",
        "artifact-update",
        "status-update",
        "status-update",
    ]
    assert found["streamed"][-1]["final"] is True
    assert found["answered"] == found["got"]
    data = found["got"]["artifacts"][0]["parts"][1]["data"]
    value = data["steps"]["say"]["params"]["arguments"]["value"]
    assert json.dumps(value) == '{"n": 9007199254740993, "z": 1.0, "a": [null, true]}'
    assert "-32001" in found["faults"][0] or "Task not found" in found["faults"][0]
    assert "-32002" in found["faults"][1] or "cannot be canceled" in found["faults"][1]
    assert found["cancelled"] == "canceled"
    assert (found["followed"][0]["kind"], found["followed"][-1]["status"]["state"]) == ("task", "canceled")
