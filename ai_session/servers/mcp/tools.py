"""The tools of the gate, listed and called as the SDK has it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    PROTOCOL_VERSION_META_KEY,
    CallToolRequestParams,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
    ToolAnnotations,
)
from mcp_types.methods import serialize_server_result
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from agentwire.json_lines import Message
from ai_session.errors import AiSessionError, InvalidArguments, UnknownTool
from ai_session.gate.api import ListedTool
from ai_session.models import ToolCall, ToolResult
from ai_session.servers.mcp.caller import call_of, caller_of, scrub
from ai_session.servers.mcp.elicitation import asker_of, returned, to_be_answered

WHOLE_RESULTS = frozenset(("2025-06-18", "2025-11-25", *MODERN_PROTOCOL_VERSIONS))
"""Versions in which the result of a call is sent as it is."""

ENVELOPE = (PROTOCOL_VERSION_META_KEY, CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY)
RESERVED = "io.modelcontextprotocol/"

CALL_ID = "ai-session/call_id"
ERROR = "ai-session/error"


def no_cursor(params: PaginatedRequestParams | None) -> None:
    """Raises MCPError where a page is asked for of what has one only."""
    if params and params.cursor is not None:
        raise MCPError(INVALID_PARAMS, "no cursor of this list, which is one page")


async def list_tools(ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None) -> ListToolsResult:
    """All tools on one page: four clients never ask for a second one. Raises MCPError for a cursor nobody was given."""
    no_cursor(params)
    caller = caller_of(ctx)
    try:
        tools = await (await caller.gate()).list_tools(caller.principal)
    except AiSessionError as problem:
        raise MCPError(INTERNAL_ERROR, f"{problem.message}; {problem.suggestion}") from None
    return ListToolsResult(tools=[describe(tool) for tool in tools])


def describe(tool: ListedTool) -> Tool:
    """A tool of the gate as the SDK lists it. Titles twice: clients read the one or the other."""
    return Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=dict(tool.input_schema),
        output_schema=dict(tool.output_schema),
        annotations=ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=tool.open_world,
        ),
        _meta={"anthropic/alwaysLoad": True} if tool.always_load else None,
    )


async def call_tool(
    ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams, patience_seconds: float | None = None
) -> Message | InputRequiredResult:
    """One call through the gate, which waits for a command no longer than ``patience_seconds``."""
    client = caller_of(ctx).principal.client
    state, answers = returned(ctx, params, client)
    call = call_of(ctx, caller_of(ctx).principal, params.name, params.arguments or {}, state=state, answers=answers)
    call = replace(call, patience_seconds=patience_seconds)
    result = await carried_out(ctx, call)
    if result.question:
        return to_be_answered(result.question, result.state, meta_of(call, result))
    given = shown(call, result)
    if state and result.is_error and given["_meta"][ERROR].get("code") == InvalidArguments.code:
        raise MCPError(INVALID_PARAMS, result.text)
    return given


def needs_no_model(version: str, params: Message | None) -> bool:
    """Whether the SDK's models of a call would only copy its parameters, and those of its result the result."""
    if version not in WHOLE_RESULTS or params is None or not params.keys() <= {"name", "arguments", "_meta"}:
        return False
    name, arguments, meta = params.get("name"), params.get("arguments", {}), params.get("_meta", {})
    if not (isinstance(name, str) and isinstance(arguments, dict) and isinstance(meta, dict)):
        return False
    token = meta.get("progressToken", 0)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    names: list[str] = [*arguments, *meta]  # pyright: ignore[reportUnknownArgumentType]
    if not (name.isascii() and all(map(str.isascii, names)) and type(token) in (str, int)):  # pyright: ignore[reportUnknownArgumentType]
        return False
    return not any(key.startswith(RESERVED) and key not in ENVELOPE for key in names[len(arguments) :])  # pyright: ignore[reportUnknownArgumentType]


def envelope_of(meta: Message) -> str:
    """What a request since 2026-07-28 says of its client; requests that say the same are judged alike. The text tells
    ``true`` from 1."""
    return repr([(name, meta[name]) for name in ENVELOPE if name in meta])


async def call_without_models(ctx: ServerRequestContext[Any, Any], params: Message, stamp: Message) -> Message:
    """As ``call_tool`` and the SDK around it, in a quarter less time, for what ``needs_no_model``. ``stamp`` is what
    the SDK adds to what it says beside a result since 2026-07-28."""
    call = call_of(ctx, caller_of(ctx).principal, params["name"], params.get("arguments", {}))
    result = await carried_out(ctx, call)
    if result.question:
        asked = to_be_answered(result.question, result.state, meta_of(call, result))
        plain = asked.model_dump(by_alias=True, mode="json", exclude_none=True)
        given = serialize_server_result(ctx.method, ctx.protocol_version, plain)
    else:
        given = shown(call, result)
    if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
        given["_meta"] |= stamp
    else:
        del given["resultType"]
    return given


async def carried_out(ctx: ServerRequestContext[Any, Any], call: ToolCall) -> ToolResult:
    """What the gate makes of a call. Raises MCPError for a tool that there is not."""
    caller = caller_of(ctx)
    try:
        return await caller.call(call, asker_of(ctx, caller.principal.client))
    except UnknownTool as problem:
        raise MCPError(INVALID_PARAMS, f"{problem.message}; {problem.suggestion}") from None


def meta_of(call: ToolCall, result: ToolResult) -> dict[str, Any]:
    """What stands beside a result: where its records lie in the audit, and its id there."""
    return {**scrub(dict(result.meta)), CALL_ID: call.call_id}


def shown(call: ToolCall, result: ToolResult) -> Message:
    """A result as clients see it. A failed one has no structured content, which they check against the schema."""
    structured, meta = scrub(dict(result.structured)), meta_of(call, result)
    if result.is_error:
        meta[ERROR] = structured.get("error", structured)
    content = [{"text": scrub(result.text), "type": "text"}]
    given = {"_meta": meta, "content": content, "isError": result.is_error, "resultType": "complete"}
    if not result.is_error:
        given["structuredContent"] = structured
    return given
