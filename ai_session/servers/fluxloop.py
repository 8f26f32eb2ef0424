"""FluxLoop's dialect: JSON envelopes, one a line, for questions about the documentation and for integration plans.

Each line is answered by one line, in order, and nothing else is ever sent. An error in a line affects only that line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import re
import secrets
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn, cast

from ai_session import __version__
from ai_session.errors import AiSessionError, UnknownTool
from ai_session.models import ToolCall, ToolResult
from ai_session.servers.base import call_gate

if TYPE_CHECKING:
    from ai_session.servers.base import Connection

NAME = "fluxloop-mcp"
TOOLS = (
    "handshake",
    "faq",
    "analyze_repository",
    "detect_frameworks",
    "generate_integration_steps",
    "propose_edit_plan",
    "validate_edit_plan",
    "run_integration_workflow",
)
"""The order in which the protocol lists them; all but the first are tools of the gate."""

ENVELOPE = ("type", "id", "tool", "params")
CODES = {"invalid_arguments": "invalid_payload", "internal_error": "internal_error"}
"""This protocol's codes for those of our errors that have one; any other one is a tool_error."""

NAME_CHARS = 80
KEPT_BYTES = 4096
TYPE_FIRST = rb'\s*\{\s*(?:"type"\s*:\s*"\w{1,20}"\s*,\s*)?'
ID = re.compile(TYPE_FIRST + rb'"id"\s*:\s*(-?\d{1,18}(?=[\s,}])|"(?:[^"\\\x00-\x1f]|\\.){0,200}")')
"""The id of a line that cannot be parsed, in the position where every client writes it."""

Message = dict[str, Any]

log = logging.getLogger(__name__)


