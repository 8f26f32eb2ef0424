"""Waiting for a running command, and ending it step by step.

The end of a command is only ever its end mark or the exit of its shell. Between, the kernel is asked at intervals
whether
the foreground program is blocked reading the terminal: there is no event for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ai_session.commands import RunningCommand
from ai_session.session import Session

Reason = Literal["finished", "input", "output", "pattern", "timeout"]

FIRST_LOOK_SECONDS = 0.1
LOOK_SECONDS = 0.15
"""Two looks this far apart must agree, with no output between, before a command counts as waiting for input."""

SHELL_SECONDS = 1.0
"""The same where it is the shell that reads, as at its prompt: the end mark may still be on its way to the log."""


async def for_command(session: Session, running: RunningCommand, seconds: float, *, until_input: bool) -> Reason:
    """Waits until ``running`` ended, asks for input (when ``until_input``) or ``seconds`` passed. Never ends the
    command.
    """
    first = min(FIRST_LOOK_SECONDS, seconds) if until_input else seconds
    if await _ended(running, first):
        return "finished"
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds - first
    seen: tuple[int, object] | None = None
    since = loop.time()
    while (left := deadline - loop.time()) > 0:
        if until_input and (holder := session.holder()):
            look = (session.log.end, holder)
            if look != seen:
                seen, since = look, loop.time()
            sure = LOOK_SECONDS if session.input_wanted() else SHELL_SECONDS
            idle = holder.leads_itself and session.log.losing  # it may have ended: the mark has nowhere to go
            if holder.input_mode and not idle and loop.time() - since >= sure:
                return "input"
        if await _ended(running, min(LOOK_SECONDS, left) if until_input else left):
            return "finished"
    return "timeout"


async def _ended(running: RunningCommand, seconds: float) -> bool:
    if running.finished.done():
        return True
    if seconds <= 0:
        return False
    done, _ = await asyncio.wait((running.finished,), timeout=seconds)
    return bool(done)


async def for_output(session: Session, seconds: float, found: Callable[[], bool]) -> bool:
    """Waits until ``found`` holds, asking again whenever output or a mark arrived; False after ``seconds``."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not found():
        if session.exit is not None or not await session.changed(deadline - loop.time()):
            return found()
    return True


@dataclass(frozen=True, slots=True)
class Interruption:
    """What was sent, in order, and whether the command has ended."""

    steps: tuple[str, ...]
    ended: bool


LADDER: tuple[tuple[str, bytes, int], ...] = (
    ("Ctrl-C", b"\x03", signal.SIGINT),
    ("Ctrl-C", b"\x03", signal.SIGINT),
    ("Ctrl-\\", b"\x1c", signal.SIGQUIT),
    ("SIGTERM", b"", signal.SIGTERM),
    ("SIGKILL", b"", signal.SIGKILL),
)


async def interrupt(session: Session, step_seconds: float) -> Interruption:
    """Climbs the ladder until the running command's end mark is seen, each step bounded by ``step_seconds``.

    SIGTERM and SIGKILL go to the foreground group only, and never to the shell itself.
    """
    running = session.running
    steps: list[str] = []
    if running is None:
        return Interruption((), True)
    running.interrupted = True
    for name, key, number in LADDER:
        holder = session.holder()
        if running.finished.done() or (holder is None and session.exit is not None):
            break
        shell_itself = holder is None or holder.leads_itself
        if not key and shell_itself:
            session.probe_end()
        elif key and (shell_itself or _keys_signal(session)):
            session.send(key)
            steps.append(name)
        elif holder is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(holder.group, number)
                if holder.stopped:
                    os.killpg(holder.group, signal.SIGCONT)
            steps.append(name if not key else signal.Signals(number).name)
        if await _ended_or_probed(session, running, step_seconds):
            break
    return Interruption(tuple(steps), running.finished.done())


async def _ended_or_probed(session: Session, running: RunningCommand, seconds: float) -> bool:
    if await _ended(running, seconds / 4):
        return True
    session.probe_end()
    return await _ended(running, seconds * 3 / 4)


def _keys_signal(session: Session) -> bool:
    """Whether the terminal turns control keys into signals (ISIG)."""
    if session.terminal is None:
        return False
    try:
        fd = os.open(session.terminal.tty, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return bool(termios.tcgetattr(fd)[3] & termios.ISIG)
    except termios.error:
        return False
    finally:
        os.close(fd)
