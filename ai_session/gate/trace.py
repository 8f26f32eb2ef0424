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
"""How the audit log calls what went wrong; anything else is a tool_error."""

LOST = "lost"


@dataclass(slots=True)
class Trace:
    """What the audit record of a call will say of it; its result names the ``box``."""

    outcome: str = "crash"
    rule: str = ""
    code: str = ""
    box: str = ""
    call_id: str = ""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])

    def failed(self, error: BaseException) -> None:
        """The reported outcome of a call that was refused, failed or was given up; lost stays lost."""
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
    """One that runs in a box on a person's own terminal: its call, and ``event``, which records what its box did.

    ``box`` is what a box is made of here, for whoever makes it.
    """

    trace: Trace
    event: Callable[..., None]
    box: Mapping[str, Any]


def rate_key(principal: Principal) -> str:
    """Whose rates are counted together."""
    return principal.subject or f"{principal.kind}:{principal.uid}:{principal.pid}"


def more_of(error: AiSessionError) -> dict[str, Any]:
    """What a caller can go by besides code and words."""
    if isinstance(error, RateLimited):
        return {"retry_after_seconds": error.retry_after_seconds}
    if isinstance(error, InvalidArguments):
        return {"fields": error.fields} if error.fields else {}
    return {"required_scope": error.required_scope} if isinstance(error, InsufficientScope) else {}
