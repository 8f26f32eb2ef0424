"""VisionFlow: swarms for programs that connect over TCP and send JSON-RPC 2.0, one message a line. The requests of a
connection are answered in order. The server sends only responses. Before the first valid message, anything else ends
the connection: a web page can make a browser send an HTTP header and then lines of its own."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, cast

from agentwire.json_lines import LineReader, Message, Refused, encode, parse
from agentwire.system.peers import user_of
from ccswarm import __version__
from ccswarm.config.settings import Settings
from ccswarm.errors import OperatorError, SwarmError
from ccswarm.servers._rate_limit import Rates
from ccswarm.servers.base import Admission, Listening, ServeContext, who_takes_words
from ccswarm.servers.visionflow.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MESSAGES,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REFUSED,
    Fault,
)
from ccswarm.servers.visionflow.first_lines import LineJoiner, is_foreign
from ccswarm.servers.visionflow.methods import METHODS, TOOLS, call, list_tools
from ccswarm.servers.visionflow.swarms import TYPES, Swarms

PORT = 9500
PORT_VARIABLE, TOKEN_VARIABLE = "MCP_TCP_PORT", "TCP_AUTH_TOKEN"
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MOST_LINE_BYTES = 1 << 20
IDLE_SECONDS = 300.0
"""The limit without a complete line, and with nothing to answer."""
WRITE_SECONDS = 30.0
"""The longest time for which a client may leave a response unread."""
CLOSE_SECONDS = 5.0
"""The time for responses in progress when the server ends."""
MOST_WRONG_TOKENS = 5
UNKNOWN_SECONDS = 30.0
"""The time for a client to send its token."""
UNKNOWN_SHARE = 2
"""Unauthenticated clients may have one in this many connections, so that they lock nobody out."""

UNKNOWN_ADVICE = "call authenticate with the token first; the user who started this server gets it with: ccswarm token"

log = logging.getLogger(__name__)


class VisionFlowConnection:
    """The connection of one client."""

    def __init__(
        self,
        swarms: Swarms,
        rates: Rates,
        admission: Admission,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._swarms = swarms
        self._rates = rates
        self._admission = admission
        self._reader = reader
        self._writer = writer
        self._address = str((writer.get_extra_info("peername") or ("?",))[0])
        self._is_free = self.is_known = admission.is_free(user_of(writer.get_extra_info("socket")))
        self._has_begun = False
        self._joiner = LineJoiner(MOST_LINE_BYTES)
        self._wrong = 0
        self._reading: asyncio.Task[bytes] | None = None
        self._over = False
        self._idle_seconds = idle_seconds

    async def run(self) -> None:
        """Serve until the client disconnects, is idle for too long, or does not authenticate in time."""
        lines, loop = LineReader(MOST_LINE_BYTES), asyncio.get_running_loop()
        since = connected = loop.time()
        with suppress(TimeoutError, ConnectionError):
            while not self._over and self._wrong < MOST_WRONG_TOKENS:
                idle, unknown = since + self._idle_seconds, connected + UNKNOWN_SECONDS
                async with asyncio.timeout_at(idle if self.is_known else min(idle, unknown)):
                    data = await self._read()
                if not (self._has_begun or lines.held_bytes) and is_foreign(data):
                    break
                if not data:
                    await self._answer_all(lines.feed(b"\n") if lines.held_bytes else ())
                    await self._answer_all(self._joiner.rest())
                    break
                if await self._answer_all(lines.feed(data)):
                    since = loop.time()

    def end(self) -> None:
        """Let pending requests be answered, and read nothing more."""
        self._over = True
        if self._reading:
            self._reading.cancel()

    async def _read(self) -> bytes:
        """Return the bytes received; empty at the end."""
        self._reading = asyncio.create_task(self._reader.read(1 << 16))
        try:
            return await self._reading
        except asyncio.CancelledError:
            if not self._over:
                raise
            return b""
        finally:
            self._reading.cancel()
            self._reading = None

    async def _answer_all(self, lines: Iterable[bytes | Refused]) -> bool:
        """Answer all complete lines. Report whether there were any."""
        any_line = False
        for line in self._joiner.joined(lines):
            any_line = True
            for answer in await self._answers(line):
                self._writer.write(encode(answer))
            async with asyncio.timeout(WRITE_SECONDS):
                await self._writer.drain()
            if (self._over and not self._has_begun) or self._wrong >= MOST_WRONG_TOKENS:
                break
        return any_line

    async def _answers(self, line: bytes | Refused) -> list[Message]:
        try:
            if isinstance(line, Refused):
                raise line
            message = parse(line)
        except Refused as refused:
            return self._refusals(line, [_translated(answer) for answer in refused.answers])
        if message is None or "method" not in message:
            is_json = line.lstrip()[:1] == b"{"
            return [] if is_json or not line.strip() else self._refusals(line, [_error(None, Fault(PARSE_ERROR))])
        self._has_begun = True
        if "id" not in message:
            return []
        try:
            if not self._rates.take(self._address, asyncio.get_running_loop().time()):
                raise Fault(REFUSED, message="Rate limit exceeded")
            result = await self._result(message["method"], message.get("params", {}))
        except Fault as fault:
            return [_error(message["id"], fault)]
        except SwarmError as error:
            problem = f"{error.message}; {error.suggestion}" if error.suggestion else error.message
            return [_error(message["id"], Fault(INTERNAL_ERROR, "", problem))]
        except Exception as error:
            log.exception("%s failed", message["method"][:80])
            return [_error(message["id"], Fault(INTERNAL_ERROR, "", type(error).__name__))]
        return [{"jsonrpc": "2.0", "id": message["id"], "result": result}]

    def _refusals(self, line: bytes | Refused, answers: list[Message]) -> list[Message]:
        """Return the responses to a line that is not a message. Before the first valid message it ends the connection,
        and HTTP gets no response."""
        self._over = self._over or not self._has_begun
        foreign = not self._has_begun and isinstance(line, bytes) and is_foreign(line)
        return [] if foreign else answers

    async def _result(self, method: str, params: Mapping[str, Any]) -> Any:
        if method == "authenticate":
            return self._authenticate(params)
        if method == "initialize":
            return _initialize(params, __version__ if self.is_known else "")
        if not self.is_known:
            raise Fault(REFUSED, "", UNKNOWN_ADVICE, message="Authentication required")
        match method:
            case "ping":
                return {}
            case "tools/list":
                return {"tools": list_tools()}
            case "tools/call":
                return await self._tool(params)
            case _ if method in METHODS:
                return await call(self._swarms, METHODS[method], params, as_tool=False)
            case _:
                raise Fault(METHOD_NOT_FOUND, "method", f"There is no method {method[:80]!r}")

    async def _tool(self, params: Mapping[str, Any]) -> Any:
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or name not in TOOLS:
            raise Fault(INVALID_PARAMS, "name", f"Must be one of: {', '.join(TOOLS)}")
        if arguments is not None and not isinstance(arguments, dict):
            raise Fault(INVALID_PARAMS, "arguments", "Must be an object")
        given = cast("Mapping[str, Any]", arguments or {})
        facts = await call(self._swarms, TOOLS[name], given, as_tool=True)
        return {"content": [{"type": "text", "text": json.dumps(facts, ensure_ascii=False)}]}

    def _authenticate(self, params: Mapping[str, Any]) -> Any:
        given = params.get("token")
        if not self._is_free and (not isinstance(given, str) or self._admission.caller([given]) is None):
            self._wrong += 1
            raise Fault(REFUSED, message="Authentication failed")
        self.is_known = True
        return {"authenticated": True}


def _initialize(params: Mapping[str, Any], version: str) -> Any:
    """Return the result of ``initialize``, with the client's protocol version if it is supported."""
    asked = params.get("protocolVersion")
    return {
        "protocolVersion": asked if asked in VERSIONS else VERSIONS[0],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "ccswarm", "version": version},
    }


