"""What people's programs page through, newest first or in order: commands, lines of output, recordings, audit records.

None of it is listed as a tool. A ``cursor`` names a position that stays valid while rows appear and disappear; an
answer without one has reached the end.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from ai_session.audit.files import number, records, segments
from ai_session.errors import Denied, InvalidArguments
from ai_session.models import CommandRecord, ToolResult
from ai_session.sessions.report import cut, record_facts, transcript
from ai_session.sessions.session import Session
from ai_session.tools.base import Arguments, Context, output, unlisted

COMMAND_CHARS = 2000
LINE_CHARS = 600
"""The limit for a matching line, with what surrounds it in the answer."""

SEARCH_SECONDS = 5.0
"""A search that takes longer returns where to continue."""

AUDIT_BYTES = 8 << 20
"""How much of the audit log is searched for one answer: 20 ms in a thread."""

WINDOW_BYTES = 1 << 18
MOST_NUMBER = float(1 << 53)
"""The largest number in a cursor."""

Reference = Annotated[str, Field(max_length=200, description="Session id or name; without it, all.")]


class Paged(Arguments):
    cursor: Annotated[
        str, Field(max_length=300, description="Cursor of the previous answer; without it, from the beginning.")
    ] = ""
    count: Annotated[int, Field(ge=1, le=500, description="Maximum number of rows to return.")] = 50


class QueryCommands(Paged):
    session_id: Reference = ""


class QueryOutput(Paged):
    pattern: Annotated[str, Field(min_length=1, max_length=1000, description="Regular expression (RE2).")]
    session_id: Reference = ""


class QueryAudit(Paged):
    session_id: Reference = ""
    event: Annotated[str, Field(max_length=64, description="Only events whose name begins with this.")] = ""
    about: Annotated[str, Field(max_length=300, description="Only records that contain this: an id, or any text.")] = ""


async def query_commands(context: Context, arguments: QueryCommands) -> ToolResult:
    """Return commands of one session or of all, newest first."""
    before = _number_and_name(arguments.cursor) if arguments.cursor else (float("inf"), "")
    known = sorted(
        (
            ((record.started_at, record.command_id), session, record)
            for session in _sessions(context, arguments.session_id)
            for record in _commands(session)
            if (record.started_at, record.command_id) < before
        ),
        key=lambda one: one[0],
        reverse=True,
    )
    page = known[: arguments.count]
    rows = [_command(context, session, record) for _, session, record in page]
    (at, name), more = page[-1][0] if page else before, len(known) > len(page)
    return _page("commands", rows, f"{at!r}/{name}" if more else "")


async def query_output(context: Context, arguments: QueryOutput) -> ToolResult:
    """Return matching lines of output, by session from the oldest on, each with a log offset at or before it."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SEARCH_SECONDS
    offset, rest = _number_and_name(arguments.cursor) if arguments.cursor else (0.0, "0/")
    given, _, session_id = rest.partition("/")
    if not (given.isascii() and given.isdigit() and len(given) < 10):
        raise _invalid_cursor()
    position = int(offset)
    skip = int(given)
    left = _sessions(context, arguments.session_id)
    if session_id:
        left = left[next((n for n, one in enumerate(left) if one.spec.session_id == session_id), len(left)) :]
    rows: list[dict[str, Any]] = []
    while left and len(rows) < arguments.count and loop.time() < deadline:
        session = left[0]
        whole = CommandRecord("all", 0, "", "running", session.spec.created_at, 0)
        text = transcript(session, whole, context.spans)
        # If lines of text are not lines of output, a position between two matches has no offset, so they are counted.
        most = skip + arguments.count - len(rows)
        found = await session.work(text.search(arguments.pattern, most, 0, most * LINE_CHARS, position))
        facts = {"session_id": session.spec.session_id, "name": session.spec.name}
        rows += [facts | {"offset": match.offset, "line": match.line} for match in found.matches[skip:]]
        if found.count >= most:
            skip = found.count
        elif found.complete:
            left = left[1:]
            position = 0
            skip = 0
        else:
            position, skip = found.next_offset, 0
    return _page("lines", rows, f"{position}/{skip}/{left[0].spec.session_id}" if left else "")


async def query_recordings(context: Context, arguments: Paged) -> ToolResult:
    """Return what can be replayed: each session's log from its oldest stored byte on, the newest session first."""
    before = _number_and_name(arguments.cursor) if arguments.cursor else (float("inf"), "")
    known = [
        session
        for session in reversed(_sessions(context, ""))
        if (session.spec.created_at, session.spec.session_id) < before
    ]
    page = known[: arguments.count]
    rows = [
        {
            "session_id": session.spec.session_id,
            "name": session.spec.name,
            "created_at": session.spec.created_at,
            "first_offset": session.log.first,
            "end_offset": session.log.end,
            "rows": session.spec.rows,
            "cols": session.spec.cols,
            "ended": session.exit is not None,
        }
        for session in page
    ]
    more = f"{page[-1].spec.created_at!r}/{page[-1].spec.session_id}" if len(known) > len(page) else ""
    return _page("recordings", rows, more)


