"""Tools that read: a command's output (paging, search, waiting) and the rendered screen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field

from ai_session.errors import InvalidArguments
from ai_session.models import CommandRecord, Effect, InputMode, ToolResult
from ai_session.sessions import wait
from ai_session.sessions.report import (
    INPUT_HINT,
    command_result,
    find_command,
    note_ending,
    note_lost,
    note_others,
    record_facts,
    result,
    transcript,
)
from ai_session.sessions.session import Session
from ai_session.terminal.masking import on_screen
from ai_session.terminal.transcript import Found, PatternCursor, Transcript
from ai_session.tools.base import Arguments, Context, SessionId, Tool, output

SEARCH_SECONDS = 20.0
"""A search that takes longer, for example under load, returns where to continue."""

CONTEXT_LINES = 2
MAX_MATCHES = 50
PRINTED_BYTES = 65536
"""Searched for secrets of which only the end is on the screen."""


class ReadOutput(Arguments):
    session_id: SessionId
    command_id: Annotated[
        str, Field(description="Default: the running or last command; 'all' = everything the terminal printed.")
    ] = ""
    offset: Annotated[int, Field(ge=0, description="Read on from this byte (next_offset of an earlier result).")] = -1
    tail_lines: Annotated[int, Field(ge=1, le=100_000, description="Only the last lines.")] = 0
    pattern: Annotated[
        str,
        Field(
            max_length=1000,
            description=f"Regular expression (RE2): matching lines and {CONTEXT_LINES} around each, with offsets.",
        ),
    ] = ""
    wait_for: Annotated[
        Literal["", "finish", "pattern", "output", "input"],
        Field(
            description="First wait until: the command finishes, pattern appears, new output arrives, input is wanted."
        ),
    ] = ""
    timeout_seconds: Annotated[float, Field(ge=0, description="Longest wait (default 30, at most 50).")] = -1.0
    max_output_chars: Annotated[int, Field(ge=200, description="Default 7000, at most 200000.")] = 0


class ReadScreen(Arguments):
    session_id: SessionId


async def read_output(context: Context, arguments: ReadOutput) -> ToolResult:
    session = context.sessions.get(arguments.session_id)
    notes: list[str] = []
    seconds, chars = context.bounded(arguments.timeout_seconds, arguments.max_output_chars, notes)
    record = find_command(session, arguments.command_id)
    extra: dict[str, Any] = {}
    if arguments.wait_for:
        seconds = context.left(seconds)
        waited = await _wait(context, session, record, arguments, seconds)
        extra["waited"] = waited
        if waited == "timeout":
            notes.append(f"waited {seconds:.3g} s for {arguments.wait_for} in vain")
        await session.ended()
        record = find_command(session, record.command_id)
    if record.status == "running" and record.command_id != "all" and (mode := _input_mode(session, extra)):
        extra["input_mode"] = mode
        notes.append(INPUT_HINT[mode])
    return await _read(context, session, record, arguments, chars, notes, extra)


async def _read(
    context: Context,
    session: Session,
    record: CommandRecord,
    arguments: ReadOutput,
    chars: int,
    notes: list[str],
    extra: dict[str, Any],
) -> ToolResult:
    text = transcript(session, record, context.spans)
    if arguments.pattern or arguments.tail_lines or arguments.offset >= 0:
        note_lost(session, record, notes)
        if record.note:
            notes.append(record.note)
        note_ending(session, record, notes)
        note_others(session, record, notes)
    facts = record_facts(record)
    about: dict[str, Any] = {"command_id": record.command_id}
    if arguments.pattern:
        found = await _search(session, text, arguments, chars)
        about |= {"matches": found.count, "next_offset": found.next_offset}
        if not found.complete:
            notes.append(f"search stopped early: continue with offset={found.next_offset}")
        return result(facts, found.text, notes=notes, extra=about | extra)
    if arguments.tail_lines:
        tail = await session.work(text.tail(arguments.tail_lines, chars))
        about |= {"offset": tail.offset, "next_offset": tail.next_offset}
        return result(facts, tail.text, notes=notes, extra=about | extra)
    if arguments.offset >= 0:
        page = await session.work(text.page(arguments.offset, chars))
        about |= {"offset": page.offset, "next_offset": page.next_offset, "end_offset": page.end_offset}
        if not page.at_end:
            notes.append(f"more: offset={page.next_offset}")
        return result(facts, page.text, notes=notes, extra=about | extra)
    return await session.work(command_result(session, record, chars, notes, context.spans, **extra))


async def _search(session: Session, text: Transcript, arguments: ReadOutput, chars: int) -> Found:
    """Search for the first matches for as long as a call may take."""
    loop = asyncio.get_running_loop()
    deadline, offset = loop.time() + SEARCH_SECONDS, max(arguments.offset, 0)
    while True:
        found = await session.work(text.search(arguments.pattern, MAX_MATCHES, CONTEXT_LINES, chars, offset))
        offset = found.next_offset
        if found.count or found.complete or loop.time() >= deadline:
            return found


def _input_mode(session: Session, facts: dict[str, Any]) -> InputMode | None:
    """Return the input mode if it is known at once, or from the wait that has just ended."""
    holder = session.holder() if facts.get("waited") == "input" else None
    return holder.input_mode if holder else session.input_wanted()


async def _wait(
    context: Context, session: Session, record: CommandRecord, arguments: ReadOutput, seconds: float
) -> wait.Reason:
    running = session.running
    current = running is not None and running.record.command_id == record.command_id
    if arguments.wait_for in ("finish", "input") and record.command_id == "all":
        raise InvalidArguments(
            f"wait_for={arguments.wait_for!r} needs one command",
            suggestion="leave command_id out, or wait for output or pattern",
        )
    if arguments.wait_for == "pattern":
        if not arguments.pattern:
            raise InvalidArguments("wait_for='pattern' needs pattern", suggestion="pass the pattern to wait for")
        if running is not None and current and not running.started:
            # Until its start mark is read, the line that shows the command would count as its output.
            loop, begun = asyncio.get_running_loop(), running
            deadline = loop.time() + seconds
            if not await wait.for_output(session, seconds, lambda: begun.started or _over(session, begun.record)):
                return "timeout"
            record, seconds = find_command(session, record.command_id), deadline - loop.time()
        cursor = transcript(session, record, context.spans).pattern_cursor(arguments.pattern, max(arguments.offset, 0))
        return await _wait_for_pattern(session, cursor, seconds, lambda: _over(session, record))
    if not current and record.command_id != "all":
        return "finished"
    if arguments.wait_for == "output":

        def end() -> int:
            """Return where the command's output ends now; 0 until it begins."""
            return transcript(session, running.record if running and current else record).end_offset

        base = arguments.offset if arguments.offset >= 0 else end()
        if await wait.for_output(session, seconds, lambda: _over(session, record) or end() > base):
            return "finished" if _over(session, record) else "output"
        return "timeout"
    assert running is not None
    return await wait.for_command(session, running, seconds, until_input=True)


