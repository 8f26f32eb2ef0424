"""Tools that run commands and interrupt them."""

from __future__ import annotations

import secrets
from typing import Annotated

from pydantic import AfterValidator, Field

from ai_session.errors import CallInterrupted
from ai_session.models import CommandRecord, Effect, ToolResult
from ai_session.sessions import wait
from ai_session.sessions.commands import NEVER_BEGUN, RunningCommand, ended, not_running
from ai_session.sessions.report import INPUT_HINT, command_result, cut
from ai_session.sessions.session import Session
from ai_session.tools.base import (
    MAX_WAIT_SECONDS,
    Context,
    EffectfulArguments,
    SessionId,
    Tool,
    checked_text,
    encodable,
    output,
)

DROPPED_CHARS = 200


class ExecuteCommand(EffectfulArguments):
    session_id: SessionId
    command: Annotated[
        str,
        AfterValidator(checked_text),
        Field(min_length=1, max_length=10_000_000, description="Shell text; may have several lines."),
    ]
    timeout_seconds: Annotated[
        float,
        Field(ge=0, description="How long to wait (default 30, at most 50); after that the command keeps running."),
    ] = -1.0
    stdin: Annotated[
        str | None, AfterValidator(lambda text: text and encodable(text)), Field(description="Default: the terminal.")
    ] = None
    separate_stderr: Annotated[bool, Field(description="Return stderr separately.")] = False
    max_output_chars: Annotated[int, Field(ge=200, description="Default 7000, at most 200000.")] = 0


class InterruptCommand(EffectfulArguments):
    session_id: SessionId
    command_id: Annotated[str, Field(description="Only this command.")] = ""


async def execute_command(context: Context, arguments: ExecuteCommand) -> ToolResult:
    session = context.sessions.get(arguments.session_id)
    notes: list[str] = []
    seconds, chars = context.bounded(arguments.timeout_seconds, arguments.max_output_chars, notes)
    found = _by_key(session, arguments.call_key)
    if context.repeated and isinstance(found, RunningCommand) and not found.started:
        # An earlier daemon had recorded it, and perhaps not run it.
        await wait.for_command(session, found, context.left(seconds), until_input=True)
        found = _by_key(session, arguments.call_key)
    if isinstance(found, CommandRecord) and found.note == NEVER_BEGUN:
        found = None
    elif found is None and context.repeated and not _never_begun(session, context.first_seen):
        raise CallInterrupted(
            "a call with this key was started before, but its command is no longer known",
            suggestion="look at the session with get_session_info; use a new call_key to run it again",
        )
    if found is None:
        stdin = None if arguments.stdin is None else arguments.stdin.encode("utf-8", "surrogateescape")
        found = await session.begin(
            arguments.command,
            command_id="cmd_" + secrets.token_urlsafe(16),
            stdin=stdin,
            separate_stderr=arguments.separate_stderr,
            call_key=arguments.call_key,
        )
        if found.dropped:
            notes.append(f"the half-typed line {cut(found.dropped, 0, DROPPED_CHARS, context.spans)!r} was dropped")
    return await _wait_and_report(context, session, found, context.left(seconds), chars, notes)


def _never_begun(session: Session, first_seen: float) -> bool:
    """Report whether a command the session does not know never began: it is recorded before it is typed."""
    return session.spec.created_at < first_seen and session.history.reaches(first_seen)


def _by_key(session: Session, call_key: str) -> RunningCommand | CommandRecord | None:
    """Return the command that this key has already started, perhaps under an earlier daemon."""
    if not call_key:
        return None
    if session.running is not None and session.running.record.call_key == call_key:
        return session.running
    return session.history.by_key(call_key)


async def _wait_and_report(
    context: Context,
    session: Session,
    command: RunningCommand | CommandRecord,
    seconds: float,
    chars: int,
    notes: list[str],
) -> ToolResult:
    if isinstance(command, CommandRecord):
        return await session.work(command_result(session, command, chars, notes, context.spans))
    reason = await wait.for_command(session, command, seconds, until_input=True)
    record = command.record
    if reason == "finished":
        await session.ended()
        if command.never_ran:
            raise ended(session.spec.name, session.ending)
        return await session.work(command_result(session, record, chars, notes, context.spans))
    if reason == "input" and (holder := session.holder()) and holder.input_mode:
        notes.append(INPUT_HINT[holder.input_mode])
        result = command_result(session, record, chars, notes, context.spans, input_mode=holder.input_mode)
        return await session.work(result)
    notes.append(
        f"still running after {seconds:.3g} s: read_output(wait_for='finish') continues to wait, interrupt_command"
        " stops it"
    )
    return await session.work(command_result(session, record, chars, notes, context.spans))


async def interrupt_command(context: Context, arguments: InterruptCommand) -> ToolResult:
    session = context.sessions.get(arguments.session_id)
    running = session.running
    if running is None or arguments.command_id not in ("", running.record.command_id):
        raise not_running(session.spec.name, arguments.command_id, str(session.state()))
    outcome = await wait.interrupt(session, context.limits.interrupt_step_seconds)
    notes = [f"sent {', '.join(outcome.steps)}"] if outcome.steps else []
    if not outcome.ended:
        notes.append("it has not ended: see read_screen, or close_session to end everything in the session")
    result = command_result(session, running.record, context.limits.max_output_chars, notes, context.spans)
    return await session.work(result)


RESULT = output(
    "status",
    "output",
    "command_id",
    "cwd",
    exit_code="integer?",
    duration_seconds="number?",
    omitted_bytes="integer?",
    next_offset="integer?",
    input_mode="string?",
    note="string?",
    notices="array?",
    stderr="string?",
    late_output="string?",
)

PLUGIN = (
    Tool(
        name="execute_command",
        title="Execute command",
        description="Execute a shell command in a terminal session and return its exact output and exit code. State "
        "(cd, export, functions) persists. Returns status 'finished' with exit_code, or 'running' when "
        "timeout_seconds passed or it waits for input; it then keeps running: use read_output, send_input or "
        "interrupt_command. Long output is cut in the middle (read_output gives the rest). One command at a"
        f" time per session. Waits {MAX_WAIT_SECONDS:g} s at most.",
        effect=Effect.EXECUTE,
        arguments=ExecuteCommand,
        run=execute_command,
        output_schema=RESULT,
        destructive=True,
        open_world=True,
        always_load=True,
        resumable=True,
        reports=True,
    ),
    Tool(
        name="interrupt_command",
        title="Interrupt command",
        description="Interrupt (stop, cancel, kill) the running command: Ctrl-C twice, Ctrl-\\, SIGTERM, SIGKILL to the"
        " foreground program, or to what the command started where its shell cannot put it there, each step only if the"
        " one before did not end it. The shell stays.",
        effect=Effect.DESTRUCTIVE,
        arguments=InterruptCommand,
        run=interrupt_command,
        output_schema=RESULT,
        destructive=True,
        ends_only=True,
        reports=True,
    ),
)
