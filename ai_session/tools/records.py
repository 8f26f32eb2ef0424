"""Tools that are not listed, behind resources and prompts: sessions in brief, their commands, calls and recordings."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ai_session.audit.files import records, segments
from ai_session.models import CommandRecord, ToolResult
from ai_session.sessions.report import cut, record_facts, recording_source
from ai_session.sessions.session import Session
from ai_session.system.turns import Steps
from ai_session.terminal.masking import Spans
from ai_session.terminal.recording import exported
from ai_session.tools.base import Arguments, Context, SessionId, output, unlisted

COMMAND_CHARS = 200
RECORDED_BYTES = 1 << 20
"""How much of the log, its newest part, is in a recording that is read as a resource: 100 ms of work."""

AUDIT_BYTES = 8 << 20
"""How much of the newest audit log is searched, some 15,000 records: 20 ms in a thread."""

MAX_CALLS = 200
_NUMBER = re.compile(rb'"seq":(\d+),')


class NoArguments(Arguments):
    pass


class OfSession(Arguments):
    session_id: SessionId


class CallsOfSession(OfSession):
    count: Annotated[int, Field(ge=1, le=MAX_CALLS)] = 50


async def describe_sessions(context: Context, arguments: NoArguments) -> ToolResult:
    """List every session, oldest first, with what a list of resources shows."""
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
    """List the commands on record, newest first, the running one before all."""
    session = context.sessions.get(arguments.session_id)
    known = [*session.history.all(), *([session.running.record] if session.running else [])]
    rows = [_command(record, context.spans) for record in reversed(known)]
    text = "\n".join(f"{row['command_id']} {row['status']}: {row['command']}" for row in rows)
    facts = {"session_id": session.spec.session_id, "name": session.spec.name, "commands": rows}
    return ToolResult(text or "no command yet", facts)


async def list_calls(context: Context, arguments: CallsOfSession) -> ToolResult:
    """List the calls on a session in the audit log, with caller and outcome, newest last."""
    session = context.sessions.get(arguments.session_id)
    folder = context.sessions.audit_directory
    rows = await asyncio.to_thread(calls_of, folder, session.spec.session_id, arguments.count)
    text = "\n".join(", ".join(f"{name} {value}" for name, value in row.items()) for row in rows)
    return ToolResult(text or "no call is on record", {"session_id": session.spec.session_id, "calls": rows})


def calls_of(folder: Path, session_id: str, count: int) -> list[dict[str, Any]]:
    """Return the newest calls on a session in the log of ``folder``, newest last, without records that were changed."""
    lines = _newest(folder, AUDIT_BYTES)
    of_session = session_id.encode()
    newest = records(line for line in reversed(lines) if of_session in line)
    ended = (one for one in newest if one.get("event") == "tool.end" and one.get("session") == session_id)
    ends = list(islice(ended, count))[::-1]
    wanted = {record.get("start") for record in ends}
    begun = (line for line in lines if (found := _NUMBER.search(line)) and int(found[1]) in wanted)
    starts = {record["seq"]: record for record in records(begun)}
    return [_call(starts.get(end.get("start"), {}), end) for end in ends]


def _newest(folder: Path, size: int) -> list[bytes]:
    """Return the whole lines in the last ``size`` bytes of the log."""
    found: list[bytes] = []
    for path in reversed(segments(folder)):
        with path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - size)
            file.seek(start)
            data = file.read()
        lines = data.splitlines(keepends=True)
        found[:0] = [line for line in lines[1 if start else 0 :] if line.endswith(b"\n")]
        size -= len(data)
        if size <= 0:
            break
    return found


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
    """Return an asciicast v3 file as text, of the newest part of a session's output."""
    session = context.sessions.get(arguments.session_id)
    source = await session.work(recording_source(session))
    whole = source.first
    source = replace(source, first=max(source.first, source.end - RECORDED_BYTES))
    spans: Spans = context.spans or _no_secrets
    lines = await session.work(exported(source, spans))
    facts: dict[str, Any] = {"session_id": session.spec.session_id, "name": session.spec.name}
    facts |= {"from_offset": source.first, "end_offset": source.end}
    if source.first > whole:
        facts["note"] = f"bytes {whole} to {source.first} are left out: ai-session record export {session.spec.name}"
        lines.insert(1, f"# {facts['note']}\n")
    return ToolResult("".join(lines), facts)


def _no_secrets(
    data: bytes, growing: bool = False, before: int = sys.maxsize, /
) -> Steps[Sequence[tuple[int, int, bytes]]]:
    yield from ()
    return ()


PLUGIN = (
    unlisted(describe_sessions, "Sessions in brief", NoArguments, output(sessions="array")),
    unlisted(list_commands, "Commands of a session", OfSession, output("name", commands="array")),
    unlisted(list_calls, "Calls on a session", CallsOfSession, output("session_id", calls="array")),
    unlisted(get_recording, "Recording of a session", OfSession, output("name", note="string?")),
)
