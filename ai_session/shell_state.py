"""What the marks say of a shell: up, at its prompt, last exit code, directory. No I/O."""

from __future__ import annotations

from ai_session.marks import Mark, MarkKind


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
