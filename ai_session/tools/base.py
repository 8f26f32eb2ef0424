"""What a tool is: a name, a description written for the model, schemas, an effect and a function.

Arguments are pydantic models, so that every problem is reported at once; schemas are flat and plain because clients
mangle ``$ref``, ``anyOf`` and nested definitions.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ai_session.models import TRUSTED, Effect, Principal, SandboxLevel, SandboxProfile, ToolResult
from ai_session.sessions.session import Session
from ai_session.sessions.visible import VisibleSessions
from ai_session.sessions.workspaces import StartDirectory, Workspaces
from ai_session.terminal.masking import Spans

MAX_WAIT_SECONDS = 50.0
"""Six clients cancel a call after 60 s, whatever progress is reported."""

MAX_OUTPUT_CHARS = 200_000

HIDDEN = frozenset({"title", "default", "minLength", "maxLength", "minimum", "maximum", "maxItems"})
"""Schema keywords that cost tokens on every turn and that an error message explains as well."""

SessionId = Annotated[str, Field(min_length=1, max_length=200, description="Session id or name.")]


class Arguments(BaseModel):
    """Base of every tool's arguments. Unknown names are ignored here, and the gate names them in the result."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


def encodable(text: str) -> str:
    """Return ``text`` if it encodes bytes: UTF-8, with a lone surrogate for each other byte. Raises ValueError."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError("contains an unpaired surrogate") from None
    return text


def checked_text(text: str) -> str:
    """Return ``text`` if a shell accepts it: encodable and without NUL. Raises ValueError."""
    if "\0" in text:
        raise ValueError("contains a NUL character, which a shell cannot take")
    return encodable(text)


class EffectfulArguments(Arguments):
    """Arguments of a tool that changes something."""

    call_key: Annotated[str, Field(max_length=200, description="Idempotency key.")] = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Configured limits of calls."""

    max_output_chars: int = 7000
    execute_seconds: float = 30.0
    wait_seconds: float = MAX_WAIT_SECONDS
    interrupt_step_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Subject:
    """What a call is about: what the policy judges and the tool then uses.

    ``profile`` and ``level`` are the box of the session it acts in, or would create at ``start``. ``path`` is the file
    or directory it accesses itself, which is inside the workspace; ``files`` are further ones it names.
    """

    session: Session | None = None
    profile: SandboxProfile = TRUSTED
    level: SandboxLevel = SandboxLevel.NONE
    start: StartDirectory | None = None
    path: str = ""
    files: tuple[str, ...] = ()
    command: str | None = None
    raw_input: bool = False
    loosens: bool = False


@dataclass(frozen=True, slots=True)
class Context:
    """What a running tool may use.

    ``first_seen`` is when the call's key was first used, 0 for a new one: what that call started must not be started
    again. ``profile`` is a person's choice for a new session; empty means the configured one. ``spans`` finds secrets.
    ``began`` is when the call arrived, on the monotonic clock; infinity means now.
    """

    principal: Principal
    sessions: VisibleSessions
    workspaces: Workspaces
    limits: Limits
    profile: str = ""
    subject: Subject = Subject()
    first_seen: float = 0.0
    spans: Spans | None = None
    patience_seconds: float | None = None
    began: float = math.inf

    @property
    def repeated(self) -> bool:
        """Whether the call's key was used before."""
        return self.first_seen > 0

    def bounded(self, seconds: float, chars: int, notes: list[str]) -> tuple[float, int]:
        """Return a wait (negative: the default) and an output size (0: the default), clamped; noted in ``notes``."""
        longest = min(self.limits.wait_seconds, MAX_WAIT_SECONDS)
        if seconds > longest:
            notes.append(f"timeout_seconds lowered to {longest:g}")
        if chars > MAX_OUTPUT_CHARS:
            notes.append(f"max_output_chars lowered to {MAX_OUTPUT_CHARS}")
        wait = self.limits.execute_seconds if seconds < 0 else seconds
        if self.patience_seconds is not None:
            wait = min(wait, self.patience_seconds)
        return min(wait, longest), min(chars or self.limits.max_output_chars, MAX_OUTPUT_CHARS)

    def left(self, seconds: float) -> float:
        """Return how much of a wait of ``seconds`` is left, so that no call takes longer than the longest wait."""
        return max(0.0, min(seconds, self.began + MAX_WAIT_SECONDS - time.monotonic()))


def subject_of(context: Context, arguments: Any) -> Subject:
    """Return the session a call names, if any, and the command it would run. Raises SessionNotFound."""
    command: str | None = getattr(arguments, "command", None)
    if reference := getattr(arguments, "session_id", ""):
        session = context.sessions.get(reference)
        return Subject(session, session.spec.profile, session.spec.level, command=command)
    return Subject(command=command)


@dataclass(frozen=True, slots=True)
class Tool:
    """One entry of ``tools/list``; one that is not ``listed`` is behind a resource, a prompt or another interface.

    ``run`` raises AiSessionError for what the caller should read as a tool error. ``subject`` returns, before anything
    is decided, what a call is about.

    The gate knows no tool by its name. ``opens``: it opens a session; a ``session_id`` in its result is that session's.
    ``closes``: it closes the session that the call is about. ``ends_only``: all it does is end something, which is
    allowed where nothing else is. ``needed_to_end``: it shows a person what there is to end. ``reports``: its result
    reports what appeared in the session's workspace.
    """

    name: str
    title: str
    description: str
    effect: Effect
    arguments: type[Arguments]
    run: Callable[[Context, Any], Awaitable[ToolResult]]
    output_schema: Mapping[str, Any]
    subject: Callable[[Context, Any], Subject] = subject_of
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    always_load: bool = False
    listed: bool = True
    resumable: bool = False
    opens: bool = False
    closes: bool = False
    ends_only: bool = False
    needed_to_end: bool = False
    reports: bool = False

    @property
    def input_schema(self) -> dict[str, Any]:
        """The flat JSON schema of the arguments: no titles, defaults, bounds, references or unions."""
        schema = self.arguments.model_json_schema()
        flat: dict[str, Any] = {"type": "object", "properties": {}}
        for name, value in schema.get("properties", {}).items():
            plain = {k: v for k, v in value.items() if k not in HIDDEN}
            for choice in plain.pop("anyOf", ()):
                if choice.get("type") != "null":
                    plain = {**choice, **plain}
            flat["properties"][name] = plain
        if schema.get("required"):
            flat["required"] = schema["required"]
        return flat | {"additionalProperties": False}


def unlisted(
    run: FunctionType,
    title: str,
    arguments: type[Arguments],
    schema: Mapping[str, Any],
    effect: Effect = Effect.READ,
    *,
    description: str = "",
    subject: Callable[[Context, Any], Subject] = subject_of,
) -> Tool:
    """Return the tool behind a resource, a prompt or a program's interface, under the name of its function."""
    return Tool(
        name=run.__name__,
        title=title,
        description=description or run.__doc__ or "",
        effect=effect,
        arguments=arguments,
        run=run,
        output_schema=schema,
        subject=subject,
        read_only=effect is Effect.READ,
        destructive=effect is Effect.DESTRUCTIVE,
        idempotent=effect is Effect.READ,
        listed=False,
    )


def output(*strings: str, **others: str) -> dict[str, Any]:
    """Return a flat output schema: ``output("status", exit_code="integer?")``; ``?`` marks what may be absent."""
    kinds = dict.fromkeys(strings, "string") | others
    return {
        "type": "object",
        "properties": {n: {"type": k.removesuffix("?")} for n, k in kinds.items()},
        "required": [n for n, k in kinds.items() if not k.endswith("?")],
    }