async def query_audit(context: Context, arguments: QueryAudit) -> ToolResult:
    """Return records of the audit log unchanged, newest first. Only for a person."""
    if context.principal.kind != "person":
        raise Denied("only a person may read the audit log", suggestion="list_calls lists the calls on one session")
    session = context.sessions.get(arguments.session_id).spec.session_id if arguments.session_id else ""
    offset, segment = _number_and_name(arguments.cursor) if arguments.cursor else (0.0, "")
    position = (int(segment), int(offset)) if segment.isdigit() else None
    if arguments.cursor and position is None:
        raise _invalid_cursor()
    folder = context.sessions.audit_directory
    text = json.dumps(arguments.about, ensure_ascii=False)[1:-1].encode(errors="replace")
    rows, position = await asyncio.to_thread(
        _records, folder, position, session, arguments.event, text, arguments.count
    )
    return _page("records", rows, f"{position[1]}/{position[0]}" if position else "")


def _sessions(context: Context, reference: str) -> list[Session]:
    return [context.sessions.get(reference)] if reference else context.sessions.all()


def _commands(session: Session) -> Iterator[CommandRecord]:
    yield from session.history.all()
    if session.running is not None:
        yield session.running.record


def _command(context: Context, session: Session, record: CommandRecord) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "session_id": session.spec.session_id,
        "name": session.spec.name,
        "command_id": record.command_id,
        "command": cut(record.command, 0, COMMAND_CHARS, context.spans),
        "started_at": record.started_at,
        "start_offset": record.start_offset,
        "end_offset": record.end_offset,
        "cwd": record.cwd,
        **record_facts(record),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _records(
    folder: Path, position: tuple[int, int] | None, session: str, event: str, text: bytes, count: int
) -> tuple[list[dict[str, Any]], tuple[int, int] | None]:
    """Return records before ``position`` (a segment and an offset in it), and the next position, None at the end."""
    found: list[dict[str, Any]] = []
    searched = 0
    for path in reversed(segments(folder)):
        segment, end = number(path), path.stat().st_size
        if position is not None and segment >= position[0]:
            end = min(end, position[1]) if segment == position[0] else 0
        while end > 0:
            lines = _lines_before(path, end)
            if not lines:
                break
            searched += end - lines[0][0]
            for offset, line in reversed(lines):
                end = offset
                if text in line:
                    found += (one for one in records((line,)) if _matches(one, session, event))
                if len(found) == count:
                    return found, (segment, end)
            if searched >= AUDIT_BYTES:
                return found, (segment, end)
    return found, None


def _lines_before(path: Path, end: int) -> list[tuple[int, bytes]]:
    """Return some of the whole lines before ``end``, at least one, each with its offset."""
    size = WINDOW_BYTES
    with path.open("rb") as file:
        while True:
            begin = max(0, end - size)
            data = os.pread(file.fileno(), end - begin, begin)
            whole = data.find(b"\n", 0, len(data) - 1) + 1 if begin else 0
            if whole or not begin:
                break
            size *= 2
    lines, at = list[tuple[int, bytes]](), begin + whole
    for line in data[whole:].splitlines(keepends=True):
        lines.append((at, line))
        at += len(line)
    return lines


def _matches(record: dict[str, Any], session: str, event: str) -> bool:
    given: Mapping[str, Any] = record.get("args") or {}
    named = (record.get("session"), given.get("session_id"))
    return (not session or session in named) and str(record.get("event", "")).startswith(event)


def _number_and_name(cursor: str) -> tuple[float, str]:
    begin, _, name = cursor.partition("/")
    try:
        value = float(begin)
    except ValueError:
        raise _invalid_cursor() from None
    if not (name and isfinite(value) and 0 <= value < MOST_NUMBER):
        raise _invalid_cursor()
    return value, name


def _invalid_cursor() -> InvalidArguments:
    return InvalidArguments("cursor is not from an earlier answer", fields={"cursor": "is not from an earlier answer"})


def _page(name: str, rows: list[dict[str, Any]], cursor: str) -> ToolResult:
    facts: dict[str, Any] = {name: rows}
    if cursor:
        facts["cursor"] = cursor
    lines = (", ".join(f"{key} {value}" for key, value in row.items()) for row in rows)
    return ToolResult("\n".join(lines) or f"no {name}", facts)


PLUGIN = (
    unlisted(query_commands, "Commands, page by page", QueryCommands, output(cursor="string?", commands="array")),
    unlisted(query_output, "Lines of output that match", QueryOutput, output(cursor="string?", lines="array")),
    unlisted(query_recordings, "What can be replayed", Paged, output(cursor="string?", recordings="array")),
    unlisted(query_audit, "Records of the audit log", QueryAudit, output(cursor="string?", records="array")),
)
