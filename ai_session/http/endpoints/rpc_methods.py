"""Methods of AgentVault's tool servers: which tool each one is, and how clients expect a result of the gate."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ai_session.errors import AiSessionError, DaemonUnavailable, InsufficientScope, InvalidArguments
from ai_session.models import Principal, ToolCall, ToolResult

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
NO_METHOD = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
LIST, SESSION = "tools/list", "session."
CALL_ID, ERROR = "ai-session/call_id", "ai-session/error"
BROKEN = (AiSessionError.code, DaemonUnavailable.code)
"""Errors that are failures of this server, not of a tool."""

Table = dict[str, Any]


class Refused(Exception):
    """A request is answered with an error instead of a result."""

    def __init__(self, code: int, message: str, data: Table | None = None) -> None:
        super().__init__(message)
        self.error: Table = {"code": code, "message": message, **({"data": data} if data else {})}


class OutOfScope(Exception):
    """The caller's token lacks a scope for the call."""

    def __init__(self, error: Mapping[str, Any], result: Table) -> None:
        super().__init__(error["message"])
        self.message: str = error["message"]
        self.required_scope: str = error["required_scope"]
        self.result = result
        """The error as one answer of a batch."""


def text_content(result: ToolResult) -> list[Table]:
    """Return the tool's text, with its encoding if that is not UTF-8."""
    encoding = result.structured.get("encoding", "utf-8")
    return [{"type": "text", "text": result.text, **({"encoding": encoding} if encoding != "utf-8" else {})}]


def code_content(result: ToolResult) -> list[Table]:
    """Return both outputs and the exit code, and a note if there is one."""
    known = result.structured
    result_for: Table = {"type": "code_output", "stdout": known["output"], "stderr": known["stderr"]}
    names = {"stdout_base64": "stdoutBase64", "stderr_base64": "stderrBase64", "exit_code": "exitCode"}
    result_for |= {key: known[name] for name, key in names.items() if name in known}
    if known["status"] == "timed_out":
        return [{"type": "text", "text": f"Error: Execution timed out: {known['note']}."}, result_for]
    return [result_for, *([{"type": "text", "text": known["note"]}] if "note" in known else [])]


@dataclass(frozen=True, slots=True)
class Method:
    """A tool under another name. ``params`` are all it accepts."""

    tool: str
    params: tuple[str, ...]
    content: Callable[[ToolResult], list[Table]] = text_content


METHODS: Mapping[str, Method] = {
    "filesystem.readFile": Method("read_file", ("path",)),
    "filesystem.writeFile": Method("write_file", ("path", "content", "encoding", "call_key")),
    "filesystem.listDirectory": Method("list_directory", ("path",)),
    "code.runPython": Method("run_python", ("code", "timeout_seconds", "call_key"), code_content),
}
UNLISTED = tuple(method.tool for method in METHODS.values())


def described(tools: Iterable[Any]) -> list[Table]:
    """Return what can be called, with its arguments: the methods above, then every listed tool."""
    known = {tool.name: tool for tool in tools}
    named = {name: known.pop(method.tool) for name, method in METHODS.items() if method.tool in known}
    named |= {SESSION + name: tool for name, tool in known.items()}
    return [
        {"name": name, "description": tool.description, "inputSchema": dict(tool.input_schema)}
        for name, tool in named.items()
    ]


def call_of(principal: Principal, name: str, params: Table) -> ToolCall:
    """Return the call that a method's request means. Raises Refused."""
    method = METHODS.get(name)
    if method is None:
        return _call(principal, name.removeprefix(SESSION), params)
    unknown = [repr(each[:40]) for each in params if each not in method.params]
    if unknown:
        known = ", ".join(method.params)
        raise Refused(INVALID_PARAMS, f"Invalid params: {name} has no {', '.join(unknown[:8])}, but {known}")
    return _call(principal, method.tool, params, unlisted=True)


def _call(principal: Principal, tool: str, arguments: Table, *, unlisted: bool = False) -> ToolCall:
    return ToolCall(principal, tool, arguments, "call_" + secrets.token_urlsafe(16), unlisted=unlisted)


def result_for(name: str, call: ToolCall, result: ToolResult) -> Table:
    """Return the result of a method. Raises Refused, OutOfScope."""
    meta: Table = {**result.meta, CALL_ID: call.call_id}
    if result.is_error:
        return error_for(name, result, meta)
    method = METHODS.get(name)
    if method is None:
        content = text_content(ToolResult(result.text, {}))
        return {"content": content, "structuredContent": dict(result.structured), "_meta": meta}
    failure = {"isError": True} if result.structured.get("status") in ("timed_out", "lost") else {}
    return {**failure, "content": method.content(result), "_meta": meta}


def error_for(name: str, result: ToolResult, meta: Table) -> Table:
    """Return the result of a method whose tool failed or was refused, with the error in its text and its ``_meta``.

    Raises Refused for wrong arguments and for a failure of ai-session's, OutOfScope for a scope that the token lacks.
    """
    error: Mapping[str, Any] = result.structured["error"]
    code, message = error["code"], str(error["message"])
    if code == InvalidArguments.code:
        problem = message.removeprefix(f"{call_name(name)}: ")
        raise Refused(INVALID_PARAMS, f"Invalid params: {problem}", {"code": code, "suggestion": error["suggestion"]})
    if code in BROKEN:
        raise Refused(INTERNAL_ERROR, f"Internal error: {message}", {"code": code, "suggestion": error["suggestion"]})
    begins = message[:1] if "_" in message.partition(" ")[0] else message[:1].upper()
    text = f"Error: {begins}{message[1:].rstrip('.')}."
    if error["suggestion"]:
        text += f"\nnext: {error['suggestion']}"
    tool_error = {"isError": True, "content": [{"type": "text", "text": text}], "_meta": {**meta, ERROR: dict(error)}}
    if code == InsufficientScope.code:
        raise OutOfScope(error, tool_error)
    return tool_error


def call_name(name: str) -> str:
    """Return the name of the tool behind a method."""
    return METHODS[name].tool if name in METHODS else name.removeprefix(SESSION)
