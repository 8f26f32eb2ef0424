"""A program that runs in a box on the client's terminal: the request before it starts, and the reports about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ai_session.errors import InvalidArguments
from ai_session.models import PROFILES, SandboxLevel

if TYPE_CHECKING:
    from ai_session.gate.trace import Program

CODE_CHARS = 64
FACT_CHARS = 253
EVENTS = ("net.allow", "net.deny", "workspace.notice")
"""The events that the box of a program may report."""
FACTS = ("host", "method", "address", "why", "kind", "path", "workspace")


@dataclass(frozen=True, slots=True)
class ProgramRequest:
    """What a client wants to run, checked for its types."""

    argv: tuple[str, ...]
    profile: str
    workspace: str
    domains: tuple[str, ...] | None


def program(params: Mapping[str, Any]) -> ProgramRequest:
    """Return what the client wants to run. Raises InvalidArguments."""
    profile, workspace = params.get("profile"), params.get("workspace")
    argv = _texts(params, "argv")
    domains = None if params.get("domains") is None and "domains" in params else _texts(params, "domains")
    if profile not in ("", *PROFILES) or not isinstance(workspace, str) or not argv:
        raise InvalidArguments("a program needs argv, profile and workspace")
    return ProgramRequest(argv, profile, workspace, domains)


def note(program: Program, method: str, params: Mapping[str, Any]) -> bool:
    """Record a report of the client and return whether its program has ended. Raises InvalidArguments."""
    trace = program.trace
    if method == "reached":
        event = params.get("event")
        if event not in EVENTS:
            raise InvalidArguments(f"event must be one of {', '.join(EVENTS)}")
        texts = {name: str(params[name])[:FACT_CHARS] for name in FACTS if name in params}
        numbers = {name: value for name in ("port", "count") if isinstance(value := params.get(name), int)}
        program.event(event, **texts, **numbers)
        return False
    if method == "started":
        level = params.get("level")
        if level not in tuple(SandboxLevel):
            raise InvalidArguments("level must be that of a box")
        trace.facts["level"] = level
        return False
    exit_code, failed = params.get("exit_code"), params.get("code")
    if method == "ended" and isinstance(failed, str) and failed:
        trace.outcome = "tool_error"
        trace.code = failed[:CODE_CHARS]
    elif method == "ended" and isinstance(exit_code, int) and 0 <= exit_code <= 255:
        trace.outcome = "ok"
        trace.facts["exit_code"] = exit_code
    else:
        raise InvalidArguments("the event must be started, then ended with an exit_code or an error code")
    return True


def _texts(params: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = params.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in cast("list[Any]", value)):
        raise InvalidArguments(f"{name} must be a list of strings")
    return tuple(cast("list[str]", value))
