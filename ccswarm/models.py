"""Values that cross a process boundary: immutable, and plain JSON in both directions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Json = Any
"""Anything ``json.dumps`` accepts and ``json.loads`` returns."""

Priority = Literal["low", "medium", "high", "critical"]
PRIORITIES: tuple[Priority, ...] = ("critical", "high", "medium", "low")
"""The priorities, highest first."""


@dataclass(frozen=True, slots=True)
class ToolInfo:
    """One tool of one server, as the server describes it."""

    server: str
    name: str
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    output_schema: Mapping[str, Any] | None = None
    title: str = ""
    read_only: bool = False
    destructive: bool = True
    """As in the protocol, a tool counts as destructive unless it says otherwise."""
    idempotent: bool = False
    open_world: bool = True

    @property
    def full_name(self) -> str:
        """``server.tool``: the tool's name in grants, plans and journals."""
        return f"{self.server}.{self.name}"

    @property
    def keyed(self) -> bool:
        """Whether the tool accepts a ``call_key``, so that a repeated call has its effect only once."""
        properties = self.input_schema.get("properties")
        return isinstance(properties, Mapping) and "call_key" in properties


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """A server's answer to one call. ``meta`` is the result's ``_meta``."""

    text: str
    structured: Mapping[str, Any] | None = None
    is_error: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    other_content: Sequence[Mapping[str, Any]] = ()
    """Images, audio, resources and links, in the protocol's form."""


class CallStatus(StrEnum):
    """How a tool call ended. ``ok`` and ``tool_error`` come from the tool. After ``lost`` and ``timeout`` it is unknown
    whether the call had an effect."""

    OK = "ok"
    TOOL_ERROR = "tool_error"
    INVALID = "invalid"
    DENIED = "denied"
    BUDGET = "budget_exhausted"
    TIMEOUT = "timeout"
    LOST = "lost"
    CANCELLED = "cancelled"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A call that an agent requests. ``tool`` is ``server.tool``; ``key`` is the same in retries and recovery."""

    run_id: str
    task_id: str
    step_id: str
    agent: str
    tool: str
    arguments: Mapping[str, Any]
    key: str = ""
    attempt: int = 1
    timeout_seconds: float | None = None
    approval: str = ""
    """The id of the approved question, if the agent needs an approval."""
    for_user: bool = False
    """Whether the call is for the swarm's user, who sees every agent's sessions; servers get no agent name."""
    principal: str = ""
    """The run passed to servers, which alone owns what the call opens; empty: ``run_id``."""
    claim: str = ""
    """The id of the process that first prepared the call; empty: this one."""
    repeatable: bool = False
    """Whether the call may be repeated, whatever the tool declares."""

    @property
    def digest(self) -> str:
        """The SHA-256 of the tool and its arguments, which an approval is bound to."""
        plain = json.dumps([self.tool, dict(self.arguments)], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(plain.encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """How a call ended. ``code`` and ``message`` say why it did not run or failed. ``call_id`` and ``audit`` identify
    the call in the server's own audit log, if it has one."""

    status: CallStatus
    text: str = ""
    structured: Mapping[str, Any] | None = None
    code: str = ""
    message: str = ""
    suggestion: str = ""
    call_id: str = ""
    audit: Mapping[str, Any] | None = None
    duration_seconds: float = 0.0
    images: Sequence[Mapping[str, str]] = ()
    """The images of the answer, each with its media ``type`` and its ``data`` in base64."""

    @property
    def ok(self) -> bool:
        """Whether the tool ran and reported no error. The caller judges the exit code."""
        return self.status is CallStatus.OK

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are not empty."""
        facts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: value for name, value in facts.items() if value not in ("", None, 0.0, ())}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> CallOutcome:
        """Rebuild an outcome from the result of ``to_json``."""
        plain: dict[str, Any] = {**facts, "status": CallStatus(facts["status"])}
        return cls(**plain)


class RunStatus(StrEnum):
    """The status of a run or a task. ``blocked`` waits for a person; ``exhausted`` used up a budget."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING_APPROVAL = "waiting_approval"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    BLOCKED = "blocked"
    EXHAUSTED = "budget_exhausted"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"

    @property
    def over(self) -> bool:
        """Whether the status changes only if a person acts."""
        return self not in (self.QUEUED, self.RUNNING, self.WAITING_APPROVAL, self.PAUSED)


@dataclass(frozen=True, slots=True)
class Usage:
    """The amounts spent, which budgets limit."""

    calls: int = 0
    tokens: int = 0
    dollars: float = 0.0
    seconds: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.tokens + other.tokens,
            self.dollars + other.dollars,
            self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True)
class LoginFacts:
    """The parts of a login that may be shown. ``expires_at`` is a Unix time, None if unknown."""

    issuer: str
    scopes: tuple[str, ...]
    expires_at: float | None
    renewable: bool


@dataclass(frozen=True, slots=True)
class Execution:
    """A run, a task, or a part of one, as stored. Times are Unix times in seconds, 0 if not yet known."""

    id: str
    kind: str
    status: RunStatus
    parent: str = ""
    agent: str = ""
    priority: Priority = "medium"
    worker: str = ""
    created_at: float = 0.0
    ended_at: float = 0.0
    payload: Json = None
    result: Json = None
    error: str = ""
    shown: Mapping[str, Any] | None = None
