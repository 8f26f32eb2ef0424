"""The tools of the gate, listed and called as the SDK has it."""

from __future__ import annotations

from dataclasses import replace
from inspect import isawaitable
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from ai_session.errors import AiSessionError, InvalidArguments, UnknownTool
from ai_session.models import ToolCall, ToolResult
from ai_session.servers.mcp_ask import asker_of, returned, to_be_answered
from ai_session.servers.mcp_caller import call_of, caller_of, scrub

CALL_ID = "ai-session/call_id"
ERROR = "ai-session/error"


async def list_tools(ctx: ServerRequestContext[Any, Any], params: PaginatedRequestParams | None) -> ListToolsResult:
    """All tools on one page, whatever the cursor: four clients never ask for a second one."""
    caller = caller_of(ctx)
    try:
        await caller.daemon.started()
    except AiSessionError as problem:
        raise MCPError(INTERNAL_ERROR, f"{problem.message}; {problem.suggestion}") from None
    found: Any = caller.gate.list_tools(caller.principal)
    tools = await found if isawaitable(found) else found
    return ListToolsResult(tools=[describe(tool) for tool in tools])


def describe(tool: Any) -> Tool:
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
) -> CallToolResult | InputRequiredResult:
    """One call through the gate, which waits for a command no longer than ``patience_seconds``."""
    caller = caller_of(ctx)
    client = caller.principal.client
    state, answers = returned(ctx, params, client)
    call = call_of(ctx, caller.principal, params.name, params.arguments or {}, state=state, answers=answers)
    call = replace(call, patience_seconds=patience_seconds)
    try:
        result = await caller.gate.call(call, asker_of(ctx, client))
    except UnknownTool as problem:
        raise MCPError(INVALID_PARAMS, f"{problem.message}; {problem.suggestion}") from None
    if result.question:
        return to_be_answered(result.question, result.state, meta_of(call, result))
    given = shown(call, result)
    if state and result.is_error and (given.meta or {})[ERROR].get("code") == InvalidArguments.code:
        raise MCPError(INVALID_PARAMS, result.text)
    return given


def meta_of(call: ToolCall, result: ToolResult) -> dict[str, Any]:
    """What stands beside a result: where its records lie in the audit, and its id there."""
    return {**scrub(dict(result.meta)), CALL_ID: call.call_id}


def shown(call: ToolCall, result: ToolResult) -> CallToolResult:
    """A result as clients see it. A failed one has no structured content, which they check against the schema."""
    structured, meta = scrub(dict(result.structured)), meta_of(call, result)
    if result.is_error:
        meta[ERROR] = structured.get("error", structured)
    return CallToolResult(
        content=[TextContent(type="text", text=scrub(result.text))],
        structured_content=None if result.is_error else structured,
        is_error=result.is_error,
        _meta=meta,
    )
