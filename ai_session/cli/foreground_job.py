"""A boxed command as the job of whoever called the verb: signals reach it, and when it stops so does the verb.

What makes the box would die of a Ctrl-C that the command survives, and the command with it. So it ignores such
signals, and ``env`` gives the command back what its caller had.
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
LOOK_SECONDS = 0.25
FROM_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT)
PASSED_ON = (*FROM_THE_TERMINAL, signal.SIGTERM, signal.SIGHUP)
ENV = "/usr/bin/env"


async def start(
    box: Sequence[str], command: Sequence[str], level: SandboxLevel, env: Mapping[str, str], directory: str
) -> asyncio.subprocess.Process:
    """Starts ``command`` in ``box`` (words that make one) and from now on passes signals on to it."""
    loop = asyncio.get_running_loop()
    had = [number for number in PASSED_ON if signal.getsignal(number) is not signal.SIG_IGN]
    given_back = await _given_back(had) if "=" not in command[0] else ()  # for env that is no program
    for number in had if given_back else ():
        signal.signal(number, signal.SIG_IGN)
    process = await asyncio.create_subprocess_exec(*box, *given_back, *command, env=env, cwd=directory)

    def pass_on(number: signal.Signals) -> None:
        if number not in FROM_THE_TERMINAL or not _in_foreground():
            with suppress(ProcessLookupError):
                os.kill(processes.boxed(process.pid, level) or process.pid, number)

    # This process has to outlive the command, to clean up.
    for number in had:
        loop.add_signal_handler(number, pass_on, number)
    return process


async def _given_back(numbers: Sequence[signal.Signals]) -> tuple[str, ...]:
    """Words that reset these signals for the command behind them; none where the system's ``env`` cannot."""
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
    """The command's exit code. Stops with the command, and continues with it.

    vim's Ctrl-Z stops all processes it sees, which from inside a box excludes us; so it must be polled for.
    """
    ended = asyncio.ensure_future(process.wait())
    while not (await asyncio.wait((ended,), timeout=LOOK_SECONDS))[0]:
        command = processes.boxed(process.pid, level)
        if command is not None and processes.stopped(command) and _has_terminal():
            os.kill(os.getpid(), signal.SIGTSTP)
            with suppress(ProcessLookupError):
                os.kill(command, signal.SIGCONT)
    code = ended.result()
    return code if code >= 0 else 128 - code


@contextmanager
def terminal_kept() -> Generator[None]:
    """A shell inside takes the terminal and cannot give it back: it does not see our process group."""
    group = _foreground_group()
    try:
        yield
    finally:
        if group is not None and _foreground_group() != group == os.getpgrp():
            held = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            with suppress(OSError), open(TERMINAL, "rb", buffering=0) as terminal:
                os.tcsetpgrp(terminal.fileno(), group)
            signal.signal(signal.SIGTTOU, held)


def _in_foreground() -> bool:
    """Whether what is typed to interrupt reaches the command from the terminal as well."""
    return _foreground_group() == os.getpgrp()


def _has_terminal() -> bool:
    return _foreground_group() is not None


def _foreground_group() -> int | None:
    try:
        with open(TERMINAL, "rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno())
    except OSError:
        return None
