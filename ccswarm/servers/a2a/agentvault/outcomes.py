"""Outcomes of calls as AgentVault's clients get them: a tool's result, or an error and its source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ccswarm.models import CallOutcome, CallStatus
from ccswarm.servers.a2a.http import is_deep, to_bytes

PROXY = "A2A_PROXY"
PROTOCOL = "MCP_PROTOCOL"
TOOL = "MCP_TOOL"
NOTE = "ccswarm/note"
UNKNOWN_EFFECT = {"effect": "unknown"}

OURS: Mapping[str, tuple[str, str]] = {
    "unknown_tool": (PROTOCOL, "-32601"),
    "invalid_arguments": (PROTOCOL, "-32602"),
    "not_granted": (PROXY, "NOT_GRANTED"),
    "rejected": (PROXY, "REJECTED"),
    "budget_exhausted": (PROXY, "BUDGET_EXHAUSTED"),
    "internal_error": (PROXY, "PROXY_INTERNAL_ERROR"),
    "journal_broken": (PROXY, "PROXY_INTERNAL_ERROR"),
    "invalid_response": (PROXY, "MCP_INVALID_RESPONSE"),
    "invalid_result": (PROXY, "MCP_INVALID_RESULT"),
    "unknown_error": (PROTOCOL, "MCP_UNKNOWN_PROTOCOL_ERROR"),
}
"""Source and code, by the code of an outcome that does not come from a tool."""

NUMBER = re.compile(r"-?\d+")
"""The code of a JSON-RPC error; codes of tools and their servers are words."""

WAYS = {
    CallStatus.TIMEOUT: "MCP_TIMEOUT",
    CallStatus.LOST: "MCP_CONNECTION_ERROR",
    CallStatus.UNAVAILABLE: "MCP_CONNECTION_ERROR",
}


def tool_answer(outcome: CallOutcome, tool: str, *, whole: bool) -> dict[str, Any]:
    """Return the content of the answer. ``whole``: the structured answer is the server's complete result."""
    if not outcome.ok:
        return _failure_from_outcome(outcome, tool, whole=whole)
    result = _result(outcome, whole=whole)
    if not _can_be_written(result):
        return failure(PROXY, "MCP_INVALID_RESPONSE", "the result cannot be written as JSON")
    return {"success": True, "mcp_result": result}


def failure(source: str, code: str, message: str, details: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the content of an answer that reports a failure."""
    error = {"source": source, "code": code, "message": message}
    return {"success": False, "error": error | ({"details": dict(details)} if details else {})}


def line_of(content: Mapping[str, Any]) -> str:
    """Return the text of the state that a failure leaves a task in."""
    error = content["error"]
    return f"[{error['source']}/{error['code']}] {error['message']}"


def _result(outcome: CallOutcome, *, whole: bool) -> dict[str, Any]:
    if whole and outcome.structured is not None:
        return dict(outcome.structured)
    facts: dict[str, Any] = {"content": [{"type": "text", "text": outcome.text}]}
    if outcome.structured is not None:
        facts["structuredContent"] = outcome.structured
    return facts | ({"_meta": {NOTE: outcome.message}} if outcome.message else {})


def _failure_from_outcome(outcome: CallOutcome, tool: str, *, whole: bool) -> dict[str, Any]:
    suggestion = {"suggestion": outcome.suggestion} if outcome.suggestion else {}
    structured: Mapping[str, Any] = outcome.structured or {}
    is_protocol_error = NUMBER.fullmatch(outcome.code) or (whole and outcome.code in OURS)
    if outcome.status is CallStatus.TOOL_ERROR and not is_protocol_error:
        content = structured.get("content") if whole else None
        content = content if _can_be_written(content) else None
        details = {"mcp_tool_error_content": content or [{"type": "text", "text": outcome.text}], **suggestion}
        return failure(TOOL, "TOOL_EXECUTION_FAILED", f"Execution failed for tool '{tool}'", details)
    if outcome.code in OURS:
        source, code = OURS[outcome.code]
    elif outcome.status in WAYS:
        source, code = PROXY, WAYS[outcome.status]
    elif outcome.status is CallStatus.TOOL_ERROR:
        source, code = PROTOCOL, outcome.code
    else:
        source, code = PROXY, outcome.code.upper() or "PROXY_INTERNAL_ERROR"
    details = dict(suggestion)
    if outcome.status in (CallStatus.TIMEOUT, CallStatus.LOST):
        details |= UNKNOWN_EFFECT
    if (data := structured.get("data")) is not None and _can_be_written(data):
        details["mcp_protocol_error_data"] = data
    return failure(source, code, outcome.message or outcome.text, details)


def _can_be_written(value: Any) -> bool:
    try:
        return not is_deep(value) and bool(to_bytes(value))
    except (ValueError, TypeError, RecursionError):
        return False
