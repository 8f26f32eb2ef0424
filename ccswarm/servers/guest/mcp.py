"""A bridge's tools as an MCP server of the official SDK: the agent's own, ``finish`` and ``await_call``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
    jsonrpc_message_adapter,
)

from agentwire.json_lines import scrub
from ccswarm import __version__
from ccswarm.bridge.bridge import AWAIT_CALL, FINISH, INSTRUCTIONS, ToolBridge
from ccswarm.models import CallOutcome, ToolInfo

OWN_TOOLS = (
    Tool(
        name=FINISH,
        title="Finish the task",
        description="End the task and report how it went. Call it once, when everything is done or nothing more can"
        " be done.",
        input_schema={
            "type": "object",
            "properties": {
                "status": {
                    "enum": ["succeeded", "failed", "blocked"],
                    "description": "blocked: a person has to fix something first.",
                },
                "summary": {"type": "string", "description": "What was done, or what prevents it."},
                "result": {"description": "Result for other tasks; any JSON."},
            },
            "required": ["status", "summary"],
        },
        annotations=ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False),
    ),
    Tool(
        name=AWAIT_CALL,
        title="Wait for a call",
        description="Wait for a call that was answered with pending, and get its answer.",
        input_schema={
            "type": "object",
            "properties": {"call_id": {"type": "string", "description": "The ID from the pending answer."}},
            "required": ["call_id"],
        },
        annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
    ),
)


@dataclass(frozen=True, slots=True)
class Guest:
    """The client of a connection. ``answered`` are the requests whose responses are being sent: the request at the
    bridge that each completes, by the connection's own request id."""

    bridge: ToolBridge
    name: str
    answered: dict[str, str] = field(default_factory=dict[str, str])


async def converse(bridge: ToolBridge, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one connection, JSON-RPC lines in both directions, until it ends. ``name`` identifies it as long as it
    continues, at any bridge of the task."""
    guest = Guest(bridge, name)
    inward_send, inward = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outward, outward_receive = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        # A reset and an overlong line also end the connection.
        async with inward_send:
            with suppress(ConnectionError, ValueError):
                while line := await reader.readline():
                    await inward_send.send(_parsed(line))

    async def write() -> None:
        async with outward_receive:
            async for one in outward_receive:
                # A client that has disconnected gets no answer; the request is completed all the same.
                with suppress(ConnectionError):
                    writer.write(one.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                    await writer.drain()
                    if number := guest.answered.pop(str(getattr(one.message, "id", "")), ""):
                        await bridge.delivered(number)

    server = _server(guest)
    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(write)
        await server.run(inward, outward, server.create_initialization_options())


def _parsed(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


def _server(guest: Guest) -> Server[Any]:
    async def list_tools(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        granted = [_tool(name, tool) for name, tool in guest.bridge.tools.items()]
        return ListToolsResult(tools=[*granted, *OWN_TOOLS])

    async def call_tool(ctx: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        number, arguments = f"{guest.name}-{ctx.request_id}", params.arguments or {}
        if params.name == AWAIT_CALL:
            number = str(arguments.get("call_id"))
            answer = guest.bridge.pending_answer(number)
            if answer is None:
                return _result(f"no call {number[:80]!r} is in progress: its answer was already given", failed=True)
        else:
            answer = await guest.bridge.ask(number, params.name, arguments)
        beats = asyncio.create_task(_beat(ctx, guest.bridge.beat_seconds))
        try:
            async with asyncio.timeout(guest.bridge.answer_seconds):
                outcome = await asyncio.shield(answer)
        except TimeoutError:
            return _result(
                f"pending, call id {number}: the call is still in progress (a person may have to approve it). Use "
                f"{AWAIT_CALL} with this call id to wait for its answer; do not repeat the call."
            )
        finally:
            beats.cancel()
        guest.answered[str(ctx.request_id)] = number
        return _result_from_outcome(outcome)

    server: Server[Any] = Server(
        "ccswarm",
        version=__version__,
        title=f"ccswarm: agent {guest.bridge.agent}",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    server.middleware.clear()  # tracing, without an exporter
    return server


async def _beat(ctx: ServerRequestContext[Any], seconds: float) -> None:
    """Report progress every ``seconds`` to a client that asked for it, while its call is in progress."""
    loop, never = asyncio.get_running_loop(), asyncio.Event()
    began = loop.time()
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await never.wait()
            waited = loop.time() - began
            await ctx.session.report_progress(round(waited, 3), None, f"still in progress after {waited:.0f} s")


def _tool(name: str, tool: ToolInfo) -> Tool:
    return Tool(
        name=name,
        title=tool.title or None,
        description=tool.description,
        input_schema=_without_key(tool.input_schema),
        annotations=ToolAnnotations(
            title=tool.title or None,
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=tool.open_world,
        ),
    )


def _without_key(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Remove ``call_key``, which the task sets."""
    properties: Mapping[str, Any] = schema.get("properties") or {}
    kept = {name: one for name, one in properties.items() if name != "call_key"}
    return {**schema, "type": "object", "properties": kept}


def _result_from_outcome(outcome: CallOutcome) -> CallToolResult:
    if outcome.ok:
        structured = dict(outcome.structured) if outcome.structured is not None else None
        return _result(outcome.text, structured)
    why = f"{outcome.code or outcome.status.value}: {outcome.message}" if outcome.message else outcome.code
    return _result(
        "\n".join(filter(None, [outcome.text, why, outcome.suggestion])) or outcome.status.value, failed=True
    )


def _result(text: str, structured: dict[str, Any] | None = None, *, failed: bool = False) -> CallToolResult:
    content: list[Any] = [TextContent(type="text", text=scrub(text))]
    return CallToolResult(content=content, structured_content=scrub(structured), is_error=failed)