class Fault(Exception):
    """The reason why a line has no result. ``request_id`` is None if it is unknown."""

    def __init__(self, code: str, message: str, details: Message | None = None, request_id: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details
        self.request_id = request_id


class FluxLoopConnection:
    """The connection of one client."""

    def __init__(self, connection: Connection) -> None:
        self._gate = connection.daemon.gate
        self._principal = replace(connection.principal, client="fluxloop")
        self._reader = connection.reader
        self._writer = connection.writer

    async def run(self, read: bytes) -> None:
        """Serve until the client has closed its side and has its answers. ``read`` is what was read of it before."""
        with contextlib.suppress(ConnectionError):
            async for line in self._lines(read):
                if line.strip():
                    self._writer.write(await self._answer(line))
                    await self._writer.drain()

    async def _lines(self, read: bytes) -> AsyncIterator[bytes]:
        """Yield every line; of one longer than the reader's buffer only the beginning, which is then not valid JSON."""
        head = b""
        if read:
            yield read
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                yield head or end.partial
                return
            except asyncio.LimitOverrunError as longer:
                piece = await self._reader.readexactly(longer.consumed)
                head = head or piece[:KEPT_BYTES]
                continue
            yield head or line
            head = b""

    async def _answer(self, line: bytes) -> bytes:
        request_id = None
        try:
            message = parse(line)
            request_id = message.get("id")
            result = await self._result(message)
            return encode({"type": "response", "id": request_id, "result": result})
        except Fault as fault:
            found, request_id = fault, fault.request_id if request_id is None else request_id
        except Exception as problem:  # a defect: reported to the client, whose request must never stay unanswered
            log.exception("a request from FluxLoop failed")
            found = Fault("internal_error", f"the request failed: {type(problem).__name__}")
        error: Message = {"code": found.code, "message": found.message}
        if found.details:
            error["details"] = found.details
        return encode({"type": "error", "id": request_id, "error": error})

    async def _result(self, message: Message) -> Any:
        tool = tool_of(message)
        if tool == "handshake":
            return {"name": NAME, "version": __version__, "capabilities": {"tools": list(TOOLS)}}
        # An unknown tool is recorded too, under a name that no tool of another protocol has.
        name = tool if tool in TOOLS else f"fluxloop.{tool[:NAME_CHARS]}"
        call_id = "call_" + secrets.token_urlsafe(16)
        call = ToolCall(self._principal, name, arguments_of(message), call_id, unlisted=True)
        try:
            result = await call_gate(self._gate, call)
        except UnknownTool:
            raise not_found(tool) from None
        return result.structured if not result.is_error else refuse(result)


def parse(line: bytes) -> Message:
    """Parse the message on a line and check its id. Raises Fault, with the id that the line seems to have."""
    try:
        message = DECODER.decode(line.decode())
        if b"\\ud" in line or b"\\uD" in line:
            encode(message, errors="strict")
    except RecursionError:
        raise Fault("invalid_payload", "the message is nested too deeply", None, recovered_id(line)) from None
    except ValueError as problem:
        why = "not UTF-8" if isinstance(problem, UnicodeError) else str(problem).partition(":")[0]
        detail = f"a line is not one JSON message: {why}"
        raise Fault("invalid_payload", detail, None, recovered_id(line)) from None
    if not isinstance(message, dict):
        raise Fault("invalid_payload", "a message must be a JSON object")
    found = cast("Message", message)
    request_id = found.get("id")
    if isinstance(request_id, (bool, list, dict)) or (isinstance(request_id, float) and not math.isfinite(request_id)):
        raise Fault("invalid_payload", "id must be a string or a number")
    return found


def recovered_id(line: bytes) -> Any:
    """Return the id at the beginning of a line that cannot be parsed, or None."""
    found = ID.match(line[:KEPT_BYTES])
    with contextlib.suppress(ValueError):
        request_id = DECODER.decode(found[1].decode()) if found else None
        encode(request_id, errors="strict")
        return request_id
    return None


def tool_of(message: Message) -> str:
    """Return the requested tool. A message without a type is a request, as earlier clients sent them. Raises Fault."""
    kind = message.get("type", "request")
    if kind == "handshake":
        return "handshake"
    if kind != "request":
        received = repr(kind[:40]) if isinstance(kind, str) else "not text"
        raise Fault("invalid_payload", f"type must be handshake or request, not {received}")
    tool = message.get("tool")
    if not isinstance(tool, str):
        raise Fault("invalid_payload", "a request must name its tool", {"availableTools": list(TOOLS)})
    return tool


def arguments_of(message: Message) -> Message:
    """Return ``params``, and the fields next to it, where the shipped client puts them. Raises Fault."""
    params = message.get("params")
    if params is not None and not isinstance(params, dict):
        raise Fault("invalid_payload", "params must be an object")
    fields = {name: value for name, value in message.items() if name not in ENVELOPE}
    return fields | cast("Message", params or {})


def not_found(tool: str) -> Fault:
    """Return the error for an unknown tool."""
    return Fault("tool_not_found", f"Unknown tool: {tool[:NAME_CHARS]}", {"availableTools": list(TOOLS)})


def refuse(result: ToolResult) -> NoReturn:
    """Raise the error of the gate or a tool as a Fault of this protocol."""
    error: Message = dict(result.structured.get("error", {}))
    code, message = str(error.get("code", "")), str(error.pop("message", result.text))
    raise Fault(CODES.get(code, "tool_error"), message, {name: value for name, value in error.items() if value})


def encode(message: Any, errors: str = "replace") -> bytes:
    """Return one line. Raises ValueError for values not in JSON, with ``errors="strict"`` also lone surrogates."""
    return ENCODER.encode(message).encode(errors=errors) + b"\n"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class Fluxloop:
    """Role ``fluxloop`` of the daemon's socket."""

    name = "fluxloop"

    async def serve(self, connection: Connection, read: bytes = b"") -> None:
        """Serve one client until it closes its side. ``read`` is its first line, if that identified the dialect."""
        starting = asyncio.create_task(self._start(connection))
        try:
            await FluxLoopConnection(connection).run(read)
        finally:
            starting.cancel()

    async def _start(self, connection: Connection) -> None:
        with contextlib.suppress(AiSessionError):  # reported to every caller of a tool
            await connection.daemon.gate()


PLUGIN = Fluxloop()
