"""Rows as a table for a terminal, no wider than needed; cells that do not fit continue on the next line.

Ids stay in one piece, so that they can be copied, and so do short words. If there is no room for them in columns, each
row becomes a list of its cells.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence

GAP = "   "
LEAST = 6
"""The minimum width of a column, however narrow the terminal is."""
WHOLE = 12
"""Words of up to this many letters are not broken."""

WORD = re.compile(r"\s*[^\s/]*/*")
"""A piece of a cell that is not broken if possible; paths are broken at slashes."""
ID = re.compile(r"[\d_]")
"""Matches in a word that people copy."""

BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
COLOURS = {
    **dict.fromkeys(("ready", "ok", "installed", "succeeded", "sound"), "\x1b[32m"),
    **dict.fromkeys(("running", "waiting_input", "starting", "stopped", "warn"), "\x1b[33m"),
    **dict.fromkeys(("queued", "waiting_approval", "paused"), "\x1b[33m"),
    **dict.fromkeys(("exited", "lost", "fail", "failed", "blocked", "budget_exhausted"), "\x1b[31m"),
    **dict.fromkeys(("cancelled", "changed"), "\x1b[31m"),
    "skipped": "\x1b[2m",
}
"""The states that either program shows."""

UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def ago(at: float, now: float) -> str:
    """Return how long before or after ``now`` that is, in the largest unit of which it is at least one."""
    seconds = abs(now - at)
    if seconds < 1:
        return "now"
    size, unit = next((size, unit) for size, unit in UNITS if seconds >= size)
    words = f"{int(seconds // size)} {unit}"
    return f"in {words}" if at > now else f"{words} ago"


def draw(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, coloured: bool = True) -> Iterator[str]:
    """Yield the lines of a table of ``rows``, whose cells are visible text, for a terminal with ``width`` columns."""
    widths = _widths([headings, *rows], width - 2)
    bold = dict.fromkeys(headings, BOLD) if coloured else {}
    colours = COLOURS if coloured else {}
    yield ""
    if rows and _total(widths) > width - 2:
        for row in rows:
            yield from _as_list(headings, row, width - 2, {**colours, **bold})
            yield ""
        return
    yield from _lines(headings, widths, bold)
    yield " " + "─" * _total(widths)
    for row in rows:
        yield from _lines(row, widths, colours)
    yield ""


def wants_colour() -> bool:
    """Report whether the terminal has colours, and NO_COLOR is not set."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in ("dumb", "unknown")


def terminal_width() -> int:
    """Return the columns of the terminal that is standard output; 80 if unknown."""
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


def _widths(rows: Sequence[Sequence[str]], most: int) -> list[int]:
    """Return the width of each column; the widest shrink until all fit, as far as they can."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(_width, column)) for column in columns]
    least = [max(map(_minimum, column)) for column in columns]
    while _total(widths) > most and any(width > end for width, end in zip(widths, least, strict=True)):
        widest = max(range(len(widths)), key=lambda index: (widths[index] > least[index], widths[index]))
        widths[widest] -= 1
    return widths


def _minimum(cell: str) -> int:
    """Return the minimum width of the cell's column."""
    words = [word.strip() for word in WORD.findall(cell)]
    return max([LEAST, *(_width(word) for word in words if len(word) <= WHOLE or ID.search(word))])


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _as_list(headings: Sequence[str], row: Sequence[str], most: int, colours: dict[str, str]) -> Iterator[str]:
    """Yield one cell per line, after its heading; the terminal wraps an id that is wider than itself."""
    named = max(map(_width, headings))
    for heading, cell in zip(headings, row, strict=True):
        if cell:
            rest = max(most - named - len(GAP), _minimum(cell))
            yield from _lines([heading, cell], [named, rest], colours)


def _lines(cells: Sequence[str], widths: Sequence[int], colours: dict[str, str]) -> Iterator[str]:
    folded = [_fold(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for number in range(max(map(len, folded))):
        line = " "
        for cell, pieces, width in zip(cells, folded, widths, strict=True):
            piece = pieces[number] if number < len(pieces) else ""
            colour = colours.get(cell, "") if piece else ""
            line += f"{colour}{piece}{PLAIN if colour else ''}{' ' * (width - _width(piece))}{GAP}"
        yield line.rstrip()


def _fold(cell: str, width: int) -> list[str]:
    """Break a cell between words, and within a word that is wider than the column."""
    pieces = [""]
    for word in WORD.findall(cell):
        if pieces[-1] and _width(pieces[-1]) + _width(word) > width:
            pieces.append("")
            word = word.lstrip()
        for char in word:
            if _width(pieces[-1]) + _width(char) > width:
                pieces.append("")
            pieces[-1] += char
    return pieces


def _width(text: str) -> int:
    """Return the columns that ``text`` takes: two for wide characters, none for combining marks."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.category(char) in ("Mn", "Me") else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )
