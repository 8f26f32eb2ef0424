"""The process in a session's terminal that is its shell, or has taken its place, as the kernel knows it now."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ai_session.backends.base import Terminal
from ai_session.errors import ShellUnavailable
from ai_session.models import InputMode, SandboxLevel
from ai_session.sessions.recovery import Evidence
from ai_session.sessions.spec import shell_named
from ai_session.shells.base import Shell
from ai_session.system import foreground, processes, terminal_device

GONE = Evidence(leads=False, reads=False, stopped=False, executing=None, replaced=False, printed=0)
"""The evidence of a shell that has ended."""

UNSEEN = (-1, 0)
"""The position of a prompt that cannot be known: no process waits there."""

READS_LINES = 512
"""The least bytes that a shell without a line editor asks for at its prompt; its ``read`` asks for one at a time."""

BASH_READS = 4096
"""The bytes that bash's ``read`` asks for; at its prompt bash asks for fewer."""


class ShellProcess:
    """The shell of one terminal. ``files`` is the directory of its integration."""

    def __init__(self, terminal: Terminal, level: SandboxLevel, files: Path) -> None:
        self._terminal = terminal
        self._level = level
        self._files = files
        self._boxed: int | None = None
        self._image = b""
        self._prompt_position: tuple[int, int] | None = None

    @property
    def pid(self) -> int:
        """The shell's process id; that of the program that makes its box until the shell exists."""
        self._boxed = self._boxed or processes.boxed(self._terminal.pid, self._level)
        return self._boxed or self._terminal.pid

    def started(self) -> None:
        """Record that the shell has reported its start: its present program is the one that was started."""
        self._image = processes.image(self.pid)
        self._prompt_position = None

    @property
    def prompt_known(self) -> bool:
        """Whether the position in its program at which it reads at its prompt is known, or cannot be known."""
        return self._prompt_position is not None

    def note_prompt(self, shell: Shell) -> None:
        """Store the position in its program at which it reads now, at its prompt. Does nothing if it does not read."""
        if self.owes() or self.input_mode() is None or not self._reads_as_prompt(shell):
            return
        self._prompt_position = foreground.position(self.pid) or UNSEEN

    def _reads_as_prompt(self, shell: Shell) -> bool:
        """Report whether the process reads as ``shell`` does at its prompt, and not as its ``read`` does."""
        if shell.line_editor:
            return self.edits_lines()
        size = foreground.read_size(self.pid)
        return self.edits_lines() or size is None or size >= READS_LINES

    def reads_elsewhere(self, began_as: Shell) -> bool:
        """Report whether it is known to read its terminal at another position in its program than at its prompt."""
        if self._prompt_position in (None, UNSEEN) or self.input_mode() is None:
            return False
        position = foreground.position(self.pid)
        return position not in (None, self._prompt_position) and not self.present(began_as)[1]

    def directory(self) -> str:
        """Return its current directory; empty if that cannot be read."""
        return processes.directory(self.pid)

    def holder(self) -> foreground.Foreground | None:
        """Return the foreground process group of the terminal."""
        return foreground.find(self.pid, self._terminal.tty)

    def is_at_work(self, holder: foreground.Foreground | None) -> bool:
        """Report whether it is not waiting for its terminal, or has not read all input; False if that is unknown."""
        if holder is None:
            return self._terminal.unsent > 0
        return not holder.leads_itself or self.owes() or self.input_mode() is None

    def owes(self) -> bool:
        """Report whether it has not read all that was typed."""
        return bool(self._terminal.unsent or terminal_device.unread_bytes(self._terminal.tty))

    def input_mode(self) -> InputMode | None:
        """Return how the shell itself waits for its terminal, None if it does not; others in its group may."""
        return foreground.input_mode_of(self.pid, self._terminal.tty)

    def is_busy(self) -> bool:
        """Report whether it is known not to wait for its terminal."""
        return foreground.is_busy(self.pid, self._terminal.tty)

    def rival(self) -> str:
        """Return the name of another program that reads the terminal and may take what is typed; empty if none does."""
        return foreground.rival(self.pid, self._terminal.tty)

    def edits_lines(self) -> bool:
        """Report whether the terminal is in the mode that a shell's own line editor sets."""
        return foreground.line_edited(self._terminal.tty)

    def reads_unedited(self) -> bool:
        """Report whether an interactive shell with a line editor reads lines without it, but not by bash's ``read``."""
        return self.input_mode() == "line" and foreground.read_size(self.pid) != BASH_READS

    def asks(self, began_as: Shell, flags: str) -> bool:
        """Report whether a shell that has a line editor reads without it, as its ``read`` does.

        ``flags`` are the letters of its options, empty if they are not known: without its line editor, it may read so
        at its prompt.
        """
        mode = self.input_mode()
        shell, replaced = self.present(began_as) if mode is not None else (None, False)
        if shell is None or not shell.line_editor:
            return False
        if mode == "raw":
            return not replaced and not self.edits_lines()
        if mode == "password" or shell.name == "fish":
            return True
        if shell.name == "zsh":
            return not self._begun_without_editor() and (replaced or not flags or "Z" in flags)
        # `read -t` waits in another system call.
        return foreground.read_size(self.pid) in (BASH_READS, BASH_READS if replaced else None)

    def _begun_without_editor(self) -> bool:
        """Report whether it is a zsh that was started without its line editor."""
        return b"+Z" in processes.command_line(self.pid).split(b"\0")

    def present(self, began_as: Shell) -> tuple[Shell | None, bool]:
        """Return which shell it is now, None if it is not a shell, and whether it is not the one that was started."""
        pid = self.pid
        arguments = processes.command_line(pid)
        called = os.path.basename(os.fsdecode(arguments.partition(b"\0")[0])).removeprefix("-")
        for name in (called, ""):
            name = name or os.path.basename(processes.program(pid))
            with contextlib.suppress(ShellUnavailable):
                shell = shell_named(name)
                ours = self._image == processes.image(pid) if self._image else self._is_given_files(arguments)
                replaced = shell is not began_as or (not ours and bool(self._image or shell.asks))
                return (shell if not replaced or processes.controls_jobs(pid) else None), replaced
        return None, True

    def _is_given_files(self, arguments: bytes) -> bool:
        """Report whether the process began with our integration; a shell that its start files execute does not."""
        own = os.fsencode(self._files)
        return own in arguments or own in processes.environment(self.pid)

    def evidence(
        self, began_as: Shell, printed: int, *, may_read: bool, by_person: bool, unedited: bool = False
    ) -> Evidence:
        """Return the evidence of whether it runs something: a command of ours, or with ``by_person`` a typed line.

        ``printed`` is the end of its output; with ``may_read`` False, whether it reads its terminal is not checked.
        ``unedited``: nothing but a prompt reads lines without the line editor now.
        """
        pid = self.pid
        stopped, leads = processes.stopped(pid), foreground.leads(pid)
        reads = False
        executing = None
        replaced = False
        at_prompt = False
        edited = True
        if leads and may_read and self.input_mode() is not None:
            shell, replaced = self.present(began_as)
            edited = shell is None or not shell.line_editor or self.edits_lines()
            edits = shell is not None and (
                edited or (self.reads_unedited() and (unedited or (replaced and not self.asks(began_as, ""))))
                if shell.line_editor
                else (not by_person or self._reads_as_prompt(shell))
            )
            reads = not self.owes() and edits
            # Checked last: if it waits there again, it has executed everything that it has read.
            at_prompt = reads and not replaced and foreground.position(pid) == (self._prompt_position or UNSEEN)
            if shell is not None and shell.shows_command and not replaced and not by_person:
                executing = processes.has_open(pid, "/shell/c")
        return Evidence(
            leads=leads,
            reads=reads,
            stopped=stopped,
            executing=executing,
            replaced=replaced,
            printed=printed,
            at_prompt=at_prompt,
            edited=edited,
            switches=processes.switches(pid) if reads else 0,
        )
