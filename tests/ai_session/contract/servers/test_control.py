"""The control protocol on a socket: requests side by side, errors by name, attached terminals as frames."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from ai_session.errors import SessionNotFound, UnknownTool
from ai_session.models import ExitStatus, Principal, ToolCall, ToolResult
from ai_session.servers.base import Connection
from ai_session.servers.control.plugin import PLUGIN
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio
PERSON = Principal(kind="person", uid=os.getuid())
HEADER = struct.Struct(">cI")


class MemoryViewer:
    """A session's window whose output and end the test decides."""

    def __init__(self, rows: int, cols: int, read_only: bool) -> None:
        self.opened_with = (rows, cols, read_only)
        self.ended: ExitStatus | None = None
        self.typed: asyncio.Queue[bytes] = asyncio.Queue()
        self.sizes: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        self.printed: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.taken = 0
        self.closed = asyncio.Event()

    async def output(self) -> AsyncIterator[bytes]:
        while (chunk := await self.printed.get()) is not None:
            self.taken += len(chunk)
            yield chunk

    def end(self, status: ExitStatus) -> None:
        self.ended = status
        self.printed.put_nowait(None)

    def write(self, data: bytes) -> None:
        self.typed.put_nowait(data)

    async def resize(self, rows: int, cols: int) -> None:
        self.sizes.put_nowait((rows, cols))

    async def close(self) -> None:
        self.closed.set()


class MemoryGate:
    """Tools that answer, fail, or wait until the test lets them go on; one session called ``s``."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self.release = asyncio.Event()
        self.waiting = asyncio.Event()
        self.given_up = asyncio.Event()
        self.viewers: list[MemoryViewer] = []
        self.renamed: list[tuple[str, str]] = []

    async def call(self, call: ToolCall, progress: object = None) -> ToolResult:
        self.calls.append(call)
        if call.name == "wait":
            self.waiting.set()
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.given_up.set()
                raise
        if call.name == "defect":
            raise ZeroDivisionError("division by zero")
        if call.name == "nope":
            raise UnknownTool("unknown tool 'nope'", suggestion="did you mean 'node'?")
        return ToolResult(text="done", structured={"given": dict(call.arguments)}, call_id=call.call_id)

    @property
    def person(self) -> MemoryGate:
        return self

    async def rename(self, principal: Principal, reference: str, name: str) -> None:
        self.renamed.append((reference, name))

    async def stop(self, principal: Principal, leave: Callable[[], None], *, sessions: bool) -> str:
        leave()
        return ""

    async def attach(
        self, principal: Principal, reference: str, *, rows: int, cols: int, read_only: bool
    ) -> MemoryViewer:
        if reference != "s":
            raise SessionNotFound(f"no session {reference!r}", suggestion="open sessions: 's'")
        self.viewers.append(MemoryViewer(rows, cols, read_only))
        return self.viewers[-1]


@dataclass
class MemoryHost:
    """A daemon that only remembers what it was asked."""

    stopped: list[bool] = field(default_factory=list[bool])

    inner: MemoryGate = field(default_factory=MemoryGate)

    async def gate(self) -> MemoryGate:
        return self.inner

    def status(self) -> Mapping[str, Any]:
        return {"version": "9", "pid": 1}

    def stop(self, *, sessions: bool, asked: Collection[str] | None = None) -> list[str]:
        self.stopped.append(sessions)
        return ["s"] if sessions else []


class ControlClient:
    """The client's end of one served connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, request_id: object, method: str, **params: object) -> None:
        self.raw(json.dumps({"id": request_id, "method": method, "params": params}).encode() + b"\n")

    def raw(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> dict[str, Any]:
        async with asyncio.timeout(BOUND_SECONDS):
            return json.loads(await self.reader.readline())

    def frame(self, kind: bytes, payload: bytes = b"") -> None:
        self.raw(HEADER.pack(kind, len(payload)) + payload)

    async def next_frame(self) -> tuple[bytes, bytes]:
        async with asyncio.timeout(BOUND_SECONDS):
            kind, size = HEADER.unpack(await self.reader.readexactly(HEADER.size))
            return kind, await self.reader.readexactly(size)

    async def at_end(self) -> bool:
        async with asyncio.timeout(BOUND_SECONDS):
            return await self.reader.read() == b""


@contextlib.asynccontextmanager
async def serving(gate: MemoryGate, host: MemoryHost | None = None, version: int = 1) -> AsyncIterator[ControlClient]:
    here, there = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=there)

    host = host or MemoryHost()
    host.inner = gate

    async def serve() -> None:
        try:
            await PLUGIN.serve(Connection(reader, writer, PERSON, {}, host, version))  # type: ignore[arg-type]
        finally:
            writer.close()

    task = asyncio.create_task(serve())
    peer = ControlClient(*await asyncio.open_connection(sock=here, limit=1 << 20))
    try:
        yield peer
    finally:
        peer.writer.close()
        async with asyncio.timeout(BOUND_SECONDS):
            await task


