"""Rows as a table for a terminal: as wide as it needs to be, and cells that do not fit go on in the line below."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Sequence

GAP = "   "
LEAST = 6
"""Columns are not made narrower, however narrow the terminal is."""

BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
COLOURS = {
    **dict.fromkeys(("ready", "ok", "installed", "succeeded", "sound"), "\x1b[32m"),
    **dict.fromkeys(("running", "waiting_input", "starting", "stopped", "warn"), "\x1b[33m"),
    **dict.fromkeys(("queued", "waiting_approval", "paused"), "\x1b[33m"),
    **dict.fromkeys(("exited", "lost", "fail", "failed", "blocked", "budget_exhausted"), "\x1b[31m"),
    **dict.fromkeys(("cancelled", "changed"), "\x1b[31m"),
    "skipped": "\x1b[2m",
}
"""Words of both programs that say how something is."""

UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def ago(at: float, now: float) -> str:
    """How long before or after ``now`` that is, in the largest unit of which it is at least one."""
    seconds = abs(now - at)
    if seconds < 1:
        return "now"
    size, unit = next((size, unit) for size, unit in UNITS if seconds >= size)
    words = f"{int(seconds // size)} {unit}"
    return f"in {words}" if at > now else f"{words} ago"


def draw(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, coloured: bool = True) -> Iterator[str]:
    """Lines of a table of ``rows``, whose cells are visible text, on a terminal with ``width`` columns."""
    widths = _widths([headings, *rows], width - 2)
    yield ""
    yield from _lines(headings, widths, dict.fromkeys(headings, BOLD) if coloured else {})
    yield " " + "─" * (sum(widths) + len(GAP) * (len(widths) - 1))
    for row in rows:
        yield from _lines(row, widths, COLOURS if coloured else {})
    yield ""


def wants_colour() -> bool:
    """Whether the terminal has colours, and the person has not said NO_COLOR."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in ("dumb", "unknown")


def terminal_width() -> int:
    """Columns of the terminal that is standard output; 80 where it does not say."""
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


def _widths(rows: Sequence[Sequence[str]], most: int) -> list[int]:
    """What each column needs; the widest give way until all fit."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    while sum(widths) + len(GAP) * (len(widths) - 1) > most and max(widths) > LEAST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _lines(cells: Sequence[str], widths: Sequence[int], colours: dict[str, str]) -> Iterator[str]:
    folded = [_folded(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for number in range(max(map(len, folded))):
        line = " "
        for cell, pieces, width in zip(cells, folded, widths, strict=True):
            piece = pieces[number] if number < len(pieces) else ""
            colour = colours.get(cell, "") if piece else ""
            line += f"{colour}{piece}{PLAIN if colour else ''}{' ' * (width - _width(piece))}{GAP}"
        yield line.rstrip()


def _folded(cell: str, width: int) -> list[str]:
    pieces = [""]
    for char in cell:
        if _width(pieces[-1]) + _width(char) > width:
            pieces.append("")
        pieces[-1] += char
    return pieces


def _width(text: str) -> int:
    """Columns that ``text`` takes: two for wide characters, none for marks on others."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.category(char) in ("Mn", "Me") else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )
