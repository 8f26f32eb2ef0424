"""Calls at the gate for resources, prompts and completion, and the errors for their denials."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from agentwire.json_lines import scrub
from ai_session.errors import AiSessionError, CommandNotFound, SessionNotFound, UnknownTool
from ai_session.models import Answer, ToolResult
from ai_session.servers.mcp.caller import call_of, caller_of

if TYPE_CHECKING:
    from ai_session.gate.api import Asker

Context = ServerRequestContext[Any, Any]

RESOURCE_NOT_FOUND = -32002
"""The code in the handshake era; since 2026-07-28, a missing resource is an invalid parameter."""

MISSING = (SessionNotFound.code, CommandNotFound.code)
OURS = ("audit_broken", "config_invalid", "daemon_unavailable", "storage_full", "system_error")
"""Failures on this side; any other refusal is for the caller to act on."""


class Missing(MCPError):
    """It does not exist, or not for this caller."""


async def call_tool(
    ctx: Context,
    tool: str,
    *,
    uri: str | None = None,
    asker: Asker | None = None,
    state: str = "",
    answers: dict[str, Answer] | None = None,
    **arguments: Any,
) -> ToolResult:
    """Return the result of one call at the gate; with a question only if ``asker`` returns them.

    Raises MCPError for every refusal, with the ``uri`` that was requested, if any.
    """
    caller = caller_of(ctx)
    call = replace(call_of(ctx, caller.principal, tool, arguments, state=state, answers=answers), unlisted=True)
    try:
        result = await caller.call(call, asker)
    except UnknownTool as problem:  # a daemon of another version
        raise refusal(ctx, problem) from None
    if result.is_error:
        raise refused(ctx, result.structured.get("error", {}), uri)
    return result


def refused(ctx: Context, error: dict[str, Any], uri: str | None = None) -> MCPError:
    """Return the protocol's error for one of the gate's, which becomes its ``data``."""
    error = scrub(error)
    code, message = str(error.get("code", "")), str(error.get("message", ""))
    if code in MISSING:
        return missing(ctx, uri, message)
    data = error | ({} if uri is None else {"uri": uri})
    if isinstance(wait := error.get("retry_after_seconds"), (int, float)):
        data["retryAfterMs"] = round(wait * 1000)
    number = INTERNAL_ERROR if code in OURS else INVALID_PARAMS if code == "invalid_arguments" else INVALID_REQUEST
    suggestion = error.get("suggestion")
    return MCPError(number, f"{message}; {suggestion}" if suggestion else message, data)


def missing(ctx: Context, uri: str | None, why: str = "") -> Missing:
    """Return the protocol's error for what does not exist, or not for this caller."""
    if uri is None:
        return Missing(INVALID_PARAMS, why)
    modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    message = why or f"no resource {uri[:200]!r}"
    return Missing(INVALID_PARAMS if modern else RESOURCE_NOT_FOUND, scrub(message), {"uri": scrub(uri)})


def refusal(ctx: Context, error: AiSessionError) -> MCPError:
    """Return the protocol's error for an exception of the gate, whose facts become its ``data``."""
    facts: dict[str, Any] = {"code": error.code, "message": error.message, "suggestion": error.suggestion}
    scope = getattr(error, "required_scope", "")
    return refused(ctx, facts | ({"required_scope": scope} if scope else {}))