async def get(queue: asyncio.Queue[Any]) -> Any:
    async with asyncio.timeout(BOUND_SECONDS):
        return await queue.get()


async def test_a_call_goes_to_the_gate_as_this_person_and_comes_back_whole() -> None:
    gate = MemoryGate()
    async with serving(gate) as peer:
        peer.send(7, "call", name="list", arguments={"a": "\udcff"}, profile="trusted")
        answer = await peer.answer()
    (call,) = gate.calls
    assert (call.principal, call.name, call.arguments) == (PERSON, "list", {"a": "\udcff"})
    assert call.profile == "trusted"
    result = {"text": "done", "structured": {"given": {"a": "\udcff"}}, "is_error": False, "call_id": call.call_id}
    assert answer == {"id": 7, "result": {**result, "meta": {}}}
    assert call.call_id.startswith("call_")


async def test_requests_are_answered_as_they_end() -> None:
    gate = MemoryGate()
    async with serving(gate) as peer:
        peer.send("slow", "call", name="wait")
        peer.send("quick", "status")
        assert await peer.answer() == {"id": "quick", "result": {"version": "9", "pid": 1}}
        gate.release.set()
        assert (await peer.answer())["id"] == "slow"


async def test_closing_the_connection_gives_up_the_wait() -> None:
    gate = MemoryGate()
    async with serving(gate) as peer:
        peer.send(1, "call", name="wait")
        await gate.waiting.wait()
    assert gate.given_up.is_set()


async def test_rename_and_stop_are_passed_on() -> None:
    gate, host = MemoryGate(), MemoryHost()
    async with serving(gate, host) as peer:
        peer.send(1, "rename", session="s", name="t")
        assert await peer.answer() == {"id": 1, "result": {}}
        peer.send(2, "stop", sessions=True)
        assert await peer.answer() == {"id": 2, "result": {"ended": ["s"]}}
        peer.send(3, "stop")
        await peer.answer()
    assert gate.renamed == [("s", "t")]
    assert host.stopped == [True, False]


@pytest.mark.parametrize(
    ("line", "request_id", "code", "words"),
    [
        (b"nonsense", None, "invalid_arguments", "one JSON object"),
        (b"[1, 2]", None, "invalid_arguments", "JSON objects"),
        (b'{"id": 4}', 4, "invalid_arguments", "method"),
        (b'{"id": 4, "method": "call", "params": [1]}', 4, "invalid_arguments", "JSON objects"),
        (b'{"id": 4, "method": "call", "params": {}}', 4, "invalid_arguments", "name must be a string"),
        (b'{"id": 4, "method": "stop", "params": {"asked": 3}}', 4, "invalid_arguments", "asked must be a list"),
        (b'{"id": 4, "method": "dance"}', 4, "invalid_arguments", "no method 'dance'"),
        (b'{"id": 4, "method": "call", "params": {"name": "nope"}}', 4, "unknown_tool", "unknown tool"),
        (b'{"id": 4, "method": "call", "params": {"name": "defect"}}', 4, "internal_error", "ZeroDivisionError"),
        (b'{"id": 4, "method": "attach", "params": {"session": "x"}}', 4, "session_not_found", "no session 'x'"),
        (b"[" * 100_000, None, "invalid_arguments", "one JSON object"),
        (b'{"id": NaN, "method": "status"}', None, "invalid_arguments", "one JSON object"),
        (b'{"id": 1e999, "method": "status"}', None, "invalid_arguments", "one JSON object"),
        (b'{"id": "\xff", "method": "status"}', None, "invalid_arguments", "one JSON object"),
    ],
)
async def test_a_bad_request_is_named_and_the_connection_lives(
    line: bytes, request_id: object, code: str, words: str
) -> None:
    async with serving(MemoryGate()) as peer:
        peer.raw(line + b"\n")
        answer = await peer.answer()
        assert (answer["id"], answer["error"]["code"]) == (request_id, code)
        assert words in answer["error"]["message"]
        peer.send(5, "status")
        assert (await peer.answer())["id"] == 5


