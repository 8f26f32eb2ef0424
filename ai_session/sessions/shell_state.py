"""The state of a shell as its marks report it: up, at its prompt, last exit code, directory. No I/O."""

from __future__ import annotations

from ai_session.models import ExitStatus, SandboxLevel
from ai_session.terminal.marks import Mark, MarkKind

_SIGNALS_AS_CODES = (SandboxLevel.BWRAP, SandboxLevel.BWRAP_NOPROC)
"""Boxes that report the end by a signal as a shell does: 128 plus the signal's number."""

PROMPTS = (MarkKind.COMMAND_FINISHED, MarkKind.PROMPT_START, MarkKind.PROMPT_READY)
"""Marks that are printed right before the shell reads its next line, or while it reads."""


class ShellState:
    """The state after all marks so far, which ``apply`` takes in order.

    ``ready``: the prompt is drawn and accepts a line (for a shell without a line editor: is about to be drawn).
    ``as_typed``: it has traps that notice how a command is run. ``human_line``: a line that a person typed runs, or is
    ``incomplete``. ``prompts`` counts the prompts after typed lines, ``lines`` all those of a line editor, including
    those for the rest of a line; ``prompt_end`` is the offset after the mark of the last prompt, 0 if there is none.
    """

    def __init__(self, cwd: str, *, line_editor: bool) -> None:
        self.line_editor = line_editor
        self.cwd = cwd
        self.version = ""
        self.prompts = self.lines = 0
        self._after_command = False
        self.reset()

    def reset(self) -> None:
        """Begin again for a new shell process. Directory and version remain until it reports its own."""
        self.up = False
        self.ready = False
        self.human_line = self.incomplete = False
        self.last_exit = 0
        self.flags = ""
        self.as_typed = False
        self.exit_code: int | None = None
        self.prompt_end = 0

    def exit_status(self, status: ExitStatus, level: SandboxLevel) -> ExitStatus:
        """Return how the shell ended, from its marks and the ``status`` of the process that has its terminal.

        In a box of ``level`` that process may be the program that made the box.
        """
        if self.exit_code is not None:
            return ExitStatus(code=self.exit_code) if status.code is None and status.signal is None else status
        if level in _SIGNALS_AS_CODES and status.code is not None and status.code > 128:
            return ExitStatus(signal=status.code - 128)
        return status

    def prompt_proven(self) -> None:
        """Record that it reads the next line at its prompt, although no mark reported that."""
        self.human_line = self.incomplete = False
        self.ready = self.up

    def apply(self, mark: Mark) -> None:
        """Update the state by the next mark."""
        kind = mark.kind
        # A shell that reports anything has read its start files.
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
            # A line that a person typed may itself read with the line editor, and an incomplete one has the line
            # editor, too.
            self.human_line = self.human_line and (mark.flags != "p" or self.incomplete)
            self.ready = self.ready or not self.human_line
        elif kind is MarkKind.SHELL_STARTED:
            self.reset()
            self.up = True
            self.version = mark.version
            # No line precedes the first prompt.
            self._after_command = not self.line_editor
        elif kind is MarkKind.SHELL_EXITED:
            self.exit_code = mark.exit_code
            self.ready = False
        elif kind in (MarkKind.COMMAND_FINISHED, MarkKind.PROMPT_START):
            self.last_exit = mark.exit_code or 0
            self.flags = mark.flags
            # Not every shell can report its directory if a text uses PWD for another purpose.
            self.cwd = mark.cwd if mark.cwd.startswith("/") else self.cwd
            # The line that ran was that of the command.
            self.human_line = False
            if kind is MarkKind.COMMAND_FINISHED:
                self._after_command = not self.line_editor
            if kind is MarkKind.PROMPT_START:
                self.prompts += not self._after_command
                self._after_command = False
                self.ready = self.ready or not self.line_editor
