"""A session's live screen, drawn by the emulator: the bytes of the session never reach this terminal unchanged."""

from __future__ import annotations

from rich.text import Text
from textual.widget import Widget

from ai_session.errors import BackendUnavailable
from ai_session.terminal.screen import Screen


class Pane(Widget):
    """The part of a session's screen around its cursor that fits."""

    def __init__(self, id: str) -> None:  # noqa: A002  # the name in all widgets
        super().__init__(id=id)
        self._screen: Screen | None = None
        self._note = ""

    def clear(self, note: str = "") -> None:
        """Show ``note`` until something is drawn."""
        self._screen = None
        self._note = note
        self.refresh()

    def draw(self, data: bytes, size: tuple[int, int] | None = None) -> None:
        """Draw more output, on a cleared terminal of ``size`` (rows and columns) if that is given."""
        try:
            if size is not None:
                self._screen = Screen(*size)
            if self._screen is not None:
                self._screen.feed(data)
        except BackendUnavailable as error:
            self._note = str(error)
        self.refresh()

    def resized(self, rows: int, cols: int) -> None:
        """Change the session's size."""
        if self._screen is not None:
            self._screen.resize(rows, cols)
            self.refresh()

    def render(self) -> Text:
        """Return the lines up to the last one that is not empty or has the cursor."""
        if self._screen is None:
            return Text(self._note, style="dim")
        shown = self._screen.snapshot()
        filled = [number for number, line in enumerate(shown.lines) if line]
        end = max([shown.cursor_row, *filled]) + 1
        lines = Text.from_ansi(self._screen.styled()).split("\n", allow_blank=True)[:end]
        if shown.cursor_visible and shown.cursor_row < len(lines):
            line = lines[shown.cursor_row]
            line.pad_right(max(0, shown.cursor_col + 1 - len(line)))
            line.stylize("reverse", shown.cursor_col, shown.cursor_col + 1)
        visible = lines[-max(1, self.size.height) :]
        for line in visible:
            line.truncate(max(1, self.size.width))
        return Text("\n").join(visible)
