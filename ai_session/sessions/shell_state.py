"""What the marks say of a shell: up, at its prompt, last exit code, directory. No I/O."""

from __future__ import annotations

from ai_session.models import ExitStatus, SandboxLevel
from ai_session.terminal.marks import Mark, MarkKind

_SIGNALS_AS_CODES = (SandboxLevel.BWRAP, SandboxLevel.BWRAP_NOPROC)
"""Boxes that report a death by signal as a shell does: 128 plus the signal's number."""

PROMPTS = (MarkKind.COMMAND_FINISHED, MarkKind.PROMPT_START, MarkKind.PROMPT_READY)
"""Marks that come right before the shell reads its next line, or while it does."""


class ShellState:
    """The fold of all marks seen so far; ``apply`` them in order.

    ``ready`` means the prompt is drawn and takes a line (for a shell without a line editor: is about to be drawn).
    ``as_typed``: it has traps that notice how a command is run. ``human_line``: a line that a person typed runs, or is
    ``incomplete``. ``prompts`` counts those that followed typed lines, ``lines`` those of a line editor, also for the
    rest of a line; ``prompt_end`` is the offset after the mark of the last prompt, 0 if there is none.
    """

    def __init__(self, cwd: str, *, line_editor: bool) -> None:
        self.line_editor = line_editor
        self.cwd = cwd
        self.version = ""
        self.prompts = self.lines = 0
        self._after_command = False
        self.reset()

    def reset(self) -> None:
        """A new shell process takes over; directory and version stay until it reports its own."""
        self.up = False
        self.ready = False
        self.human_line = self.incomplete = False
        self.last_exit = 0
        self.flags = ""
        self.as_typed = False
        self.exit_code: int | None = None
        self.prompt_end = 0

    def exit_status(self, status: ExitStatus, level: SandboxLevel) -> ExitStatus:
        """How the shell ended, from what its terminal's own process in a box of ``level`` ended with, and the marks."""
        if self.exit_code is not None:
            return ExitStatus(code=self.exit_code) if status.code is None and status.signal is None else status
        if level in _SIGNALS_AS_CODES and status.code is not None and status.code > 128:
            return ExitStatus(signal=status.code - 128)
        return status

    def prompt_proven(self) -> None:
        """Note that it reads the next line at its prompt, though no mark says so."""
        self.human_line = self.incomplete = False
        self.ready = self.up

    def apply(self, mark: Mark) -> None:
        """Take in the next mark."""
        kind = mark.kind
        # Who reports anything has read its start files.
        self.up = self.up or kind not in (MarkKind.SHELL_EXITED, MarkKind.SHELL_STARTED, MarkKind.CAUGHT_UP)
        if kind in PROMPTS or (kind is MarkKind.AT_PROMPT and mark.flags == "p"):
            self.prompt_end = mark.end
        self.lines += kind in (MarkKind.PROMPT_READY, MarkKind.LINE_CONTINUED)
        if kind is MarkKind.COMMAND_EXECUTED:
            self.ready = self.human_line = self._after_command = False
        elif kind in (MarkKind.LINE_EXECUTED, MarkKind.LINE_CONTINUED):
            self.ready = False
            self.human_line = True
            self.incomplete = kind is MarkKind.LINE_CONTINUED
        elif kind is MarkKind.PROMPT_READY:
            self.ready = True
            self.human_line = False
            self.as_typed = mark.flags == "t"
        elif kind is MarkKind.AT_PROMPT:
            # A line of a person's own may read with the line editor, in no file either; one that is not complete has
            # the line editor, too.
            self.human_line = self.human_line and (mark.flags != "p" or self.incomplete)
            self.ready = self.ready or not self.human_line
        elif kind is MarkKind.SHELL_STARTED:
            self.reset()
            self.up = True
            self.version = mark.version
            # The first prompt follows on no line.
            self._after_command = not self.line_editor
        elif kind is MarkKind.SHELL_EXITED:
            self.exit_code = mark.exit_code
            self.ready = False
        elif kind in (MarkKind.COMMAND_FINISHED, MarkKind.PROMPT_START):
            self.last_exit = mark.exit_code or 0
            self.flags = mark.flags
            # Not every shell can name it where a text uses PWD for something else.
            self.cwd = mark.cwd if mark.cwd.startswith("/") else self.cwd
            # The line that ran was that of the command.
            self.human_line = False
            if kind is MarkKind.COMMAND_FINISHED:
                self._after_command = not self.line_editor
            if kind is MarkKind.PROMPT_START:
                self.prompts += not self._after_command
                self._after_command = False
                self.ready = self.ready or not self.line_editor
