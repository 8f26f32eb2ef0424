"""The daemon's gate from another process: who may say whose a request is, and what a daemon's end means to it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ai_session.client import relay
from ai_session.client.dialing import open_streams
from ai_session.errors import DaemonUnavailable, Denied, InsufficientScope, UnknownTool
from ai_session.http.gate_client import RemoteGate
from ai_session.models import Answer, Change, Principal, Question, ToolCall
from tests.ai_session.support.mcp_client import BOUND_SECONDS, daemon_pids, living_in, running_daemon, runtime
from tests.conftest import UNBOXED, environment
from tests.support.bounds import pause_awaited

pytestmark = pytest.mark.anyio

RISKY = '[[policy.rules]]\nid = "risky"\ndecision = "ask"\ntools = ["execute_command"]\ncommands = ["echo risky"]\n'
USER = Principal("mcp", os.getuid(), client="probe")
ALICE = replace(USER, subject="alice", scopes=frozenset({"sessions:read", "sessions:write", "sessions:execute"}))


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    with running_daemon(homes, UNBOXED + RISKY) as home:
        yield home


@asynccontextmanager
async def gate_of(daemon_home: Path, *, authenticated: bool = True) -> AsyncGenerator[RemoteGate]:
    with environment(living_in(daemon_home)):
        gate = RemoteGate(authenticated=authenticated)
        try:
            async with asyncio.timeout(2 * BOUND_SECONDS):
                yield gate
        finally:
            await gate.close()


def call_of(principal: Principal, tool: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(principal, tool, arguments, f"call_{os.urandom(8).hex()}")


async def make(gate: RemoteGate, name: str, principal: Principal = ALICE) -> str:
    made = await gate.call(call_of(principal, "create_session", name=name, backend="pty"))
    assert not made.is_error, made.text
    return made.structured["session_id"]


class Person:
    """Answers as it is told to, once it is asked."""

    def __init__(self, word: Answer | None, *, deferred: bool = False) -> None:
        self.deferred = deferred
        self.asked: list[Question] = []
        self.withdrawn = asyncio.Event()
        self.was_asked = asyncio.Event()
        self._word = word

    async def ask(self, question: Question) -> Answer | None:
        self.asked.append(question)
        self.was_asked.set()
        if self._word is None:
            try:
                await asyncio.Event().wait()
            finally:
                self.withdrawn.set()
        return self._word


async def test_calls_lists_and_refusals_come_through(daemon_home: Path) -> None:
    async with gate_of(daemon_home) as gate:
        await gate.started()
        names = [tool.name for tool in await gate.list_tools(ALICE)]
        assert "execute_command" in names
        await make(gate, "plain")
        text = "ü\udc80\x00" + "x" * 100_000
        ran = await gate.call(call_of(ALICE, "execute_command", session_id="plain", command="echo hi; (exit 3)"))
        assert (ran.structured["output"], ran.structured["exit_code"]) == ("hi\n", 3)
        with pytest.raises(UnknownTool, match="execute_comand"):
            await gate.call(call_of(ALICE, "execute_comand"))
        odd = await gate.call(call_of(ALICE, "execute_command", session_id="plain", command=text))
        assert odd.structured["error"]["code"] == "invalid_arguments"
        many = [gate.call(call_of(ALICE, "list_sessions")) for _ in range(50)]
        assert not any(result.is_error for result in await asyncio.gather(*many))


def readers() -> list[str]:
    """The tasks that read from a daemon."""
    return [repr(task) for task in asyncio.all_tasks() if "Link._read" in repr(task)]


async def given_up(gate: RemoteGate) -> None:
    """Returns once a connection is there whose only caller has given up."""
    caller = asyncio.create_task(gate.started())
    await asyncio.sleep(0)
    caller.cancel()
    while not readers():
        await pause_awaited()


async def test_a_connection_whose_only_caller_gave_up_serves_the_next_and_is_closed(daemon_home: Path) -> None:
    async with gate_of(daemon_home) as gate:
        await given_up(gate)
        await gate.started()
        assert len(readers()) == 1
        await (await gate.link()).close()
        await given_up(gate)
    assert not readers()
    with pytest.raises(DaemonUnavailable):
        await gate.started()


async def test_what_is_dialled_for_nobody_is_closed() -> None:
    ours, theirs = socket.socketpair()
    may_end = threading.Event()

    def dial() -> socket.socket:
        assert may_end.wait(BOUND_SECONDS)
        return ours

    caller = asyncio.create_task(open_streams(dial, 1024))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.wait([caller])
    may_end.set()
    reader, writer = await asyncio.open_unix_connection(sock=theirs)
    async with asyncio.timeout(BOUND_SECONDS):
        assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    assert ours.fileno() == -1


async def test_nobody_may_speak_for_nobody(daemon_home: Path) -> None:
    async with gate_of(daemon_home) as gate:
        refused = await gate.call(call_of(USER, "list_sessions"))
        assert refused.structured["error"]["code"] == "denied", refused.text
        with pytest.raises(Denied):
            await gate.list_tools(USER)
    async with gate_of(daemon_home, authenticated=False) as gate:
        assert not (await gate.call(call_of(USER, "list_sessions"))).is_error


async def test_a_token_that_reaches_less_far(daemon_home: Path) -> None:
    reader = replace(ALICE, subject="reader", scopes=frozenset({"sessions:read"}))
    async with gate_of(daemon_home) as gate:
        refused = await gate.call(call_of(reader, "create_session", name="r"))
        assert refused.structured["error"]["required_scope"] == "sessions:execute"
        with pytest.raises(InsufficientScope) as problem:
            await gate.watch_changes(replace(reader, scopes=frozenset()), kinds=["state"])
        assert problem.value.required_scope == "sessions:read"


async def test_a_person_is_asked_while_the_call_waits_or_by_the_result(daemon_home: Path) -> None:
    async with gate_of(daemon_home) as gate:
        await make(gate, "asked")
        asking = call_of(ALICE, "execute_command", session_id="asked", command="echo risky")
        yes = Person(Answer(True, by="form"))
        agreed = await gate.call(asking, yes)
        assert agreed.structured.get("output") == "risky\n", agreed.text
        assert [question.principal for question in yes.asked] == [ALICE]
        no = await gate.call(replace(asking, call_id="call_2"), Person(Answer(False, by="form")))
        assert no.structured["error"]["code"] == "denied"
        returned = await gate.call(replace(asking, call_id="call_3"), Person(None, deferred=True))
        assert returned.question
        assert "echo risky" in returned.question.message
        again = replace(asking, call_id="call_4", state=returned.state, answers={"decision": Answer(True, by="form")})
        assert (await gate.call(again, Person(None, deferred=True))).structured["output"] == "risky\n"
        silent = Person(None)
        waiting = asyncio.create_task(gate.call(replace(asking, call_id="call_5"), silent))
        await silent.was_asked.wait()
        waiting.cancel()
        await silent.withdrawn.wait()
        await asyncio.wait([waiting])


async def test_a_daemon_that_is_killed_fails_what_waits_and_nothing_else(daemon_home: Path) -> None:
    """Changes are heard beyond its end."""
    async with gate_of(daemon_home) as gate:
        session = await make(gate, "lived")
        changes = await gate.watch_changes(ALICE)
        others = await gate.watch_changes(replace(ALICE, subject="bob"))
        await gate.call(call_of(ALICE, "execute_command", session_id="lived", command="echo news"))
        reported: set[tuple[str, str]] = set()
        while not {("output", session), ("state", session)} <= reported:
            reported |= {(change.kind, change.session_id) for change in await changes.next()}
        mark, fifo = runtime(daemon_home) / "ran", runtime(daemon_home) / "on"
        os.mkfifo(fifo)
        command = f"echo once >> {mark}; read line <{fifo}"
        arguments: dict[str, Any] = {"session_id": "lived", "command": command, "call_key": "k", "timeout_seconds": 40}
        keyed = call_of(ALICE, "execute_command", **arguments)
        waiting = asyncio.create_task(gate.call(keyed))
        while not mark.exists():
            assert not waiting.done()
            await gate.call(call_of(ALICE, "list_sessions"))
            await pause_awaited()
        (pid,) = daemon_pids(daemon_home)
        os.kill(pid, signal.SIGKILL)
        lost = await waiting
        assert lost.structured["error"]["code"] == "daemon_unavailable"
        assert "call_key" in lost.structured["error"]["suggestion"]
        again = asyncio.create_task(gate.call(replace(keyed, call_id="call_9")))
        with open(os.open(fifo, os.O_RDWR), "w") as line:  # which waits for no reader
            line.write("on\n")
            line.flush()
            assert (await again).structured["exit_code"] == 0
        assert mark.read_text() == "once\n"
        assert daemon_pids(daemon_home) != [pid]
        heard: frozenset[Change] = frozenset()
        while not {("list", ""), ("output", session)} <= {(change.kind, change.session_id) for change in heard}:
            heard |= await changes.next()
        await make(gate, "later")
        while not any(change.name == "later" for change in heard):
            heard |= await changes.next()
        ending = asyncio.create_task(changes.next())
        changes.close()
        assert await ending == frozenset()
        assert {change.session_id for change in await others.next()} == {""}
        others.close()


async def test_violations_of_the_protocol_are_reported(daemon_home: Path) -> None:
    async with gate_of(daemon_home) as gate:
        await gate.started()
        link = await asyncio.to_thread(relay.connect, "front", start=False)
        reader, writer = await asyncio.open_unix_connection(sock=link)
        await reader.readline()
        who = {"subject": "alice", "scopes": ["sessions:read"]}
        for line, code in (
            (b"garbage", "invalid_arguments"),
            (b"[]", "invalid_arguments"),
            (b'{"id":1}', "invalid_arguments"),
            (b'{"id":"x","method":"started"}', "invalid_arguments"),
            (b'{"id":2,"method":"stop"}', "invalid_arguments"),
            (b'{"id":3,"method":"call","call":{"name":"list_sessions"}}', "denied"),
            (b'{"id":4,"method":"call","who":{"subject":"alice"},"call":{}}', "invalid_arguments"),
            (json.dumps({"id": 5, "method": "tools", "who": {"subject": 7}}).encode(), "invalid_arguments"),
        ):
            writer.write(line + b"\n")
            assert json.loads(await reader.readline())["error"]["code"] == code, line
        writer.write(b'{"cancel":99}\n{"answer":99,"word":null}\n')
        call = {"name": "list_sessions", "arguments": {}, "call_id": "call_x", "profile": "trusted"}
        writer.write(json.dumps({"id": 6, "method": "call", "who": who, "call": call}).encode() + b"\n")
        assert json.loads(await reader.readline())["result"]["is_error"] is False
        writer.close()