async def _wait_for_pattern(
    session: Session, cursor: PatternCursor, seconds: float, over: Callable[[], bool]
) -> wait.Reason:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        ended, seen = over(), session.log.end
        if await session.work(cursor.find()):
            return "pattern"
        if ended:
            return "finished"
        # Output that arrived during the search is searched first.
        new = over() or session.log.end != seen
        if loop.time() >= deadline or not (new or await session.changed(deadline - loop.time())):
            return "timeout"


def _over(session: Session, record: CommandRecord) -> bool:
    if session.exit is not None:
        return True
    return record.command_id != "all" and (
        session.running is None or session.running.record.command_id != record.command_id
    )


async def read_screen(context: Context, arguments: ReadScreen) -> ToolResult:
    session = context.sessions.get(arguments.session_id)
    snapshot = await session.screen()
    lines = list(snapshot.lines)
    if context.spans:
        printed = session.log.read(max(session.log.first, session.log.end - PRINTED_BYTES), session.log.end)
        lines = await session.work(on_screen(lines, snapshot.cols, context.spans, printed))
    while lines and not lines[-1]:
        lines.pop()
    facts = {
        "state": str(session.state()),
        "rows": snapshot.rows,
        "cols": snapshot.cols,
        "cursor_row": snapshot.cursor_row,
        "cursor_col": snapshot.cursor_col,
        "cursor_visible": snapshot.cursor_visible,
        "alternate_screen": snapshot.alternate_screen,
        "title": snapshot.title,
        "screen": "\n".join(lines),
    }
    head = ", ".join(f"{name} {value}" for name, value in facts.items() if name != "screen" and value != "")
    return ToolResult(text=f"[{head}]\n{facts['screen']}", structured=facts)


PLUGIN = (
    Tool(
        name="read_output",
        title="Read command output",
        description="Read output of a running or finished command: page on by offset, tail, search by pattern; or wait "
        "for a long-running command to finish, print a pattern, print anything, or want input. Output is "
        "kept after the command (64 MB per session).",
        effect=Effect.READ,
        arguments=ReadOutput,
        run=read_output,
        output_schema=output(
            "status",
            "output",
            "command_id",
            exit_code="integer?",
            offset="integer?",
            next_offset="integer?",
            end_offset="integer?",
            matches="integer?",
            waited="string?",
            input_mode="string?",
            note="string?",
        ),
        read_only=True,
        idempotent=True,
        always_load=True,
        reports=True,
    ),
    Tool(
        name="read_screen",
        title="Read terminal screen",
        description="Read the rendered screen of a full-screen program (vim, less, htop, a REPL): visible lines, cursor"
        " (zero-based), title.",
        effect=Effect.READ,
        arguments=ReadScreen,
        run=read_screen,
        output_schema=output(
            "state",
            "title",
            "screen",
            rows="integer",
            cols="integer",
            cursor_row="integer",
            cursor_col="integer",
            cursor_visible="boolean",
            alternate_screen="boolean",
        ),
        read_only=True,
        idempotent=True,
    ),
)
