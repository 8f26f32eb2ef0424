"""Errors as both versions of A2A write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
TASK_NOT_FOUND, TASK_NOT_CANCELABLE, PUSH_NOT_SUPPORTED, UNSUPPORTED, CONTENT_TYPE = (
    -32001,
    -32002,
    -32003,
    -32004,
    -32005,
)
NO_EXTENDED_CARD, VERSION_NOT_SUPPORTED = -32007, -32009

MESSAGES = {
    PARSE_ERROR: "Invalid JSON payload",
    INVALID_REQUEST: "Request payload validation error",
    METHOD_NOT_FOUND: "Method not found",
    INVALID_PARAMS: "Invalid parameters",
    INTERNAL_ERROR: "Internal error",
    TASK_NOT_FOUND: "Task not found",
    TASK_NOT_CANCELABLE: "Task cannot be canceled",
    PUSH_NOT_SUPPORTED: "Push Notification is not supported",
    UNSUPPORTED: "This operation is not supported",
    CONTENT_TYPE: "Incompatible content types",
    NO_EXTENDED_CARD: "Authenticated Extended Card is not configured",
    VERSION_NOT_SUPPORTED: "Protocol version is not supported",
}
REASONS = {
    TASK_NOT_FOUND: "TASK_NOT_FOUND",
    TASK_NOT_CANCELABLE: "TASK_NOT_CANCELABLE",
    PUSH_NOT_SUPPORTED: "PUSH_NOTIFICATION_NOT_SUPPORTED",
    UNSUPPORTED: "UNSUPPORTED_OPERATION",
    CONTENT_TYPE: "CONTENT_TYPE_NOT_SUPPORTED",
    NO_EXTENDED_CARD: "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
    VERSION_NOT_SUPPORTED: "VERSION_NOT_SUPPORTED",
}
"""The reasons of the protocol's own errors, for programs."""

FAILED_PRECONDITION = (TASK_NOT_CANCELABLE, PUSH_NOT_SUPPORTED, UNSUPPORTED, NO_EXTENDED_CARD, VERSION_NOT_SUPPORTED)

Violation = tuple[str, str]
"""A field, and what is wrong with it."""


class Fault(Exception):
    """An error response. ``detail`` says what is wrong; ``facts`` are texts for programs."""

    def __init__(self, code: int, detail: str = "", violations: Sequence[Violation] = (), **facts: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.violations = violations
        self.facts = facts

    def to_json(self) -> dict[str, Any]:
        """Return the error of a JSON-RPC response."""
        data = self._details()
        return {"code": self.code, "message": self._message(), **({"data": data} if data else {})}

    @property
    def status(self) -> int:
        """The HTTP status."""
        return {TASK_NOT_FOUND: 404, INTERNAL_ERROR: 500}.get(self.code, 400)

    def to_status(self) -> dict[str, Any]:
        """Return the error for a response without JSON-RPC."""
        name = {TASK_NOT_FOUND: "NOT_FOUND", INTERNAL_ERROR: "INTERNAL"}.get(self.code, "INVALID_ARGUMENT")
        name = "FAILED_PRECONDITION" if self.code in FAILED_PRECONDITION else name
        details = self._details()
        more = {"details": details} if details else {}
        return {"error": {"code": self.status, "status": name, "message": self._message(), **more}}

    def _message(self) -> str:
        detail = self.detail or "; ".join(f"{field}: {what}" if field else what for field, what in self.violations)
        return f"{MESSAGES[self.code]}: {detail}" if detail else MESSAGES[self.code]

    def _details(self) -> list[dict[str, Any]]:
        data: list[dict[str, Any]] = []
        if self.code in REASONS:
            data.append(
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": REASONS[self.code],
                    "domain": "a2a-protocol.org",
                    "metadata": self.facts,
                }
            )
        if self.violations:
            shown = [{"field": field, "description": what} for field, what in self.violations]
            data.append({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": shown})
        return data
