"""Every way in of MCP clients: each request passes the gate once, and does nothing where that is shut."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentwire import plugins
from ai_session.http.gate_client import RemoteGate
from ai_session.models import Principal, ToolCall, ToolResult
from ai_session.tools.base import Tool
from tests.ai_session.support.entries import SHUT, Audit, DaemonHome
from tests.ai_session.support.mcp_client import SERVER, Client, living_in, runtime, stop_daemons
from tests.conftest import client_environment, environment
from tests.support import forked

TOOLS: dict[str, dict[str, Any]] = {
    "create_session": {"name": "new", "backend": "pty"},
    "list_sessions": {},
    "get_session_info": {"session_id": "s"},
    "execute_command": {"session_id": "s", "command": "echo > executed"},
    "read_output": {"session_id": "s"},
    "read_screen": {"session_id": "s"},
    "send_input": {"session_id": "s", "keys": ["Enter"]},
    "interrupt_command": {"session_id": "s"},
    "resize_session": {"session_id": "s", "rows": 30, "cols": 90},
    "describe_sessions": {},
    "list_commands": {"session_id": "s"},
    "list_calls": {"session_id": "s"},
    "get_recording": {"session_id": "s"},
    "query_commands": {},
    "query_output": {"pattern": "x"},
    "query_recordings": {},
    "query_audit": {},
    "read_bytes": {"session_id": "s", "command_id": "c", "offset": 0},
    "signal_command": {"session_id": "s", "command_id": "c", "signal": 1},
    "set_echo": {"session_id": "s", "command_id": "c", "echo": True},
    "faq": {"query": "how is a terminal shared?"},
    "analyze_repository": {"root": "."},
    "detect_frameworks": {},
    "generate_integration_steps": {"framework": "fastapi"},
    "propose_edit_plan": {"framework": "fastapi", "root": "."},
    "validate_edit_plan": {"plan": {"edits": []}, "root": "."},
    "run_integration_workflow": {"root": "."},
    "write_file": {"path": "made.txt", "content": ""},
    "read_file": {"path": "made.txt"},
    "list_directory": {"path": "."},
    "run_python": {"code": "print(1)"},
    "close_session": {"session_id": "s"},
}

FOR_PEOPLE = {"query_audit"}
"""Refused to whoever is no person, also where all is allowed."""

KNOWN: list[Tool] = [
    tool for name in plugins.names("ai_session.tools") for tool in plugins.load("ai_session.tools", name)
]
LISTED = {name: arguments for name, arguments in TOOLS.items() if name in {tool.name for tool in KNOWN if tool.listed}}
"""The others stand behind resources, prompts and other protocols, and are no tools of MCP."""

TEMPLATE = {"type": "ref/resource", "uri": "session://{id}/output/{command_id}"}
REQUESTS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("prompts/list", {}, []),
    ("resources/templates/list", {}, []),
    ("resources/list", {}, ["describe_sessions"]),
    ("resources/read", {"uri": "session://list"}, ["list_sessions"]),
    ("resources/read", {"uri": "session://s/info"}, ["get_session_info"]),
    ("resources/read", {"uri": "session://s/screen"}, ["read_screen"]),
    ("resources/read", {"uri": "session://s/output/all"}, ["read_output"]),
    ("resources/read", {"uri": "session://s/recording"}, ["get_recording"]),
    ("completion/complete", {"ref": TEMPLATE, "argument": {"name": "id", "value": ""}}, ["describe_sessions"]),
    ("prompts/get", {"name": "hand_over", "arguments": {"session": "s"}}, ["get_session_info", "read_screen"]),
    ("prompts/get", {"name": "review_session", "arguments": {"session": "s"}}, ["list_calls", "list_commands"]),
]
"""What is no call of a tool, and the calls it makes; those of one era are below."""

SUBSCRIBING = {
    True: ("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["session://s/info"]}}),
    False: ("resources/subscribe", {"uri": "session://s/info"}),
}

OTHER_METHODS = (
    *("resources/read", "resources/subscribe", "subscriptions/listen", "prompts/get", "completion/complete"),
    *("logging/setLevel",),
    *("tasks/list", "tasks/get", "tasks/cancel"),
)
"""What MCP knows besides tools, asked for without saying what, or what this server does not have."""


ALL_SCOPES = frozenset({"sessions:read", "sessions:write", "sessions:execute"})


def test_every_tool_has_its_entry() -> None:
    assert {tool.name for tool in KNOWN} == TOOLS.keys()


def own_runtime(client: Client) -> Path:
    """Where a server without a daemon keeps its files."""
    for fd in Path(f"/proc/{client.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if "/audit/audit-" in (location := os.readlink(fd)):
                return Path(location).parents[1]
    raise AssertionError


@pytest.fixture
def served(home: Path) -> Iterator[Path]:
    yield home
    stop_daemons(home)


@pytest.fixture
def served_already(served: Path) -> Path:
    forked.daemon(living_in(served))
    return served


@pytest.mark.parametrize(
    "flags", [(), pytest.param(("--no-daemon",), marks=pytest.mark.torture)], ids=["daemon", "no-daemon"]
)  # without a daemon: the denied client below
def test_every_tool_over_mcp_passes_the_gate_once(served: Path, flags: tuple[str, ...]) -> None:
    with Client([*SERVER, *flags], env=living_in(served), cwd=served) as client:
        for modern in (True, False):
            if not modern:
                client.initialize()
            client.call("create_session", modern=modern, name="s", backend="pty", working_directory=str(served))
            audit = Audit(own_runtime(client) if flags else runtime(served))
            pass_once(client, audit, modern=modern)
            assert (served / "executed").exists()
            (served / "executed").unlink()
            client.call("close_session", session_id="new")
        client.end()


@pytest.mark.anyio
async def test_every_tool_by_a_front_passes_the_gate_once(
    served_already: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = served_already
    monkeypatch.chdir(served)  # where a front is started, files are written
    gate, principal = RemoteGate(authenticated=True), Principal("mcp", os.getuid(), subject="alice", scopes=ALL_SCOPES)

    async def call(tool: str, arguments: dict[str, Any]) -> ToolResult:
        return await gate.call(ToolCall(principal, tool, arguments, f"call_{os.urandom(8).hex()}", unlisted=True))

    try:
        await call("create_session", {"name": "s", "backend": "pty", "working_directory": str(served)})
        audit = Audit(runtime(served))
        for tool, arguments in TOOLS.items():
            result = await call(tool, arguments)
            ((begin, end),) = audit.calls()
            assert (begin["tool"], begin["call"]) == (tool, result.call_id)
            refused = "denied" if tool in FOR_PEOPLE else "tool_error"
            assert end["outcome"] == (refused if result.is_error else "ok")
        assert audit.tools() == []
        await gate.list_tools(principal)
        assert audit.tools() == []
        (await gate.watch_changes(principal)).close()
        assert audit.tools() == ["watch_changes"]
    finally:
        await gate.close()


def pass_once(client: Client, audit: Audit, *, modern: bool) -> None:
    for tool, arguments in LISTED.items():
        result = client.call(tool, modern=modern, **arguments)
        ((begin, end),) = audit.calls()
        meta = result["_meta"]
        assert (begin["tool"], begin["call"]) == (tool, meta["ai-session/call_id"])
        assert {"seq": end["seq"], "head": end["hash"]} == meta["ai-session/audit"]
        assert end["outcome"] == ("tool_error" if result.get("isError") else "ok")
        if tool == "resize_session":
            ask_once(client, audit, modern=modern)
    unlisted = {name: arguments for name, arguments in TOOLS.items() if name not in LISTED}
    for tool, arguments in {**unlisted, "no_tool": {}}.items():
        unknown = client.ask("tools/call", {"name": tool, "arguments": arguments}, modern=modern)
        assert unknown["error"]["code"] == -32602
        ((_, end),) = audit.calls()
        assert (end["tool"], end["outcome"]) == (tool, "invalid")
    for method in OTHER_METHODS:
        assert "error" in client.ask(method, {}, modern=modern), method
    assert client.result("tools/list", modern=modern)["tools"]
    assert audit.calls() == []


def ask_once(client: Client, audit: Audit, *, modern: bool) -> None:
    for method, params, asks in REQUESTS:
        assert "result" in (answer := client.ask(method, params, modern=modern)), (params, answer)
        pairs = audit.calls()
        assert [(begin["tool"], end["outcome"]) for begin, end in pairs] == [(tool, "ok") for tool in asks], params
    method, params = SUBSCRIBING[modern]
    if modern:
        number = client.request(method, params, modern=True)
        assert client.read()["method"] == "notifications/subscriptions/acknowledged"
        client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        assert audit.tools() == ["watch_changes"]
    else:
        assert client.ask(method, params)["result"] == {}
        assert audit.tools() == ["get_session_info", "watch_changes"]


def test_every_tool_over_mcp_does_nothing_where_all_is_denied(shut_house: DaemonHome) -> None:
    here = shut_house
    before = here.state()
    with Client(cwd=here.home, env=living_in(here.home)) as client:
        client.initialize()
        audit = Audit(here.runtime)
        for tool, arguments in LISTED.items():
            result = client.call(tool, **arguments)
            assert result["_meta"]["ai-session/error"]["code"] == "denied", result
            assert audit.denied() == [tool]
        for method, params, asks in [*REQUESTS, (*SUBSCRIBING[False], ["get_session_info"])]:
            answer = client.ask(method, params)
            assert ("shut" in answer.get("error", {}).get("message", "")) == bool(asks), answer
            assert audit.denied() == asks[:1]
        method, params = SUBSCRIBING[True]
        assert "shut" in client.ask(method, params, modern=True)["error"]["message"]
        assert audit.denied() == ["watch_changes"]
        assert here.state() == before
        client.end()


@pytest.mark.anyio
async def test_every_tool_by_a_front_does_nothing_where_all_is_denied(shut_house: DaemonHome) -> None:
    here, principal = shut_house, Principal("mcp", os.getuid(), subject="alice", scopes=ALL_SCOPES | {"admin"})
    before, audit = here.state(), Audit(here.runtime)
    with environment(client_environment(here.home)):
        gate = RemoteGate(authenticated=True)
        for tool, arguments in TOOLS.items():
            result = await gate.call(ToolCall(principal, tool, arguments, f"call_{tool}", unlisted=True))
            assert result.structured["error"]["code"] == "denied", result
            assert audit.denied() == [tool]
        await gate.close()
    assert here.state() == before


def test_without_a_daemon_a_denied_client_gets_no_session(served: Path) -> None:
    (served / ".config/ai-session/config.toml").write_text(SHUT)
    with Client([*SERVER, "--no-daemon"], cwd=served) as client:
        client.initialize()
        client.call("list_sessions")
        audit = Audit(own_runtime(client))
        for tool, arguments in LISTED.items():
            assert client.call(tool, **arguments)["isError"]
            ((begin, end),) = audit.calls()
            named = "session_id" in arguments
            assert (begin["tool"], end["code"]) == (tool, "session_not_found" if named else "denied")
        assert list((audit.directory.parent / "sessions").iterdir()) == []
        client.end()
