"""What a daemon loads until its first session is open: all else a person would wait for."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ai_session.errors import SandboxUnavailable
from ai_session.models import TRUSTED, Principal, SandboxProfile, ToolCall, ToolResult
from ai_session.sessions.changes import Changes
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.spec import SessionDefaults
from tests.ai_session.contract.sessions.test_session_changes_watchers import Gate, ServedClient
from tests.ai_session.support.sessions import request, run, runtime_directory
from tests.conftest import UNBOXED_VARIABLES
from tests.support.bounds import BOUND_SECONDS

NEEDED = {"annotated_types", "pydantic", "pydantic_core", "re2", "typing_extensions", "typing_inspection"}

OPEN = """
import asyncio, gc, json, os, sys
from functools import partial
from pathlib import Path

OURS = {"agentwire", "ai_session"}
before = set(sys.modules)
from ai_session.daemon.host import Daemon
from ai_session.models import Principal
from ai_session.servers.mcp.caller import Caller
from ai_session.servers.mcp.conversation import Conversation
from ai_session.servers.mcp.plugin import McpServer

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "x"}}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}, "url": {}}},
    "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
}
LISTEN = {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE}


async def main():
    daemon, answered, loaded = Daemon(Path(sys.argv[1])), asyncio.Queue(), {}

    def send(message):
        if "id" in message:
            loaded[message["id"]] = {name.partition(".")[0] for name in set(sys.modules) - before if name[0] != "_"}
            answered.put_nowait(message)

    who = Principal("mcp", os.getuid(), os.getpid(), working_directory=os.getcwd(), env=dict(os.environ))
    sdk = partial(McpServer().sdk, daemon)
    conversation = Conversation(Caller(daemon.gate, who), send, 10, sdk)
    hello = {"jsonrpc": "2.0", "id": "h", "method": "initialize", "params": HELLO}
    conversation.receive(hello, {"result": {"protocolVersion": "2025-11-25"}})
    failed = {}
    conversation.receive({"jsonrpc": "2.0", "id": "s", "method": "subscriptions/listen", "params": LISTEN})
    conversation.receive({"jsonrpc": "2.0", "id": "t", "method": "tools/list", "params": {"_meta": ENVELOPE}})
    count = len((await answered.get())["result"]["tools"])
    for backend, meta in (("tmux", ENVELOPE), ("pty", {})):
        params = {"name": "create_session", "arguments": {"name": backend, "backend": backend}, "_meta": meta}
        conversation.receive({"jsonrpc": "2.0", "id": backend, "method": "tools/call", "params": params})
        failed[backend] = (await answered.get())["result"]["isError"]
    sys.modules["mcp"] = None
    conversation.receive({"jsonrpc": "2.0", "id": "r", "method": "resources/list"})
    error = (await answered.get())["error"]["message"]
    params = {"name": "list_sessions", "arguments": {}}
    conversation.receive({"jsonrpc": "2.0", "id": "l", "method": "tools/call", "params": params})
    listed = len((await answered.get())["result"]["structuredContent"]["sessions"])
    await conversation.settle()
    ended = [(await answered.get())["result"]["resultType"], count]
    await conversation.ended()
    await daemon.app.stop(sessions=True)
    others = sorted(loaded["tmux"] - sys.stdlib_module_names - OURS)
    print(json.dumps([failed, ended, others, error, listed, gc.isenabled()]))


asyncio.run(main())
"""


def test_the_first_session_loads_no_more_than_it_needs_and_does_without_the_sdk(home: Path, tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    (workspace := tmp_path / "ws").mkdir()
    environment = {**os.environ, **UNBOXED_VARIABLES, "PYTHONPATH": str(Path(__file__).parents[4])}
    line = [sys.executable, "-P", "-c", OPEN, str(runtime)]
    done = subprocess.run(line, cwd=workspace, env=environment, capture_output=True, text=True, timeout=BOUND_SECONDS)
    assert done.returncode == 0, done.stderr
    failed, (ended, tools), others, error, listed, collects = json.loads(done.stdout)
    assert failed == {"pty": False, "tmux": False}, "without a word from the SDK, in either era"
    assert ended == "complete"
    assert tools > 5
    assert set(others) <= NEEDED, "also for who listens, lists the tools and names itself in each request"
    assert "the MCP SDK cannot be imported" in error
    assert listed == 2
    assert collects, "garbage, once all is imported"


class CreatingGate(Gate):
    """Each call changes the list of sessions."""

    async def call(self, call: ToolCall, asker: object = None) -> ToolResult:
        spec: Any = SimpleNamespace(session_id="ses_1", name="main")
        self.changes.listed(spec)
        return await super().call(call, asker)


@pytest.mark.anyio
async def test_what_changes_before_the_sdk_is_there_is_told() -> None:
    async with ServedClient(CreatingGate()) as peer:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "peer", "version": "1"}}
        peer.send(id="h", method="initialize", params=hello)
        peer.send(method="notifications/initialized")
        peer.send(id="c", method="tools/call", params={"name": "create_session"})
        said = [await peer.read() for _ in range(3)]
    assert [message.get("id") for message in said[:2]] == ["h", "c"]
    assert said[2]["method"] == "notifications/resources/list_changed"


class WatchedGate(Gate):
    """Says when somebody watches."""

    def __init__(self) -> None:
        super().__init__()
        self.watched = asyncio.Event()

    async def watch_changes(self, principal: Principal, agent: str, run: str, kinds: Any) -> Changes:
        self.watched.set()
        return await super().watch_changes(principal, agent, run, kinds)


@pytest.mark.anyio
async def test_who_shook_hands_and_asks_for_nothing_is_told_what_changes() -> None:
    gate = WatchedGate()
    async with ServedClient(gate) as peer:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "peer", "version": "1"}}
        peer.send(id="h", method="initialize", params=hello)
        peer.send(method="notifications/initialized")
        assert (await peer.read())["id"] == "h"
        await gate.watched.wait()
        spec: Any = SimpleNamespace(session_id="ses_1", name="main")
        gate.changes.listed(spec)
        assert (await peer.read())["method"] == "notifications/resources/list_changed"


@pytest.mark.anyio
@pytest.mark.parametrize("backend", ["pty", "tmux"])
async def test_a_box_that_is_refused_leaves_no_backend_half_started(home: Path, backend: str) -> None:
    manager = SessionManager(runtime_directory(home), SessionDefaults(backend=backend))
    boxed = replace(request(), profile=SandboxProfile("workspace", str(home), str(home)))
    before = asyncio.all_tasks()
    try:
        with pytest.raises(SandboxUnavailable, match="cannot make boxes"):
            await manager.create(boxed)
        assert asyncio.all_tasks() == before
        session = await manager.create(replace(boxed, profile=TRUSTED))
        assert (await run(session, "printf yes")).output == "yes"
    finally:
        await manager.stop()
