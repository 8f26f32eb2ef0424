"""MCP for any client: lines of JSON-RPC in, answers out.

The SDK takes half a second to import, longer than everything else a first session needs. So it is imported when a
request needs it, or after the first calls; until then the first requests get recorded answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import sys
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agentwire import plugins
from agentwire.json_lines import LineReader, Message, Refused, encode, parse
from agentwire.mcp.first_answers import FirstAnswers
from ai_session import __version__
from ai_session.servers.base import Connection
from ai_session.servers.mcp import apps
from ai_session.servers.mcp.caller import Caller
from ai_session.servers.mcp.calls import INTERNAL_ERROR, Unanswerable
from ai_session.servers.mcp.conversation import Conversation

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.server.lowlevel import Server

    from ai_session.servers.base import Host
    from ai_session.servers.mcp.conversation import Sdk

READ_BYTES = 1 << 16
MAX_LINE_BYTES = 64 << 20
WRITE_BUFFER_BYTES = 1 << 20
"""Reading stops while a client has more than this to read."""

HELD_BYTES = 8 << 20

FIRST_ANSWERS = Path(__file__).with_name("first_answers.json")
"""Written by scripts/first_answers.py."""

HEARTBEAT_SECONDS = 10.0
"""The time between progress notifications of a waiting call; no known client times out before 30 s without one."""

SWITCH_SECONDS = 0.00005
"""How long other threads wait for the interpreter while the SDK is imported. A call needs it some hundred times; with a
millisecond each, the second session of a daemon would take three times as long."""

log = logging.getLogger(__name__)


class Arriving(asyncio.Protocol):
    """Lines as they arrive, each passed to ``take`` at once: a stream's reader would cost every call a pass of the
    loop.

    While the client has too much unread, its further lines are held, and beyond HELD_BYTES reading stops: many write
    all of their requests before they read an answer.
    """

    def __init__(self, transport: asyncio.WriteTransport, take: Callable[[bytes | Refused], None]) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport = cast(asyncio.Transport, transport)
        self._before: asyncio.BaseProtocol | None = None
        self._take = take
        self._lines = LineReader(MAX_LINE_BYTES)
        self._held: deque[bytes] = deque()
        self._held_bytes = 0
        self._unread = self._input_ended = False

    def take_over(self) -> None:
        """Become the connection's protocol in place of the stream, whose reader and writer must hold nothing."""
        self._before = self._transport.get_protocol()  # a reference that keeps the server's task alive
        self._transport.set_protocol(self)

    def data_received(self, data: bytes) -> None:
        if self._unread:
            self._held.append(data)
            self._held_bytes += len(data)
            if self._held_bytes > HELD_BYTES:
                self._transport.pause_reading()
            return
        for line in self._lines.feed(data):
            self._take(line)

    def eof_received(self) -> bool:
        self._input_ended = True
        if not self._held:
            self._end()
        return True  # it may still read

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def pause_writing(self) -> None:
        self._unread = True

    def resume_writing(self) -> None:
        self._unread = False
        while self._held and not self._unread:
            data = self._held.popleft()
            self._held_bytes -= len(data)
            self.data_received(data)
        if not self._held:
            self._transport.resume_reading()
            if self._input_ended:
                self._end()

    def _end(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


class McpConnection:
    """The connection of one client."""

    def __init__(self, server: McpServer, connection: Connection) -> None:
        self._server = server
        self._connection = connection
        self._writer = connection.writer
        sdk = partial(server.sdk, connection.daemon)
        caller = Caller(connection.daemon.gate, connection.principal)
        self._conversation = Conversation(caller, self._send, server.heartbeat_seconds, sdk, server.registry)

    async def run(self, chunk: bytes) -> None:
        """Serve until the client disconnects. ``chunk`` is what was read of it before."""
        self._writer.transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        preparing: asyncio.Task[None] | None = None
        reader = self._connection.reader
        arriving = Arriving(self._writer.transport, self._take)
        try:
            while chunk:
                arriving.data_received(chunk)
                preparing = preparing or asyncio.create_task(self._prepare())
                await self._writer.drain()
                chunk = await reader.read(READ_BYTES)
                nothing_held = len(chunk) < READ_BYTES and not reader.at_eof()
                if chunk and nothing_held and not self._writer.transport.get_write_buffer_size():
                    arriving.take_over()
                    arriving.data_received(chunk)
                    await arriving.ended
                    break
        except ConnectionError:
            pass  # treated as the end
        finally:
            await self._close(preparing)

    def _take(self, line: bytes | Refused) -> None:
        try:
            if isinstance(line, Refused):
                raise line
            message = parse(line)
        except Refused as refused:
            for answer in refused.answers:
                self._send(answer)
            return
        if message is None:
            return
        first = self._server.first_answers(message)
        if first:
            if message["method"] == "tools/list" and self._conversation.shows_views(message.get("params")):
                first = apps.linked(first)
            self._send(first)
        self._conversation.receive(message, first)

    async def _prepare(self) -> None:
        """Prepare what has not been requested yet: the gate at once, the SDK once it is useful and no request waits."""
        await self._server.gate_or_not(self._connection.daemon)
        await self._conversation.begun.wait()
        await self._conversation.quiet()
        with contextlib.suppress(Unanswerable):  # reported to every caller that needs it
            await self._conversation.opened()

    def _send(self, message: Message) -> None:
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    async def _close(self, preparing: asyncio.Task[None] | None) -> None:
        if preparing:
            preparing.cancel()
        await self._conversation.settle()
        self._writer.close()
        await self._conversation.ended()


def _import_sdk() -> Sdk:
    # All objects made meanwhile stay; collecting garbage among them takes 90 of 800 ms, and some 25 at the end.
    gc.disable()
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        from ai_session.servers.mcp import dispatch
    finally:
        sys.setswitchinterval(before)
        gc.freeze()
        gc.enable()
    return dispatch


class McpServer:
    """Role ``mcp`` of the daemon's socket: every protocol version, both eras, on one pipe in any order."""

    name = "mcp"

    def __init__(self, registry: Server[Any] | None = None) -> None:
        """``registry`` is served instead of the gate's tools."""
        self.heartbeat_seconds = HEARTBEAT_SECONDS
        self.registry = registry
        self._first = None if registry else FirstAnswers(FIRST_ANSWERS, __version__)
        self._gate_tried = False
        self._sdk: Sdk | None = None

    def first_answers(self, message: Message) -> Message | None:
        """Return a recorded answer while the SDK is not imported. Lists may differ once there is a gate to ask."""
        if self._sdk or self._first is None or not message.keys() >= {"id", "method"}:
            return None
        if self._gate_tried and message["method"] != "initialize":
            return None
        return self._first.answer(message)

    async def gate_or_not(self, host: Host) -> None:
        """Return when there is a gate, or none can be started, which is then reported to every caller of a tool."""
        with contextlib.suppress(Exception):
            await host.gate()
        self._gate_tried = True

    async def sdk(self, host: Host) -> Sdk:
        """Return the SDK, imported after everything a call needs. Raises Unanswerable if it cannot be imported."""
        if self._sdk is None:
            await self.gate_or_not(host)
            try:
                self._sdk = await asyncio.to_thread(_import_sdk)
            except ImportError as problem:
                log.exception("the SDK cannot be imported")
                message = f"the MCP SDK cannot be imported: {problem}; run: ai-session doctor"
                raise Unanswerable(INTERNAL_ERROR, message) from None
        return self._sdk

    async def serve(self, connection: Connection) -> None:
        """Serve one client, until it closes its side; calls in progress are then cancelled, but commands continue."""
        read = await first_line(connection.reader)
        if connection.hello.get("dialect") != self.name and is_envelope(read):
            other = await asyncio.to_thread(plugins.load, "ai_session.servers", "fluxloop")
            await other.serve(connection, read)
        else:
            await McpConnection(self, connection).run(read)


async def first_line(reader: asyncio.StreamReader) -> bytes:
    """Return the first line that is not blank, complete or not; nothing of a very long one."""
    line = b"\n"
    try:
        while line.isspace():
            line = await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError as end:
        return end.partial
    except (asyncio.LimitOverrunError, ConnectionError):
        return b""
    return line


def is_envelope(line: bytes) -> bool:
    """Report whether a client that begins with this line uses FluxLoop's dialect."""
    if b'"jsonrpc"' in line:
        return False
    with contextlib.suppress(ValueError, RecursionError):
        message: Any = json.loads(line)
        return isinstance(message, dict) and "method" not in message and ("type" in message or "tool" in message)
    return False


PLUGIN = McpServer()
