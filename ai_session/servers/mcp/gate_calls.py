"""Calls at the gate for resources, prompts and completion, and the errors for their denials."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ai_session.errors import AiSessionError, CommandNotFound, SessionNotFound, UnknownTool
from ai_session.models import Answer, ToolResult
from ai_session.servers.mcp.caller import call_of, caller_of, scrub

if TYPE_CHECKING:
    from ai_session.gate.api import Asker

Context = ServerRequestContext[Any, Any]

RESOURCE_NOT_FOUND = -32002
"""Of the handshake era; since 2026-07-28 what is not there is an invalid parameter."""

MISSING = (SessionNotFound.code, CommandNotFound.code)
OURS = ("audit_broken", "config_invalid", "daemon_unavailable", "storage_full", "system_error")
"""What goes wrong on this side; every other refusal is for the caller to act on."""


class Missing(MCPError):
    """It is not there, or not for this caller."""


async def asked(
    ctx: Context,
    tool: str,
    *,
    uri: str | None = None,
    asker: Asker | None = None,
    state: str = "",
    answers: dict[str, Answer] | None = None,
    **arguments: Any,
) -> ToolResult:
    """The result of one call at the gate; a question only where ``asker`` returns them.

    Raises MCPError for every refusal: with the ``uri`` that was meant where there is one.
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
    """The protocol's error for one of the gate's, which is its ``data``."""
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
    """The protocol's error for what is not there, or not for this caller."""
    if uri is None:
        return Missing(INVALID_PARAMS, why)
    modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    message = why or f"no resource {uri[:200]!r}"
    return Missing(INVALID_PARAMS if modern else RESOURCE_NOT_FOUND, scrub(message), {"uri": scrub(uri)})


def refusal(ctx: Context, error: AiSessionError) -> MCPError:
    """As ``refused``, for an error that was raised."""
    facts: dict[str, Any] = {"code": error.code, "message": error.message, "suggestion": error.suggestion}
    scope = getattr(error, "required_scope", "")
    return refused(ctx, facts | ({"required_scope": scope} if scope else {}))
