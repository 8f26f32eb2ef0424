"""Waiting for a running command, and interrupting it step by step.

A command has ended only if its end mark was seen or its shell has exited. Until then, the kernel is asked at intervals
whether the foreground program is blocked reading the terminal, because there is no event for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ai_session.sessions.commands import RunningCommand
from ai_session.sessions.session import Session
from ai_session.system.terminal_device import signal_keys

Reason = Literal["finished", "input", "output", "pattern", "timeout"]

FIRST_LOOK_SECONDS = 0.1
LOOK_SECONDS = 0.15
"""Two inspections this far apart must agree, without output between them, for a command to wait for input."""

SHELL_SECONDS = 1.0
"""The same if the shell itself reads, as at its prompt: the end mark may not have arrived in the log yet."""


async def for_command(session: Session, running: RunningCommand, seconds: float, *, until_input: bool) -> Reason:
    """Wait until ``running`` has ended, wants input (if ``until_input``) or ``seconds`` have passed; return which."""
    first = min(FIRST_LOOK_SECONDS, seconds) if until_input else seconds
    if await running.ends(first):
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
            # A shell that reads the terminal may just have ended the command, whose mark may not have arrived yet.
            sure = SHELL_SECONDS if holder.leads_itself and holder.input_mode == "raw" else LOOK_SECONDS
            still = holder.input_mode and loop.time() - since >= sure
            if still and session.input_wanted():
                return "input"
        if await running.ends(min(LOOK_SECONDS, left) if until_input else left):
            return "finished"
    return "timeout"


async def for_output(session: Session, seconds: float, found: Callable[[], bool]) -> bool:
    """Call ``found`` at each output or mark until it is true, the shell ends or time is up. Return its last result."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not found():
        if session.exit is not None or not await session.changed(deadline - loop.time()):
            return found()
    return True


@dataclass(frozen=True, slots=True)
class Interruption:
    """The keys and signals that were sent, in order, and whether the command has ended."""

    steps: tuple[str, ...]
    ended: bool


LADDER = (signal.SIGINT, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGKILL)
USUAL_KEYS = {signal.SIGINT: b"\x03", signal.SIGQUIT: b"\x1c"}


async def interrupt(session: Session, step_seconds: float) -> Interruption:
    """Send stronger and stronger signals until the running command's end mark is seen.

    Each step waits up to ``step_seconds``. SIGTERM and SIGKILL are sent to the foreground group, or to what the command
    has begun where its shell waits without giving it the terminal; the shell gets only SIGINT with them, so that a list
    of commands does not go on. A stopped shell is continued first, because no other process does so and it would not
    read a key. Raises SessionTakenOver.
    """
    running = session.running
    steps: list[str] = []
    if running is None:
        return Interruption((), True)
    session.check_typist()
    running.interrupted = True
    for number in LADDER:
        holder = session.holder()
        if running.finished.done() or (holder is None and session.exit is not None):
            break
        shell_itself = holder is None or holder.leads_itself
        if shell_itself and holder is not None and holder.stopped:
            os.killpg(holder.group, signal.SIGCONT)
            steps.append("SIGCONT")
            if await running.ends(step_seconds / 4):
                break
        key = _key(session, number) or (USUAL_KEYS.get(number, b"") if shell_itself else b"")
        if key:
            session.send(key)
            steps.append(_name(key))
        elif (
            shell_itself
            and (holder is None or holder.input_mode is None)
            and session.watchdog.signal_begun(running, number)
        ):
            steps.append(number.name)
        elif shell_itself:
            session.watchdog.probe_end()
        elif holder is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(session.shell_pid, signal.SIGINT)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(holder.group, number)
                if holder.stopped:
                    os.killpg(holder.group, signal.SIGCONT)
            steps.append(number.name)
        if await _ended_or_probed(session, running, step_seconds):
            break
    return Interruption(tuple(steps), running.finished.done())


def _key(session: Session, number: signal.Signals) -> bytes:
    """Return the key that the terminal now turns into that signal for the foreground; empty if there is none."""
    keys = signal_keys(session.terminal.tty) if session.terminal is not None else None
    if keys is None or number not in USUAL_KEYS:
        return b""
    return keys.interrupt if number == signal.SIGINT else keys.quit


def _name(key: bytes) -> str:
    """Return the name of a key, such as ``Ctrl-C`` for 3."""
    return f"Ctrl-{chr(key[0] ^ 0x40)}" if key[0] < 32 or key[0] == 127 else key.decode("ascii", "replace")


async def _ended_or_probed(session: Session, running: RunningCommand, seconds: float) -> bool:
    if await running.ends(seconds / 4):
        return True
    session.watchdog.probe_end()
    return await running.ends(seconds * 3 / 4)
