"""The gate's tools, listed and called through the SDK."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    ClientCapabilities,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    Tool,
)

from agentwire.json_lines import Message
from ai_session.errors import AiSessionError, InvalidArguments, UnknownTool
from ai_session.models import ToolCall, ToolResult
from ai_session.servers.mcp import apps
from ai_session.servers.mcp.caller import call_of, caller_of
from ai_session.servers.mcp.calls import ERROR, meta_of, result_message
from ai_session.servers.mcp.elicitation import asker_of, returned, to_be_answered
from ai_session.servers.mcp.listing import described


def no_cursor(params: PaginatedRequestParams | None) -> None:
    """Raise MCPError if a page is requested of a list with only one."""
    if params and params.cursor is not None:
        raise MCPError(INVALID_PARAMS, "not a cursor of this list, which has one page")


async def list_tools(ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None) -> ListToolsResult:
    """Return all tools on one page. Raises MCPError without a gate, and for a cursor, as none is ever issued."""
    no_cursor(params)
    caller = caller_of(ctx)
    try:
        tools = await (await caller.gate()).list_tools(caller.principal)
    except AiSessionError as problem:
        raise MCPError(INTERNAL_ERROR, f"{problem.message}; {problem.suggestion}") from None
    views = shows_views(ctx.session.client_capabilities)
    return ListToolsResult(tools=[Tool.model_validate(described(tool, views)) for tool in tools])


def shows_views(capabilities: ClientCapabilities | None) -> bool:
    """Report whether a client shows views of calls."""
    return apps.shows_views(capabilities.extensions if capabilities else None)


async def call_tool(
    ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams, patience_seconds: float | None = None
) -> Message | InputRequiredResult:
    """Make one call through the gate, which waits for a command no longer than ``patience_seconds``."""
    client = caller_of(ctx).principal.client
    state, answers = returned(ctx, params, client)
    call = call_of(ctx, caller_of(ctx).principal, params.name, params.arguments or {}, state=state, answers=answers)
    call = replace(call, patience_seconds=patience_seconds)
    result = await gate_result(ctx, call)
    if result.question:
        return to_be_answered(result.question, result.state, meta_of(call, result))
    given = result_message(call, result)
    if state and result.is_error and given["_meta"][ERROR].get("code") == InvalidArguments.code:
        raise MCPError(INVALID_PARAMS, result.text)
    return given


async def gate_result(ctx: ServerRequestContext[Any, Any], call: ToolCall) -> ToolResult:
    """Return the gate's result of a call. Raises MCPError for an unknown tool."""
    caller = caller_of(ctx)
    try:
        return await caller.call(call, asker_of(ctx, caller.principal.client))
    except UnknownTool as problem:
        raise MCPError(INVALID_PARAMS, f"{problem.message}; {problem.suggestion}") from None
