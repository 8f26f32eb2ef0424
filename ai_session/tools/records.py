"""What stands behind resources and prompts and is not listed as a tool: sessions in brief, their past, recordings."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ai_session.audit_files import last_lines, records
from ai_session.hiding import Spans
from ai_session.models import CommandRecord, Effect, ToolResult
from ai_session.recording import export
from ai_session.report import cut, record_facts, recording_source
from ai_session.session import Session
from ai_session.tools.base import Arguments, Context, SessionId, Tool, output

COMMAND_CHARS = 200
RECORDED_BYTES = 1 << 20
"""So much of the log, its newest part, is in a recording that is read as a resource: 100 ms of work."""

AUDIT_LINES = 20_000
"""So many of the newest records are looked through: 200 ms in a thread."""

MAX_CALLS = 200
_NUMBER = re.compile(rb'"seq":(\d+),')


class NoArguments(Arguments):
    pass


class OfSession(Arguments):
    session_id: SessionId


class CallsOfSession(OfSession):
    count: Annotated[int, Field(ge=1, le=MAX_CALLS)] = 50


async def describe_sessions(context: Context, arguments: NoArguments) -> ToolResult:
    """Every session, oldest first, with what a list of resources says of it."""
    rows = [_brief(session, context.spans) for session in context.sessions.all()]
    return ToolResult(
        "\n".join(f"{row['name']} ({row['session_id']}): {row['state']}" for row in rows), {"sessions": rows}
    )


def _brief(session: Session, spans: Spans | None) -> dict[str, Any]:
    spec = session.spec
    changed = spec.created_at
    for name in ("log", "log.end"):
        with suppress(OSError):
            changed = max(changed, (session.directory / name).stat().st_mtime)
    facts: dict[str, Any] = {
        "session_id": spec.session_id,
        "name": spec.name,
        "state": str(session.state()),
        "created_at": spec.created_at,
        "changed_at": changed,
    }
    if newest := session.running.record if session.running else session.history.last:
        facts["newest"] = _command(newest, spans)
    return facts


def _command(record: CommandRecord, spans: Spans | None) -> dict[str, Any]:
    return {
        "command_id": record.command_id,
        "command": cut(record.command, 0, COMMAND_CHARS, spans),
        "started_at": record.started_at,
        "cwd": record.cwd,
        **{name: value for name, value in record_facts(record).items() if value is not None},
    }


async def list_commands(context: Context, arguments: OfSession) -> ToolResult:
    """The commands that are remembered, newest first, the running one before all."""
    session = context.sessions.get(arguments.session_id)
    known = [*session.history.all(), *([session.running.record] if session.running else [])]
    rows = [_command(record, context.spans) for record in reversed(known)]
    text = "\n".join(f"{row['command_id']} {row['status']}: {row['command']}" for row in rows)
    facts = {"session_id": session.spec.session_id, "name": session.spec.name, "commands": rows}
    return ToolResult(text or "no command yet", facts)


async def list_calls(context: Context, arguments: CallsOfSession) -> ToolResult:
    """What was called on a session, by whom and with what outcome, newest last, as the audit log has it."""
    session = context.sessions.get(arguments.session_id)
    folder = session.directory.parents[1] / "audit"
    rows = await asyncio.to_thread(_calls, folder, session.spec.session_id, arguments.count)
    text = "\n".join(", ".join(f"{name} {value}" for name, value in row.items()) for row in rows)
    return ToolResult(text or "no call is on record", {"session_id": session.spec.session_id, "calls": rows})


def _calls(folder: Path, session_id: str, count: int) -> list[dict[str, Any]]:
    lines = last_lines(folder, AUDIT_LINES)
    mine = [line for line in lines if session_id.encode() in line]
    ends = [
        record for record in records(mine) if record.get("event") == "tool.end" and record.get("session") == session_id
    ]
    ends = ends[-count:]
    wanted = {record.get("start") for record in ends}
    begun = (line for line in lines if (found := _NUMBER.search(line)) and int(found[1]) in wanted)
    starts = {record["seq"]: record for record in records(begun)}
    return [_call(starts.get(end.get("start"), {}), end) for end in ends]


def _call(start: dict[str, Any], end: dict[str, Any]) -> dict[str, Any]:
    actor: dict[str, Any] = start.get("actor") or {}
    given: dict[str, Any] = start.get("args") or {}
    command: Any = given.get("command") or end.get("command")
    facts: dict[str, Any] = {
        "at": (start.get("ts") or end["ts"]) / 1e6,
        "who": actor.get("subject") or actor.get("client") or actor.get("kind"),
        "agent": actor.get("agent"),
        "tool": end.get("tool"),
        "outcome": end.get("outcome"),
        "code": end.get("code"),
        "rule": end.get("rule"),
        "command_id": end.get("command_id"),
        "exit_code": end.get("exit_code"),
        "command": command.get("text") if isinstance(command, dict) else None,  # pyright: ignore[reportUnknownMemberType]
        "consent": end.get("consent"),
    }
    return {name: value for name, value in facts.items() if value is not None}


async def get_recording(context: Context, arguments: OfSession) -> ToolResult:
    """An asciicast v3 file as text, of the newest part of a session's output."""
    session = context.sessions.get(arguments.session_id)
    source = recording_source(session)
    whole = source.first
    source = replace(source, first=max(source.first, source.end - RECORDED_BYTES))
    spans: Spans = context.spans or _no_secrets
    lines = await asyncio.to_thread(lambda: list(export(source, spans)))
    facts: dict[str, Any] = {"session_id": session.spec.session_id, "name": session.spec.name}
    facts |= {"from_offset": source.first, "end_offset": source.end}
    if source.first > whole:
        facts["note"] = (
            f"bytes {whole} to {source.first} are left out: the whole with ai-session record {session.spec.name}"
        )
        lines.insert(1, f"# {facts['note']}\n")
    return ToolResult("".join(lines), facts)


def _no_secrets(data: bytes, growing: bool = False, /) -> Sequence[tuple[int, int, bytes]]:
    return ()


def _unlisted(name: str, title: str, arguments: type[Arguments], run: Any, schema: dict[str, Any]) -> Tool:
    return Tool(
        name=name,
        title=title,
        description=run.__doc__ or "",
        effect=Effect.READ,
        arguments=arguments,
        run=run,
        output_schema=schema,
        read_only=True,
        idempotent=True,
        listed=False,
    )


PLUGIN = (
    _unlisted("describe_sessions", "Sessions in brief", NoArguments, describe_sessions, output(sessions="array")),
    _unlisted("list_commands", "Commands of a session", OfSession, list_commands, output("name", commands="array")),
    _unlisted("list_calls", "Calls on a session", CallsOfSession, list_calls, output("session_id", calls="array")),
    _unlisted("get_recording", "Recording of a session", OfSession, get_recording, output("name", note="string?")),
)
