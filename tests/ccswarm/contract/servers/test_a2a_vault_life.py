"""Calls of AgentVault's clients that outlast something: a person's answer, the end of the server, another dialect."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ccswarm.support.a2a_standard_server import served
from tests.ccswarm.support.a2a_vault_server import PROXY, TEXT, Vault
from tests.ccswarm.support.rpc_servers import RpcServer, rpc_server
from tests.ccswarm.support.runs import QUICK, SERVERS, RunVerbs
from tests.ccswarm.support.verbs import agent
from tests.ccswarm.support.visionflow_server import Served as ServedTcp
from tests.ccswarm.support.visionflow_server import Wire
from tests.support.bounds import BOUND_SECONDS

CAREFUL = agent("proxy", "small.*", "filesystem.*", more='approval = "all"')


@pytest.fixture
def files(tmp_path: Path) -> Iterator[RpcServer]:
    with rpc_server(tmp_path) as one:
        yield one


def mapped(files: RpcServer) -> dict[str, str]:
    return {"MCP_SERVER_MAP": json.dumps({"filesystem": files.url})}


def question(verbs: RunVerbs, task: str) -> Any:
    """What is asked of a person for a task."""
    (asked,) = [one for one in verbs.json("approvals")["approvals"] if one["task_id"] == task]
    return asked


def until(vault: Vault, task: str, state: str) -> dict[str, Any]:
    """The event that says so."""
    with vault.stream(task) as events:
        return next(data for _, data in events if data["state"] == state)


def test_a_person_agrees_or_refuses_in_a_terminal(home: Path, files: RpcServer) -> None:
    verbs = RunVerbs(home, QUICK + SERVERS + CAREFUL)
    with served(verbs, **mapped(files)) as server, Vault(server.port) as vault:
        task = vault.send("filesystem", "echo", z=1, a="x")
        waits = until(vault, task, "INPUT_REQUIRED")
        asked = question(verbs, task)
        assert (asked["agent"], asked["tool"]) == ("proxy", "filesystem.echo")
        assert asked["arguments"] == {"z": "1", "a": "x"}
        number = asked["id"]
        words = f"a person must approve it: ccswarm approve {number}, or ccswarm reject {number}"
        assert waits["message"] == words
        assert {one["method"] for one in files.asked} <= {"tools/list", "list_sessions"}, "the tool was not called"
        verbs.run("approve", number)
        reported = vault.over(task)
        assert reported["messages"][1]["parts"][0]["content"]["mcp_result"]["given"] == {"z": 1, "a": "x"}
        other = vault.send("filesystem", "echo", text="no")
        until(vault, other, "INPUT_REQUIRED")
        verbs.run("reject", question(verbs, other)["id"], "--reason", "not today")
        refused = vault.over(other)["messages"][1]["parts"][0]["content"]["error"]
        assert refused == {"source": "A2A_PROXY", "code": "REJECTED", "message": "not today"}
        left = vault.send("filesystem", "echo", text="never mind")
        until(vault, left, "INPUT_REQUIRED")
        assert vault.ask("tasks/cancel", id=left)["success"]
        assert vault.over(left)["state"] == "CANCELED"
        assert verbs.json("approvals")["approvals"] == []
        assert [one["params"] for one in files.asked if one["method"] == "echo"] == [{"z": 1, "a": "x"}]


@pytest.mark.parametrize(
    "how",
    [pytest.param(signal.SIGTERM, marks=pytest.mark.torture), pytest.param(signal.SIGKILL, marks=pytest.mark.torture)],
)
def test_a_question_outlives_the_server_and_a_call_under_way_does_not(
    home: Path, files: RpcServer, how: signal.Signals
) -> None:
    lost = QUICK.replace("[engine]\n", "[engine]\nlost_after_seconds = 1.0\n")
    verbs = RunVerbs(home, lost + SERVERS + '[a2a]\nagent = "proxy"\n' + CAREFUL)
    with served(verbs, **mapped(files)) as first, Vault(first.port) as vault:
        waits = vault.send("filesystem", "echo", text="later")
        until(vault, waits, "INPUT_REQUIRED")
        over = vault.send("filesystem", "hold")
        until(vault, over, "INPUT_REQUIRED")
        verbs.run("approve", question(verbs, over)["id"])
        assert files.held.wait(BOUND_SECONDS)
        with vault.stream(over) as events, vault.stream(waits) as waiting:
            assert next(events)[1]["state"] == "WORKING"
            assert next(waiting)[1]["state"] == "INPUT_REQUIRED"
            if how is signal.SIGTERM:
                assert first.end(how) == 0
                assert [name for name, _ in waiting] == ["error"]
                assert [data["state"] for name, data in events if name == "task_status"] == ["FAILED"]
            else:
                assert first.end(how) == -9
        assert files.gone.wait(BOUND_SECONDS)
        files.gone.clear()
    with served(verbs, **mapped(files)) as second, Vault(second.port) as vault:
        failed = vault.over(over)
        error = failed["messages"][1]["parts"][0]["content"]["error"]
        assert (failed["state"], error["code"], error["details"]) == ("FAILED", "PROXY_STOPPED", {"effect": "unknown"})
        assert until(vault, waits, "INPUT_REQUIRED")
        verbs.run("approve", question(verbs, waits)["id"])
        assert vault.over(waits)["state"] == "COMPLETED"
        assert [one["params"] for one in files.asked if one["method"] == "echo"] == [{"text": "later"}]


@pytest.mark.torture
def test_calls_beyond_the_budget_are_refused(home: Path) -> None:
    more = "[agents.budget]\ncalls = 2\n"
    verbs = RunVerbs(home, QUICK + SERVERS + agent("proxy", "small.*") + more)
    with served(verbs) as server, Vault(server.port) as vault:
        assert vault.said("small", "echo", text="1")["success"]
        assert vault.said("small", "echo", text="2")["success"]
        assert vault.error("small", "echo", text="3") == ("A2A_PROXY", "BUDGET_EXHAUSTED")


def test_it_has_to_be_said_who_calls_where_there_is_more_than_one(home: Path) -> None:
    verbs = RunVerbs(home, QUICK + SERVERS + PROXY + agent("other", "small.echo"))
    with served(verbs) as server, Vault(server.port) as vault:
        fault = vault.fault("tasks/send", **_echo())
        assert fault["code"] == -32000
        assert "no agent is set for calling tools" in fault["message"]


def _echo() -> dict[str, Any]:
    content = {"target_mcp_server_id": "small", "tool_name": "echo", "arguments": {}}
    return {"message": {"role": "user", "parts": [{"type": "data", "content": content}]}}


def test_two_dialects_are_served_by_one_process_and_end_with_it(home: Path) -> None:
    verbs = RunVerbs(home, TEXT)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    server = ServedTcp(verbs, "--a2a", "--a2a-port", str(port))
    try:
        server.until_ready("A2A")
        with Wire(server.port) as wire, Vault(port) as vault:
            assert vault.said("small", "echo", text="one")["success"]
            assert wire.ask("ping") == {}
        assert server.end() == 0, server.said
    finally:
        server.close()


@pytest.mark.parametrize(
    ("words", "variables", "reported"),
    [
        (("--agent", "nobody"), {}, "there is no agent 'nobody'"),
        ((), {"MCP_SERVER_MAP": "[]"}, "MCP_SERVER_MAP is not an object"),
        ((), {"MCP_SERVER_MAP": '{"small": "http://127.0.0.1:1"}'}, "which the configuration names as well"),
        ((), {"MCP_SERVER_MAP": '{"x": "http://127.0.0.1:1"}', "MCP_CALL_TIMEOUT": "soon"}, "which is not a duration"),
        (("--host", "0.0.0.0"), {}, "other machines can reach"),
    ],
)
def test_what_cannot_be_served_is_refused_at_once(
    home: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], variables: dict[str, str], reported: str
) -> None:
    verbs = RunVerbs(home, TEXT)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert reported in verbs.run("serve", "--a2a", "--port", "0", *words, code=2).err


def test_an_address_in_use_and_a_second_process_are_reported(home: Path) -> None:
    verbs = RunVerbs(home, TEXT)
    with served(verbs) as server:
        assert "another process serves A2A" in verbs.run("serve", "--a2a", "--port", "0", code=1).err
        taken = verbs.run("serve", "--a2a", "--port", str(server.port), code=1).err
        assert f"port {server.port}:" in taken
    said = verbs.run("serve", "--a2a", "--tcp", "--port", "1", code=2).err
    assert "--port is ambiguous with several dialects" in said
    assert "no dialect to serve was given" in verbs.run("serve", code=2).err
