"""A boxed command as a job of the verb's caller: signals reach it, and when it stops the verb stops, too.

The process that creates the box would be ended by a Ctrl-C that the command survives, and the command with it. It
therefore ignores such signals, and ``env`` restores the command's own dispositions.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress

from ai_session.models import SandboxLevel
from ai_session.system import processes

TERMINAL = "/dev/tty"
POLL_SECONDS = 0.25
TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGQUIT)
PASSED_ON = (*TERMINAL_SIGNALS, signal.SIGTERM, signal.SIGHUP)
ENV = "/usr/bin/env"


async def start(
    box: Sequence[str], command: Sequence[str], level: SandboxLevel, env: Mapping[str, str], directory: str
) -> asyncio.subprocess.Process:
    """Start ``command`` in ``box`` (a command line that creates one), and forward signals to it from now on."""
    loop = asyncio.get_running_loop()
    handled = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    reset = await _signal_reset(handled) if "=" not in command[0] else ()  # env would take it for a variable
    for number in handled if reset else ():
        signal.signal(number, signal.SIG_IGN)
    process = await asyncio.create_subprocess_exec(*box, *reset, *command, env=env, cwd=directory)

    def forward(number: signal.Signals) -> None:
        if number not in TERMINAL_SIGNALS or not _in_foreground():
            with suppress(ProcessLookupError):
                os.kill(processes.boxed(process.pid, level) or process.pid, number)

    # This process has to outlive the command, to clean up.
    for number in handled:
        loop.add_signal_handler(number, forward, number)
    return process


async def _signal_reset(numbers: Sequence[signal.Signals]) -> tuple[str, ...]:
    """Return a prefix for the command that resets these signals; empty if the system's ``env`` cannot."""
    words = (ENV, "--default-signal=" + ",".join(number.name.removeprefix("SIG") for number in numbers), "--")
    try:
        tried = await asyncio.create_subprocess_exec(
            *words,
            "true",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return ()
    return words if await tried.wait() == 0 and numbers else ()


async def until_ended(process: asyncio.subprocess.Process, level: SandboxLevel) -> int:
    """Wait for the command and return its exit code; stop when it stops, and continue with it.

    vim's Ctrl-Z stops all processes that it sees, which inside a box does not include us; so this has to poll.
    """
    ended = asyncio.ensure_future(process.wait())
    while not (await asyncio.wait((ended,), timeout=POLL_SECONDS))[0]:
        command = processes.boxed(process.pid, level)
        if command is not None and processes.stopped(command) and _has_terminal():
            os.kill(os.getpid(), signal.SIGTSTP)
            with suppress(ProcessLookupError):
                os.kill(command, signal.SIGCONT)
    code = ended.result()
    return code if code >= 0 else 128 - code


@contextmanager
def terminal_restored() -> Generator[None]:
    """Restore the foreground group afterwards: a shell inside the box takes the terminal, but cannot see our group."""
    group = _foreground_group()
    try:
        yield
    finally:
        if group is not None and _foreground_group() != group == os.getpgrp():
            handler = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            with suppress(OSError), open(TERMINAL, "rb", buffering=0) as terminal:
                os.tcsetpgrp(terminal.fileno(), group)
            signal.signal(signal.SIGTTOU, handler)


def _in_foreground() -> bool:
    """Report whether the terminal's signals reach the command directly as well."""
    return _foreground_group() == os.getpgrp()


def _has_terminal() -> bool:
    return _foreground_group() is not None


def _foreground_group() -> int | None:
    try:
        with open(TERMINAL, "rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno())
    except OSError:
        return None
