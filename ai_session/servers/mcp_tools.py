"""The tools of the gate, listed and called as the SDK has it."""

from __future__ import annotations

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
    ctx: ServerRequestContext[Any, Any], params: CallToolRequestParams
) -> CallToolResult | InputRequiredResult:
    """One call through the gate. A failed one has no structured content, which clients check against the schema."""
    caller = caller_of(ctx)
    client = caller.principal.client
    state, answers = returned(ctx, params, client)
    call = call_of(ctx, caller.principal, params.name, params.arguments or {}, state=state, answers=answers)
    try:
        result = await caller.gate.call(call, asker_of(ctx, client))
    except UnknownTool as problem:
        raise MCPError(INVALID_PARAMS, f"{problem.message}; {problem.suggestion}") from None
    structured = scrub(dict(result.structured))
    meta: dict[str, Any] = {**scrub(dict(result.meta)), CALL_ID: call.call_id}
    if result.question:
        return to_be_answered(result.question, result.state, meta)
    if result.is_error:
        meta[ERROR] = structured.get("error", structured)
        if state and meta[ERROR].get("code") == InvalidArguments.code:
            raise MCPError(INVALID_PARAMS, result.text)
    return CallToolResult(
        content=[TextContent(type="text", text=scrub(result.text))],
        structured_content=None if result.is_error else structured,
        is_error=result.is_error,
        _meta=meta,
    )
