"""What a program needs that drives another one in a terminal as pexpect does: bytes, signals, echo.

These tools are not listed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Annotated, Literal

from pydantic import Field

from ai_session.errors import BackendUnavailable, NothingRunning
from ai_session.models import STARTER, Effect, ToolResult
from ai_session.sessions.commands import RunningCommand, not_running
from ai_session.sessions.report import find_command, record_facts
from ai_session.sessions.session import Session
from ai_session.system import processes, terminal_device
from ai_session.terminal.raw import Raw, raw
from ai_session.tools.base import Arguments, Context, EffectfulArguments, SessionId, output, unlisted

MOST_BYTES = 1 << 20
BEGIN_SECONDS, POLL_SECONDS = 1.0, 0.02
"""How long to wait for a program that is to be signalled to start, and how often to check."""

FAST_POLL_SECONDS = 0.002
"""How often to check if a shell was just asked to start one, which takes some milliseconds."""

CommandId = Annotated[
    str, Field(min_length=1, max_length=200, description="The command_id that execute_command returned.")
]


class ReadBytes(Arguments):
    session_id: SessionId
    command_id: CommandId
    offset: Annotated[int, Field(ge=0, description="Byte of the command's output; next_offset of an earlier result.")]
    max_bytes: Annotated[int, Field(ge=1, le=MOST_BYTES, description="Approximate maximum of bytes.")] = 1 << 18
    timeout_seconds: Annotated[float, Field(ge=0, description="How long to wait for a byte or the end.")] = 0.0
    wait_for: Annotated[
        Literal["output", "program"], Field(description="program: also wait until its program has started.")
    ] = "output"


class SignalCommand(EffectfulArguments):
    session_id: SessionId
    command_id: CommandId
    signal: Annotated[int, Field(ge=1, le=64, description="The signal's number.")]


class SetEcho(EffectfulArguments):
    session_id: SessionId
    command_id: CommandId
    echo: Annotated[bool, Field(description="Whether the terminal echoes what is typed.")]


async def read_bytes(context: Context, arguments: ReadBytes) -> ToolResult:
    """Return the raw bytes that a command printed, and the state of the command and its terminal."""
    session = context.sessions.get(arguments.session_id)
    seconds, _ = context.bounded(arguments.timeout_seconds, 0, [])
    loop = asyncio.get_running_loop()
    deadline = loop.time() + context.left(seconds)
    while True:
        record = find_command(session, arguments.command_id)
        running, end = _running(session, arguments.command_id), session.log.end
        found = Raw(b"", record.start_offset + arguments.offset)
        if running is None or running.started:
            steps = raw(session.log, record, arguments.offset, arguments.max_bytes, session.spec.nonce, context.spans)
            found = await session.work(steps)
        if found.data or running is None or loop.time() >= deadline:
            break
        if arguments.wait_for == "program":
            if running.started and _program_started(session):
                break
            await running.ends(FAST_POLL_SECONDS)
            continue
        if session.log.end == end and _running(session, arguments.command_id) is running:
            await session.changed(deadline - loop.time())
    facts = record_facts(record) | {
        "data": found.data.decode("utf-8", "surrogateescape"),
        "next_offset": found.next - record.start_offset,
        "ended": record.end_offset is not None and found.next >= record.end_offset,
        "rows": session.spec.rows,
        "cols": session.spec.cols,
    }
    if running is not None and session.terminal is not None:
        facts |= {"pid": _leader(session), "echo": terminal_device.echoes(session.terminal.tty)}
    return ToolResult(f"{len(found.data)} bytes", {name: value for name, value in facts.items() if value is not None})


async def signal_command(context: Context, arguments: SignalCommand) -> ToolResult:
    """Send a signal to the program that the command runs in the foreground, and to its process group."""
    session = context.sessions.get(arguments.session_id)
    session.check_typist()
    running = _require_running(session, arguments.command_id)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + BEGIN_SECONDS
    while (leader := _leader(session)) is None and loop.time() < deadline and not await running.ends(POLL_SECONDS):
        pass  # a program that is just being started
    if leader is None:
        raise NothingRunning(
            f"command {arguments.command_id} has no program in the foreground to signal",
            suggestion="interrupt_command ends it",
        )
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, arguments.signal)
    return ToolResult(f"sent {signal_name(arguments.signal)}", {"pid": leader})


async def set_echo(context: Context, arguments: SetEcho) -> ToolResult:
    """Set whether the terminal echoes what is typed, until a program changes it."""
    session = context.sessions.get(arguments.session_id)
    session.check_typist()
    _require_running(session, arguments.command_id)
    # Before that the shell's line editor has the terminal, and sets it back.
    await session.typed_lines.until_begun()
    _require_running(session, arguments.command_id)
    done = session.terminal is not None and terminal_device.set_echo(session.terminal.tty, on=arguments.echo)
    if not done:
        raise BackendUnavailable("the terminal cannot be reached", suggestion="run: ai-session doctor")
    return ToolResult("the terminal " + ("echoes" if arguments.echo else "does not echo"), {"echo": arguments.echo})


def signal_name(number: int) -> str:
    """Return the name of a signal: ``SIGHUP`` for 1."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _running(session: Session, command_id: str) -> RunningCommand | None:
    running = session.running
    return running if running is not None and running.record.command_id == command_id else None


def _require_running(session: Session, command_id: str) -> RunningCommand:
    if (running := _running(session, command_id)) is None:
        raise not_running(session.spec.name, command_id, str(session.state()))
    return running


def _leader(session: Session) -> int | None:
    """Return the process group of the command's program; None if the shell itself does the work or it is unknown."""
    holder = session.holder()
    return None if holder is None or holder.leads_itself else processes.job(session.shell_pid, holder.group)


def _program_started(session: Session) -> bool:
    """Report whether a program runs in the terminal, and not only the shell's copy that will become one; or unknown."""
    holder, shell = session.holder(), session.shell_pid
    if holder is None:
        return True
    begun = processes.alongside(shell) if holder.leads_itself else [processes.job(shell, holder.group)]
    return any(processes.image(pid) != processes.image(shell) and not _becomes_another(pid) for pid in begun)


def _becomes_another(pid: int) -> bool:
    """Report whether the process only prepares what the program needs, and then becomes it."""
    words = processes.command_line(pid).split(b"\0")
    return words[3:4] == [STARTER.encode()] or words[:2] == [b"/usr/bin/env", b"-i"]


READ = output(
    "status",
    "data",
    next_offset="integer",
    ended="boolean",
    rows="integer",
    cols="integer",
    exit_code="integer?",
    duration_seconds="number?",
    pid="integer?",
    echo="boolean?",
)

PLUGIN = (
    unlisted(read_bytes, "Bytes of a command", ReadBytes, READ),
    unlisted(signal_command, "Signal a command", SignalCommand, output(pid="integer"), Effect.DESTRUCTIVE),
    unlisted(set_echo, "Echo of a terminal", SetEcho, output(echo="boolean"), Effect.EXECUTE),
)