def _error(request_id: Any, fault: Fault) -> Message:
    return {"jsonrpc": "2.0", "id": request_id, "error": fault.to_json()}


def _translated(answer: Message) -> Message:
    """Return the response to a refused line with this protocol's messages."""
    error = answer["error"]
    return {**answer, "error": {**error, "message": MESSAGES[error["code"]], "data": {"message": error["message"]}}}


class Visionflow:
    """The dialect of ``ccswarm serve --tcp``. Implements ``Dialect``."""

    name = "visionflow"

    def settings(self, settings: Settings, variables: Mapping[str, str]) -> Settings:
        return settings

    async def serve(self, serve_context: ServeContext, listening: Listening, stop: asyncio.Event) -> None:
        host = listening.host or "127.0.0.1"
        port = serve_context.port(listening, PORT_VARIABLE, PORT)
        named = [token] if (token := serve_context.variables.get(TOKEN_VARIABLE, "")) else []
        admission = await asyncio.to_thread(serve_context.admission, listening, host, TOKEN_VARIABLE, named)
        swarms, rates, connections = (
            Swarms(serve_context),
            Rates(listening.requests),
            dict[asyncio.Task[Any], VisionFlowConnection](),
        )

        async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task
            try:
                one = VisionFlowConnection(swarms, rates, admission, reader, writer)
                unknown = sum(not each.is_known for each in connections.values())
                room = one.is_known or bool(admission.named) or unknown < max(1, listening.connections // UNKNOWN_SHARE)
                if len(connections) >= listening.connections or not room or stop.is_set():
                    writer.write(encode(_error(None, Fault(REFUSED, message="Too many connections"))))
                    return
                connections[task] = one
                await one.run()
            finally:
                connections.pop(task, None)
                writer.close()
                with suppress(ConnectionError, TimeoutError):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await writer.wait_closed()

        await swarms.open()
        try:
            try:
                server = await asyncio.start_server(converse, host, port, limit=1 << 16)
            except OSError as error:
                raise OperatorError(
                    f"cannot listen on {host} port {port}: {error.strerror or error}",
                    suggestion=f"use another --port, or set {PORT_VARIABLE}",
                ) from None
            async with server:
                where = server.sockets[0].getsockname()
                serve_context.tell(f"VisionFlow is served at {where[0]} port {where[1]}")
                serve_context.tell_admission(admission, host, TOKEN_VARIABLE, self.name)
                for line in who_takes_words(serve_context.options.last().settings, TYPES, self.name):
                    serve_context.tell(line)
                await stop.wait()
                server.close()
                for one in connections.values():
                    one.end()
                if connections:
                    await asyncio.wait(list(connections), timeout=CLOSE_SECONDS)
                left = list(connections)
                for task in left:
                    task.cancel()
                await asyncio.gather(*left, return_exceptions=True)
        finally:
            await swarms.close()


PLUGIN = Visionflow()
