"""The course of a call, for its audit record and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ai_session.errors import (
    AiSessionError,
    InsufficientScope,
    InvalidArguments,
    QuestionNotFound,
    RateLimited,
    UnknownTool,
)
from ai_session.gate.results import refusal
from ai_session.models import Principal

OUTCOMES: tuple[tuple[type[BaseException], str], ...] = (
    (InvalidArguments, "invalid"),
    (UnknownTool, "invalid"),
    (QuestionNotFound, "invalid"),
    (PermissionError, "denied"),
    (RateLimited, "limited"),
)
"""The audit log's names for errors; any other one is a tool_error."""

LOST = "lost"


@dataclass(slots=True)
class Trace:
    """What the audit record of a call will say about it; its result names the ``box``."""

    outcome: str = "crash"
    rule: str = ""
    code: str = ""
    box: str = ""
    call_id: str = ""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])

    def record_failure(self, error: BaseException) -> None:
        """Record the outcome of a call that was refused, failed or was cancelled; ``lost`` is not changed."""
        if isinstance(error, AiSessionError):
            self.outcome = next((outcome for kind, outcome in OUTCOMES if isinstance(error, kind)), "tool_error")
            self.code = error.code
        elif isinstance(error, OSError):
            self.outcome = "tool_error"
            self.code = refusal(error)[0]
        elif isinstance(error, Exception):
            self.outcome = "crash"
        elif self.outcome != LOST:
            self.outcome = "cancelled"


@dataclass(frozen=True, slots=True)
class Program:
    """A program that runs in a box on a person's own terminal: its call, and ``event``, which records what its box did.

    ``box`` is what another process needs to make the box.
    """

    trace: Trace
    event: Callable[..., None]
    box: Mapping[str, Any]


def rate_key(principal: Principal) -> str:
    """Return the key by which calls are counted together for rates."""
    return principal.subject or f"{principal.kind}:{principal.uid}:{principal.pid}"


def extra_facts(error: AiSessionError) -> dict[str, Any]:
    """Return what a caller can use in addition to the error's code and text."""
    if isinstance(error, RateLimited):
        return {"retry_after_seconds": error.retry_after_seconds}
    if isinstance(error, InvalidArguments):
        return {"fields": error.fields} if error.fields else {}
    return {"required_scope": error.required_scope} if isinstance(error, InsufficientScope) else {}
