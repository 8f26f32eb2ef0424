"""Who watches real sessions, and that nobody watches any more who has gone."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import pytest

from ai_session.models import Change, Principal, ToolCall, ToolResult
from ai_session.servers.base import Connection
from ai_session.servers.mcp.plugin import McpServer
from ai_session.sessions.changes import ChangeFeed, Changes
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.session import Session
from ai_session.sessions.spec import SessionDefaults
from tests.ai_session.contract.servers.test_control import MemoryHost
from tests.ai_session.support.mcp_client import ENVELOPE, Message
from tests.ai_session.support.sessions import request, run, runtime_directory, successor
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio

CLIENT = Principal("mcp", uid=0, pid=7)


@pytest.fixture(params=["pty", "tmux"])
async def manager(home: Path, request: pytest.FixtureRequest) -> AsyncIterator[SessionManager]:
    made = SessionManager(runtime_directory(home), SessionDefaults(backend=request.param))
    yield made
    await made.stop()
    await made.aclose()


async def heard(changes: Changes, *wanted: Change) -> set[Change]:
    """What is told until all that is ``wanted`` was."""
    seen: set[Change] = set()
    async with asyncio.timeout(BOUND_SECONDS):
        while not seen.issuperset(wanted):
            seen |= await changes.next()
    return seen


def about(session: Session, kind: Any) -> Change:
    return Change(kind, session.spec.session_id, session.spec.name)


async def test_a_session_is_reported_from_its_creation_to_its_end(manager: SessionManager) -> None:
    changes = manager.changes.watch(lambda _: True)
    session = await manager.create(request())
    await heard(changes, about(session, "list"), about(session, "state"))
    await run(session, "echo told")
    seen = await heard(changes, about(session, "state"))
    async with asyncio.timeout(BOUND_SECONDS):
        while not any("cmd" in change.commands for change in seen):
            seen |= await changes.next()
    manager.rename(session, "other")
    await heard(changes, Change("list", session.spec.session_id), Change("state", session.spec.session_id))
    await manager.resize(session, 30, 90)
    await heard(changes, about(session, "state"))
    await manager.close(session)
    await heard(changes, about(session, "list"), about(session, "state"), about(session, "output"))
    assert len(manager.changes) == 1
    changes.close()
    assert len(manager.changes) == 0


async def test_the_next_daemons_sessions_are_watched_too(manager: SessionManager) -> None:
    session = await manager.create(request())
    await manager.aclose()
    later = successor(manager)
    try:
        changes = later.changes.watch(lambda _: True)
        await later.adopt()
        again = later.find(session.spec.session_id)
        assert again
        await run(again, "cd /")
        await heard(changes, about(again, "state"))
        changes.close()
    finally:
        await later.stop()
        await later.aclose()


class Gate:
    """Lets everybody watch, and knows nothing."""

    def __init__(self) -> None:
        self.changes = ChangeFeed(tuple)

    async def call(self, call: ToolCall, asker: Any = None) -> ToolResult:
        return ToolResult("", {"sessions": []})

    async def watch_changes(self, principal: Principal, agent: str, run: str, kinds: Any) -> Changes:
        return self.changes.watch(lambda _: True, kinds)


class ServedClient:
    """A client of a server in this process."""

    def __init__(self, gate: Any) -> None:
        here, there = socket.socketpair()
        self._here = here
        self._there = there
        self._gate = gate
        self._id = 0

    async def __aenter__(self) -> Self:
        host: Any = MemoryHost(inner=self._gate)
        connection = Connection(*await asyncio.open_connection(sock=self._there), CLIENT, {}, host)
        self.serving = asyncio.ensure_future(McpServer().serve(connection))
        self.reader, self.writer = await asyncio.open_connection(sock=self._here)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        async with asyncio.timeout(BOUND_SECONDS):
            await asyncio.wait([self.serving])

    def send(self, **message: Any) -> None:
        self.writer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def ask(self, method: str, **params: Any) -> Message:
        self._id += 1
        self.send(id=self._id, method=method, params=params)
        while (message := await self.read()).get("id") != self._id:
            pass
        return message["result"]

    async def read(self) -> Message:
        async with asyncio.timeout(BOUND_SECONDS):
            return json.loads(await self.reader.readline())

    async def greet(self) -> None:
        info = {"name": "peer", "version": "1"}
        await self.ask("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=info)
        self.send(method="notifications/initialized")
        await self.ask("ping")


@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_26_nobody_watches_for_a_client_that_has_gone(how: str) -> None:
    gate = Gate()
    for _ in range(20):
        async with ServedClient(gate) as peer:
            await peer.greet()
            await peer.ask("resources/subscribe", uri="session://a/screen")
            await peer.ask("resources/subscribe", uri="session://b/output/all", _meta={"ai-session/agent": "b"})
            peer.send(id="s", method="subscriptions/listen", params={"notifications": {}, "_meta": ENVELOPE})
            assert (await peer.read())["method"] == "notifications/subscriptions/acknowledged"
            assert len(gate.changes) == 4
            await peer.greet()
            assert len(gate.changes) == 2, "another greeting, another client"
            if how == "cancelled":
                peer.serving.cancel()
                ended = await peer.read()
                assert (ended["id"], ended["result"]["resultType"]) == ("s", "complete")
        assert len(gate.changes) == 0


async def test_26_a_thousand_subscriptions_are_the_most_and_leave_nothing() -> None:
    gate = Gate()
    async with ServedClient(gate) as peer:
        await peer.greet()
        for number in range(1000):
            await peer.ask("resources/subscribe", uri=f"session://s{number}/screen")
        assert len(gate.changes) == 2
        peer.send(id="over", method="resources/subscribe", params={"uri": "session://more/screen"})
        assert (await peer.read())["error"]["code"] == -32602
        for number in range(1000):
            await peer.ask("resources/unsubscribe", uri=f"session://s{number}/screen")
        assert len(gate.changes) == 1
        params = {"notifications": {"resourceSubscriptions": [f"session://s{n}/info" for n in range(1001)]}}
        peer.send(id="many", method="subscriptions/listen", params={**params, "_meta": ENVELOPE})
        assert (await peer.read())["error"]["code"] == -32602
