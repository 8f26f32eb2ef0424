"""What is known of one session, and how to learn that it changed."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from ai_session.backends.base import Terminal
from ai_session.models import (
    ExitStatus,
    SessionSpec,
)
from ai_session.sessions import commands
from ai_session.sessions.commands import CommandHistory, RunningCommand
from ai_session.sessions.recovery import Evidence
from ai_session.sessions.shell_process import GONE, ShellProcess
from ai_session.sessions.shell_state import ShellState
from ai_session.sessions.spec import last_use, note_use
from ai_session.sessions.typed_input import TypedInput
from ai_session.shells.base import Shell
from ai_session.system import foreground, processes, terminal_device
from ai_session.system.shell_words import is_whole
from ai_session.system.turns import Result, Steps, Turns, resolve, within
from ai_session.terminal.display import Display
from ai_session.terminal.log import OutputLog

REPLY_BYTES = 1 << 16
"""With more input waiting, a program that asks its terminal something gets no answer: it does not read them."""

INTERRUPT = b"\x03"
"""The bytes that Ctrl-C sends."""

USE_SECONDS = 1.0
"""How much older than the last use the stored time of use may be, in seconds."""

STARTUP_SECONDS = 15.0
"""How long a shell may take to read its start files."""

READY_SECONDS = 0.3
"""How long the ready mark is awaited before typing ahead; a prompt that a person replaced sends none."""

RECOVERY_SECONDS = 3.0
"""How long a new command waits until it is known whether the previous one has ended."""

TAKEN_SECONDS = 2.0
"""How long the shell may work on typed lines before it counts as busy."""

ANSWER_SECONDS = 0.02
"""The delay after which a shell that showed its prompt is checked again."""

TYPED_LOOK_SECONDS = 0.02
"""The shortest interval between two checks while the shell takes in typed lines."""


class Typist(Protocol):
    """A person who has taken a session over, and is the only one to type in it."""

    who: str

    def overtaken(self, by: str) -> None:
        """Handle that another person types from now on."""
        ...


class SessionFacts:
    """The terminal of a session, its shell, the command that runs there, and what marks and the kernel say of them.

    All facts belong to the event loop. They may lag behind what the terminal has printed, because output is read in
    turns; they always change in the order in which it was printed.
    """

    def __init__(
        self,
        spec: SessionSpec,
        directory: Path,
        shell: Shell,
        log: OutputLog,
        terminal: Terminal | None,
        turns: Turns,
    ) -> None:
        self.spec = spec
        self.directory = directory
        self.files = directory / "shell"
        """Where the shell reads its integration and its commands."""
        self.turns = turns
        self.shell = shell
        self.log = log
        self.history = CommandHistory(directory)
        self.terminal = terminal
        self.process = ShellProcess(terminal, spec.level, self.files) if terminal else None
        self.display = Display(log, spec.rows, spec.cols, turns, spec.session_id)
        self.at = ShellState(spec.working_directory, line_editor=shell.line_editor)
        self.typed = TypedInput()
        self.running: RunningCommand | None = None
        self.latest: RunningCommand | None = None
        """The command that began last, running or ended."""
        self.typist: Typist | None = None
        """The person who has taken over and is the only one to type."""
        self.claimed = False
        """Whether a command is about to begin."""
        self.exit: ExitStatus | None = None if terminal else ExitStatus(lost=True)
        self.given_up = ""
        """Why the session ended its shell; empty if it did not."""
        self.closed = False
        """Whether somebody has closed it."""
        self.ended_by = ""
        """The id of the command that ended the shell, if it is known."""
        self.blocker = ""
        """The program that waits for input while the start files are read."""
        self.quiet_from = -1
        """The offset in the log after the last prompt; -1 if something was typed since."""
        self.withheld = b""
        """The terminal's reply to a query that arrived after a command was typed and before it began."""
        self.named_directory = ""
        """The kernel's name of the shell's directory at the last mark that reported a directory."""
        self.used_at = last_use(directory) or spec.created_at
        """When a command began or ended, a person typed or stopped watching, or an agent looked, last."""
        self._use_stored = self.used_at
        self.listeners = set[Callable[[], None]]()
        """Called at each change."""
        self._waiters: set[asyncio.Future[bool]] = set()

    def take_up(self, terminal: Terminal) -> None:
        """Replace an ended shell by a new one on ``terminal``. Log and history continue."""
        self.terminal = terminal
        self.process = ShellProcess(terminal, self.spec.level, self.files)
        self.display = Display(self.log, self.spec.rows, self.spec.cols, self.turns, self.spec.session_id)
        self.at.reset()
        self.typed = TypedInput()
        self.exit = None
        self.given_up = ""
        self.ended_by = ""

    def touch(self) -> None:
        """Note that the session is in use now, and store that from time to time."""
        before = self.used_at
        self.used_at = time.time()
        if max(self.used_at - before, self.used_at - self._use_stored) >= USE_SECONDS:
            self._use_stored = self.used_at
            note_use(self.directory, self.used_at)

    @property
    def cwd(self) -> str:
        """The directory that the shell is in, under the shell's name for it, or the kernel's if the shell has left it
        since. If the kernel does not say, or the shell has ended, the last one that the shell reported."""
        here = self.kernel_directory()
        return self.at.cwd if here in ("", self.named_directory) else here

    def kernel_directory(self) -> str:
        """Return the kernel's name of the shell's directory; empty if it is not known."""
        if self.process is None or self.exit is not None or not self.at.up:
            return ""
        return self.process.directory()

    def answer_query(self, reply: bytes) -> None:
        """Type the terminal's reply to a query of what runs in it."""
        if self.running is not None and not self.running.started:
            # The prompt asked, but the command that follows would read the reply, or print it.
            self.withheld = reply
            return
        if self.terminal is not None and self.terminal.unsent < REPLY_BYTES:
            self.terminal.write(reply)

    def wake(self) -> None:
        """Report a change to everything that waits for one."""
        for listener in tuple(self.listeners):
            listener()
        waiters = self._waiters
        self._waiters = set()
        for waiter in waiters:
            resolve(waiter, True)

    async def changed(self, timeout: float | None = None) -> bool:
        """Wait for the next output, mark or exit. Return False if ``timeout`` seconds passed without one."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            return await within(waiter, timeout)
        finally:
            self._waiters.discard(waiter)

    @property
    def ending(self) -> ExitStatus | None:
        """How the shell has ended, or is about to end by its own last mark."""
        if self.exit is None and self.given_up:
            return ExitStatus(signal=signal.SIGHUP, reason=self.given_up)
        if self.exit is None and self.at.exit_code is not None:
            return ExitStatus(code=self.at.exit_code)
        return self.exit

    def check_free(self) -> None:
        """Raise SessionExited if the shell has ended, SessionBusy if a command runs or is about to begin."""
        if self.ending is not None or self.terminal is None:
            raise commands.ended(self.spec.name, self.ending)
        if self.running is not None or self.claimed:
            raise commands.busy(self.spec.name, self.running)

    def fed_elsewhere(self) -> bool:
        """Report whether the shell reads its commands from elsewhere than the terminal, as after `exec <`."""
        if self.terminal is None or not self.shell.reads_input:
            return False
        return processes.fed_elsewhere(self.shell_pid, self.terminal.tty)

    def draws_prompt(self) -> bool:
        """Report whether the shell is known to work since its last command, with no prompt drawn."""
        if self.at.ready or self.at.human_line or not self.at.up or self.process is None:
            return False
        return self.process.is_busy() and not self.fed_elsewhere()

    def asks_before_prompt(self) -> bool:
        """Report whether start files or a hook of the prompt ask for input: the shell itself, or a program."""
        process, busy = self.process, self.running is not None or self.at.human_line
        if self.at.ready or busy or process is None or not self.shell.line_editor or self.fed_elsewhere():
            return False
        if process.asks(self.shell, self.at.flags):
            return True
        holder = self.holder()
        if holder is None or holder.input_mode is None:
            return False
        return not holder.leads_itself or process.input_mode() is None

    def is_at_work(self) -> bool:
        """Report whether the shell does not wait for its terminal, or has not read everything typed there."""
        return self.process is None or self.process.is_at_work(self.holder())

    def check_alive(self) -> None:
        """Raise SessionExited if the shell has ended."""
        if self.ending is not None:
            self.check_free()

    def replaced_by(self) -> str:
        """Return the note of a command that replaced the shell by another one."""
        return f"the shell was replaced by {os.path.basename(self.spec.shell)}, in which the session continues"

    def present_shell(self) -> tuple[Shell | None, bool]:
        """Return the kind of shell that runs now, if any, and whether it is another than was started."""
        return self.process.present(self.shell) if self.process is not None else (None, True)

    def evidence(self, *, by_person: bool = False) -> Evidence:
        """Return what the kernel says of the shell now; ``by_person``: it may run a line that a person typed."""
        if self.process is None or self.exit is not None:
            return GONE
        running = self.running
        # A line of our own that a key of the terminal's cut short, in a quote, seems to be a person's.
        ours = running is not None and not running.typed and not running.started and self.at.incomplete
        typed = running is not None and running.typed
        of_person = typed or (self.at.human_line and not ours) or (by_person and running is None)
        seen = self.process.evidence(
            self.shell,
            self.log.end,
            may_read=of_person == by_person or self.at.human_line,
            by_person=by_person,
            # What would read a line for a command has not begun.
            unedited=running is not None and not running.typed and not running.started,
        )
        at_prompt = seen.at_prompt and self._complete(by_person or of_person)
        # At the prompt, the line of a person has ended, or was one of ours: only its end was not reported.
        return replace(seen, at_prompt=at_prompt, reads=seen.reads and (of_person == by_person or at_prompt))

    def _complete(self, by_person: bool) -> bool:
        """Report whether the typed lines are known to be complete; some shells read the rest of a command in the same
        place as its first line."""
        if self.shell.line_editor and self.at.human_line and self.at.incomplete:
            return False
        if not by_person or self.shell.continues_elsewhere:
            return True
        lines = self.typed.lines()
        return lines is not None and is_whole(lines)

    def prompt_proven(self) -> None:
        """Note that the shell is proven to be at its prompt, whatever it reported."""
        self.at.prompt_proven()
        lines = self.typed.lines()
        held = self.shell.line_editor and not self.typed.ran and lines is not None and not is_whole(lines)
        self.typed.prompt_proven(self.at.prompts, held=held)
        self.wake()

    @property
    def shell_pid(self) -> int:
        """The process id of the shell. Only defined while there is a terminal."""
        assert self.process is not None
        return self.process.pid

    def holder(self) -> foreground.Foreground | None:
        """Return the foreground process group of the terminal, as the kernel knows it now."""
        if self.terminal is None or self.process is None or self.exit is not None:
            return None
        if self.log.losing:
            self.terminal.write(b"")
        return self.process.holder()

    def settle_typed(self) -> None:
        """Note that the shell is at its prompt; a line editor holds the lines that it did not run."""
        self.typed.settle(self.at.prompts, held=self.shell.line_editor and not self.typed.ran)

    def interrupt_key(self) -> bytes:
        """Return the key that interrupts in this terminal; Ctrl-C if it has none now."""
        keys = terminal_device.signal_keys(self.terminal.tty) if self.terminal is not None else None
        return keys.interrupt if keys and keys.interrupt else INTERRUPT

    def check_typist(self, by: Typist | None = None) -> None:
        """Raise SessionTakenOver for everyone but the person who has taken the session over."""
        if self.typist is not None and self.typist is not by:
            raise commands.taken_over(self.spec.name, self.typist.who)

    async def work(self, steps: Steps[Result]) -> Result:
        """Carry out work on the session's output, which may be much, in its turns. Returns its result."""
        return await self.turns.run(self.spec.session_id, steps)
