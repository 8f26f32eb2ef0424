"""What a program needs that drives another one in a terminal as pexpect does: its bytes, signals, whether it echoes.

None of it is listed as a tool.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Annotated, Literal

from pydantic import Field

from ai_session.errors import BackendUnavailable, NothingRunning
from ai_session.models import Effect, ToolResult
from ai_session.sessions.commands import RunningCommand, not_running
from ai_session.sessions.report import find_command, record_facts
from ai_session.sessions.session import Session
from ai_session.system import processes, terminal_device
from ai_session.terminal.raw import Raw, raw
from ai_session.tools.base import Arguments, Context, EffectfulArguments, SessionId, output, unlisted

MOST_BYTES = 1 << 20
BEGIN_SECONDS, LOOK_SECONDS = 1.0, 0.02
"""How long a program that is to be signalled may take to be started, and how often it is looked for."""

NEXT_LOOK_SECONDS = 0.002
"""The same if a shell has just been asked to start one, which takes some milliseconds."""

CommandId = Annotated[str, Field(min_length=1, max_length=200, description="Of execute_command.")]


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
    signal: Annotated[int, Field(ge=1, le=64, description="Its number.")]


class SetEcho(EffectfulArguments):
    session_id: SessionId
    command_id: CommandId
    echo: Annotated[bool, Field(description="Whether the terminal echoes what is typed.")]


async def read_bytes(context: Context, arguments: ReadBytes) -> ToolResult:
    """Bytes that a command printed, colours and carriage returns with them, and how it and its terminal stand."""
    session = context.sessions.get(arguments.session_id)
    seconds, _ = context.bounded(arguments.timeout_seconds, 0, [])
    loop = asyncio.get_running_loop()
    deadline = loop.time() + context.left(seconds)
    while True:
        record = find_command(session, arguments.command_id)
        running, seen = _running(session, arguments.command_id), session.log.end
        found = Raw(b"", record.start_offset + arguments.offset)
        if running is None or running.started:
            steps = raw(session.log, record, arguments.offset, arguments.max_bytes, session.spec.nonce, context.spans)
            found = await session.work(steps)
        if found.data or running is None or loop.time() >= deadline:
            break
        if arguments.wait_for == "program":
            if running.started and _has_become_another(session):
                break
            await running.ends(NEXT_LOOK_SECONDS)
            continue
        if session.log.end == seen and _running(session, arguments.command_id) is running:
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
    """A signal for the program that the command runs in the foreground, and those of its group."""
    session = context.sessions.get(arguments.session_id)
    session.check_typist()
    running = _require_running(session, arguments.command_id)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + BEGIN_SECONDS
    while (leader := _leader(session)) is None and loop.time() < deadline and not await running.ends(LOOK_SECONDS):
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
    """Whether the terminal shows what is typed, until a program changes that."""
    session = context.sessions.get(arguments.session_id)
    session.check_typist()
    _require_running(session, arguments.command_id)
    done = session.terminal is not None and terminal_device.set_echo(session.terminal.tty, on=arguments.echo)
    if not done:
        raise BackendUnavailable("the terminal cannot be reached", suggestion="run: ai-session doctor")
    return ToolResult("the terminal " + ("echoes" if arguments.echo else "does not echo"), {"echo": arguments.echo})


def signal_name(number: int) -> str:
    """``SIGHUP`` for 1."""
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
    """The process group of the command's program; None where the shell itself does the work, or nobody can say."""
    holder = session.holder()
    return None if holder is None or holder.leads_itself else processes.job(session.shell_pid, holder.group)


def _has_become_another(session: Session) -> bool:
    """Whether the terminal is that of a program, and of the shell's copy no more that becomes it; or nobody can say."""
    holder, shell = session.holder(), session.shell_pid
    if holder is None:
        return True
    begun = processes.alongside(shell) if holder.leads_itself else [processes.job(shell, holder.group)]
    return any(processes.image(pid) != processes.image(shell) for pid in begun)


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
