"""Values that cross a process boundary: frozen, and plain JSON both ways."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Json = Any
"""What ``json.dumps`` takes and ``json.loads`` returns."""

Priority = Literal["low", "medium", "high", "critical"]
PRIORITIES: tuple[Priority, ...] = ("critical", "high", "medium", "low")
"""First come first."""


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
    """As the protocol has it: what does not say so may destroy."""
    idempotent: bool = False
    open_world: bool = True

    @property
    def full_name(self) -> str:
        """``server.tool``: what grants, plans and journals call it."""
        return f"{self.server}.{self.name}"

    @property
    def keyed(self) -> bool:
        """Whether the tool takes a ``call_key``, with which the same call never has its effect twice."""
        properties = self.input_schema.get("properties")
        return isinstance(properties, Mapping) and "call_key" in properties


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """What a server answered to one call. ``meta`` is the result's ``_meta``."""

    text: str
    structured: Mapping[str, Any] | None = None
    is_error: bool = False
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    other_content: Sequence[Mapping[str, Any]] = ()
    """Images, audio, resources and links, as the protocol writes them."""


class CallStatus(StrEnum):
    """How a call of a tool ended. ``ok`` and ``tool_error`` came from the tool; of ``lost`` and ``timeout`` nobody
    knows whether they had their effect."""

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
    """One call an agent wants made. ``tool`` is ``server.tool``; ``key`` stays the same over retry and recovery."""

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
    """Id of the question a person answered with yes, where the agent needs one."""
    for_user: bool = False
    """Made for the swarm's user, who sees what every agent has open; no agent is passed to servers."""
    principal: str = ""
    """The run that is passed to servers, so that what is opened belongs to it alone; empty: ``run_id``."""
    claim: str = ""
    """The process that was about to make the call the first time; empty: this one."""
    repeatable: bool = False
    """Twice is the same as once, whatever is known of the tool."""

    @property
    def digest(self) -> str:
        """Of the tool and its arguments: what an approval is for."""
        plain = json.dumps([self.tool, dict(self.arguments)], sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(plain.encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """How a call ended. ``code`` and ``message`` say why it did not run or failed; ``call_id`` and ``audit`` are what
    the server calls it in its own audit log, where it has one."""

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
    """What it answered beside text: each has its media ``type``, and its ``data`` in base64."""

    @property
    def ok(self) -> bool:
        """Whether the tool ran and reported no error of its own. An exit code is for the caller to judge."""
        return self.status is CallStatus.OK

    def to_json(self) -> dict[str, Any]:
        """Without what is empty."""
        facts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: value for name, value in facts.items() if value not in ("", None, 0.0, ())}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> CallOutcome:
        """What ``to_json`` wrote."""
        plain: dict[str, Any] = {**facts, "status": CallStatus(facts["status"])}
        return cls(**plain)


class RunStatus(StrEnum):
    """Of a run and of a task. ``blocked`` waits for a person to repair something; ``exhausted`` used up a budget."""

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
        """Whether nothing more will happen by itself."""
        return self not in (self.QUEUED, self.RUNNING, self.WAITING_APPROVAL, self.PAUSED)


@dataclass(frozen=True, slots=True)
class Usage:
    """What was spent; sums of these are what budgets bound."""

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
    """What may be shown of a login. ``expires_at`` is a Unix time, None if unknown."""

    issuer: str
    scopes: tuple[str, ...]
    expires_at: float | None
    renewable: bool


@dataclass(frozen=True, slots=True)
class Execution:
    """A run, a task, or a part of one, as the store has it. Times are seconds since 1970, 0 where not yet."""

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
