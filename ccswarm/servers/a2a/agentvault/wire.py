"""AgentVault's messages: requests of clients, and tasks and events as clients read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from ccswarm.servers.a2a.task_store import State, Task, TaskEvent

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
AGENT_ERROR, TASK_NOT_FOUND = -32000, -32001

ROLES = ("user", "assistant", "system", "tool")
PARTS = ("text", "file", "data")
STATES = {state: state.value.upper().replace("-", "_") for state in State}
EVENTS = {"status": "task_status", "message": "task_message", "artifact": "task_artifact"}

Facts = Mapping[str, Any]


class Fault(Exception):
    """An error response of JSON-RPC."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that clients receive."""
        return {"code": self.code, "message": self.message} | ({} if self.data is None else {"data": self.data})


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A call that a client requests."""

    target: str
    tool: str
    arguments: Mapping[str, Any]


def request_of(message: Any) -> tuple[str, Facts]:
    """Return method and parameters. Raises Fault."""
    if isinstance(message, list):
        raise Fault(INVALID_REQUEST, "Invalid request: batches are not supported")
    if not isinstance(message, dict):
        raise Fault(INVALID_REQUEST, "Invalid request: not an object")
    facts = cast("Facts", message)
    number = facts.get("id")
    method = facts.get("method")
    params = facts.get("params")
    if facts.get("jsonrpc") != "2.0":
        raise Fault(INVALID_REQUEST, 'Invalid request: jsonrpc must be "2.0"')
    if number is not None and id_of(message) is None:
        raise Fault(INVALID_REQUEST, "Invalid request: id must be a string or an integer")
    if not isinstance(method, str):
        raise Fault(INVALID_REQUEST, "Invalid request: method must be a string")
    if params is not None and not isinstance(params, dict):
        raise Fault(INVALID_PARAMS, "Invalid parameters: params must be an object")
    return method, cast("Facts", params or {})


def id_of(message: Any) -> str | int | None:
    """Return the request's id for the response; None if it is unusable."""
    number = cast("Facts", message).get("id") if isinstance(message, dict) else None
    return number if isinstance(number, (str, int)) and not isinstance(number, bool) else None


def task_id_of(params: Facts) -> str:
    """Return the task id. Raises Fault."""
    found = params.get("id")
    if not isinstance(found, str) or not found:
        raise Fault(INVALID_PARAMS, "Invalid parameters: id must be the id of a task")
    return found


def message_of(params: Facts) -> dict[str, Any]:
    """Return the message. Raises Fault."""
    message = params.get("message")
    if not isinstance(message, dict):
        raise Fault(INVALID_PARAMS, "Invalid parameters: message must be an object")
    facts = cast("dict[str, Any]", message)
    if facts.get("role") not in ROLES:
        raise Fault(INVALID_PARAMS, f"Invalid parameters: message.role must be one of: {', '.join(ROLES)}")
    parts = facts.get("parts")
    if not isinstance(parts, list) or not parts:
        raise Fault(INVALID_PARAMS, "Invalid parameters: message.parts must be a non-empty list")
    for part in cast("list[Any]", parts):
        if not isinstance(part, dict) or cast("Facts", part).get("type") not in PARTS:
            raise Fault(INVALID_PARAMS, f"Invalid parameters: a part's type must be one of: {', '.join(PARTS)}")
    return facts


def call_from(message: Facts) -> RequestedCall:
    """Return the call that the message's first data part names. Raises Fault."""
    parts: list[Facts] = message["parts"]
    content = next((part.get("content") for part in parts if part["type"] == "data"), None)
    if not isinstance(content, dict):
        raise Fault(AGENT_ERROR, "Agent error: Invalid input: expected a data part whose content is an object")
    facts = cast("Facts", content)
    target, tool, arguments = (facts.get(name) for name in ("target_mcp_server_id", "tool_name", "arguments"))
    if not isinstance(target, str) or not isinstance(tool, str) or not tool:
        raise Fault(AGENT_ERROR, "Agent error: Invalid input: target_mcp_server_id and tool_name must be strings")
    if not isinstance(arguments, dict):
        raise Fault(AGENT_ERROR, "Agent error: Invalid input: arguments must be an object")
    return RequestedCall(target, tool, cast("Facts", arguments))


def task_json(task: Task) -> dict[str, Any]:
    """Return the task as ``tasks/get`` does."""
    return {
        "id": task.id,
        "state": STATES[task.state],
        "createdAt": time_of(task.created),
        "updatedAt": time_of(task.updated),
        "messages": task.messages,
        "artifacts": task.artifacts,
        "metadata": task.metadata,
    }


def agent_message(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of the agent."""
    part = {"type": "data", "content": content, "mediaType": "application/json"}
    return {"role": "assistant", "parts": [part], "metadata": None}


def event_of(task: Task, run_event: TaskEvent) -> tuple[str, dict[str, Any]]:
    """Return the name and the data of an event."""
    state = {"state": STATES[run_event.state]} if run_event.kind == "status" else {}
    content = {"message" if run_event.kind == "status" else run_event.kind: run_event.content}
    return EVENTS[run_event.kind], {"taskId": task.id, **state, **content, "timestamp": time_of(run_event.at)}


def time_of(seconds: float) -> str:
    """Return a time in the format that these clients parse."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
