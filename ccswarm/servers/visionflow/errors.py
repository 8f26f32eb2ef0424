"""VisionFlow's error codes, and the exception that carries one."""

from __future__ import annotations

from typing import Any

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
REFUSED = -32000
"""Not authenticated, too many requests, or too many connections."""
SWARM_NOT_FOUND, AGENT_NOT_FOUND, TASK_NOT_FOUND, CAPACITY_EXCEEDED, SPAWN_FAILED = (
    -32001,
    -32002,
    -32003,
    -32004,
    -32005,
)

MESSAGES = {
    PARSE_ERROR: "Parse error",
    INVALID_REQUEST: "Invalid Request",
    METHOD_NOT_FOUND: "Method not found",
    INVALID_PARAMS: "Invalid params",
    INTERNAL_ERROR: "Internal error",
    SWARM_NOT_FOUND: "Swarm not found",
    AGENT_NOT_FOUND: "Agent not found",
    TASK_NOT_FOUND: "Task not found",
    CAPACITY_EXCEEDED: "Swarm capacity exceeded",
    SPAWN_FAILED: "Agent spawn failed",
}


class Fault(Exception):
    """An error response. ``field`` is the parameter it is about, ``detail`` says what is wrong with it."""

    def __init__(self, code: int, field: str = "", detail: str = "", message: str = "") -> None:
        super().__init__(detail or message or MESSAGES.get(code, ""))
        self.code = code
        self.field = field
        self.detail = detail
        self.message = message or MESSAGES[code]

    def to_json(self) -> dict[str, Any]:
        """Return the ``error`` of a response."""
        data = {name: value for name, value in (("field", self.field), ("message", self.detail)) if value}
        return {"code": self.code, "message": self.message, **({"data": data} if data else {})}
