"""What the marks say of a shell: up, at its prompt, last exit code, directory. No I/O."""

from __future__ import annotations

from ai_session.marks import Mark, MarkKind
from ai_session.models import ExitStatus, SandboxLevel

_SIGNALS_AS_CODES = (SandboxLevel.BWRAP, SandboxLevel.BWRAP_NOPROC)
"""Boxes that tell a death by signal as a shell does: 128 and the signal's number."""


class ShellState:
    """The fold of all marks seen so far; ``apply`` them in order.

    ``ready`` means the prompt is drawn and takes a line (for a shell without a line editor: is about to be drawn).
    """

    def __init__(self, cwd: str, *, line_editor: bool) -> None:
        self._line_editor = line_editor
        self.cwd = cwd
        self.version = ""
        self.reset()

    def reset(self) -> None:
        """A new shell process takes over; directory and version stay until it reports its own."""
        self.up = False
        self.ready = False
        self.human_line = False
        self.last_exit = 0
        self.flags = ""
        self.exit_code: int | None = None

    def exit_status(self, status: ExitStatus, level: SandboxLevel) -> ExitStatus:
        """How the shell ended, from what its terminal's own process in a box of ``level`` ended with, and the marks."""
        if self.exit_code is not None:
            return ExitStatus(code=self.exit_code) if status.code is None and status.signal is None else status
        if level in _SIGNALS_AS_CODES and status.code is not None and status.code > 128:
            return ExitStatus(signal=status.code - 128)
        return status

    def apply(self, mark: Mark) -> None:
        """Take in the next mark."""
        kind = mark.kind
        if kind is MarkKind.COMMAND_EXECUTED:
            self.ready = self.human_line = False
        elif kind is MarkKind.LINE_EXECUTED:
            self.ready = False
            self.human_line = True
        elif kind is MarkKind.PROMPT_READY:
            self.ready, self.human_line = True, False
        elif kind is MarkKind.SHELL_STARTED:
            self.reset()
            self.up, self.version = True, mark.version
        elif kind is MarkKind.SHELL_EXITED:
            self.exit_code = mark.exit_code
        else:
            self.last_exit, self.flags = mark.exit_code or 0, mark.flags
            self.cwd = mark.cwd or self.cwd
            if kind is MarkKind.PROMPT_START:
                self.human_line = False
                self.ready = self.ready or not self._line_editor