async def test_requests_may_arrive_in_any_pieces() -> None:
    line = json.dumps({"id": 1, "method": "call", "params": {"name": "n", "arguments": {"a": "x" * 200_000}}})
    async with serving(MemoryGate()) as peer:
        for start in range(0, len(line), 9_001):
            peer.raw(line[start : start + 9_001].encode())
            await peer.writer.drain()
        peer.raw(b'\n{"id": 2, "method": "status"}\n')
        assert {(await peer.answer())["id"] for _ in range(2)} == {1, 2}


async def test_an_attached_terminal_is_frames_both_ways() -> None:
    gate = MemoryGate()
    async with serving(gate) as peer:
        peer.send(1, "attach", session="s", rows=24, cols=80, read_only=False)
        peer.frame(b"i", b"typed at once")
        assert await peer.answer() == {"id": 1, "result": {}}
        (viewer,) = gate.viewers
        assert viewer.opened_with == (24, 80, False)
        assert await get(viewer.typed) == b"typed at once"
        viewer.printed.put_nowait(b"\x00screen\xff\n")
        assert await peer.next_frame() == (b"o", b"\x00screen\xff\n")
        peer.frame(b"r", b'{"rows": 30, "cols": 100}')
        assert await get(viewer.sizes) == (30, 100)
        viewer.end(ExitStatus(code=3))
        kind, payload = await peer.next_frame()
        assert kind == b"e"
        assert json.loads(payload) == {**asdict(ExitStatus(code=3)), "text": "exit status 3"}
        assert await peer.at_end()
    assert viewer.closed.is_set()


@pytest.mark.parametrize("leave", ["detach", "hang up", "no frame"])
async def test_leaving_closes_the_viewer_and_nothing_else(leave: str) -> None:
    gate = MemoryGate()
    async with serving(gate) as peer:
        peer.send(1, "attach", session="s", read_only=True)
        await peer.answer()
        (viewer,) = gate.viewers
        assert viewer.opened_with == (0, 0, True)
        if leave == "detach":
            peer.frame(b"d")
        elif leave == "no frame":
            peer.raw(HEADER.pack(b"i", 1 << 30))
        else:
            peer.writer.write_eof()
        async with asyncio.timeout(BOUND_SECONDS):
            await viewer.closed.wait()
        assert await peer.at_end()
    assert viewer.ended is None


async def test_frames_of_unknown_type_and_broken_sizes_are_let_pass() -> None:
    gate = MemoryGate()
    async with serving(gate) as peer:
        peer.send(1, "attach", session="s")
        await peer.answer()
        peer.frame(b"?", b"later version")
        for payload in (b"", b"[]", b'{"rows": "x"}'):
            peer.frame(b"r", payload)
        peer.frame(b"i", b"after")
        (viewer,) = gate.viewers
        assert await get(viewer.typed) == b"after"
        assert viewer.sizes.get_nowait() == (0, 0)
        assert viewer.sizes.empty()


async def test_a_viewer_that_does_not_read_stalls_nobody_else() -> None:
    gate = MemoryGate()
    async with serving(gate) as slow, serving(gate) as quick:
        for peer in (slow, quick):
            peer.send(1, "attach", session="s")
            await peer.answer()
        chunk = b"x" * 65_536
        for viewer in gate.viewers:
            for _ in range(200):
                viewer.printed.put_nowait(chunk)
        for _ in range(200):
            assert await quick.next_frame() == (b"o", chunk)
        first, second = gate.viewers
        assert second.taken == 200 * len(chunk)
        assert first.taken < 100 * len(chunk)


async def test_attach_wants_a_connection_without_waiting_calls() -> None:
    gate = MemoryGate()
    async with serving(gate) as peer:
        peer.send(1, "call", name="wait")
        await gate.waiting.wait()
        peer.send(2, "attach", session="s")
        answer = await peer.answer()
        assert (answer["id"], answer["error"]["code"]) == (2, "invalid_arguments")
    assert gate.viewers == []
