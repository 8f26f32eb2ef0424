"""What a call is about, in the forms that the policy, the audit log and a person need. No I/O."""

from __future__ import annotations

from typing import Any

from ai_session.gate.policy.policy import Action
from ai_session.models import SandboxLevel, ToolCall
from ai_session.tools.base import Subject, Tool


def action_of(call: ToolCall, tool: Tool, subject: Subject) -> Action:
    """Return what the policy judges."""
    session, start = subject.session, subject.start
    paths = (subject.path or start.directory, start.real, *subject.files) if start else ()
    return Action(
        principal=call.principal,
        tool=tool.name,
        effect=tool.effect,
        agent=call.agent,
        session=session.spec.name if session else "",
        profile=subject.profile.name,
        level=subject.level,
        command=subject.command,
        raw_input=subject.raw_input,
        paths=tuple(filter(None, paths)),
        outside_workspace=bool(start and start.outside),
        loosens=subject.loosens,
        ends_only=tool.ends_only,
    )


def facts_of(subject: Subject) -> dict[str, Any]:
    """Return the facts for the end record."""
    if subject.path:
        return {"path": subject.path, "workspace": subject.start.workspace if subject.start else None}
    facts: dict[str, Any] = {"profile": subject.profile.name, "level": str(subject.level)}
    if session := subject.session:
        facts |= {"session": session.spec.session_id, "name": session.spec.name, "cwd": session.cwd}
    elif subject.start:
        facts["cwd"] = subject.start.directory
    return facts


def box_of(subject: Subject) -> str:
    """Return the box in two words; for a session to be created, the weakest it may get."""
    if subject.level is SandboxLevel.NONE:
        return "none"
    return f"{subject.profile.name} ({subject.level}{'' if subject.session else ' or stronger'})"
