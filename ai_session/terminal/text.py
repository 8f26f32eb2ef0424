"""Raw terminal bytes to the text a person would have seen. No I/O, linear in its input, never raises.

Colours, titles, modes and other control strings are removed; progress bars collapse into their last state; what
full-screen programs draw on the alternate screen is left out. Lines are as long as they were written and nothing
scrolls away. There are three tiers, each used only if the one before does not suffice: plain text; lines that overwrite
themselves (CR, backspace, erase); output that moves the cursor to other lines. Without cursor movement between lines,
every line of the input gives exactly one line of the result. Blanks at the end of an edited line are removed, except
those before the cursor on the last line: a prompt ends in one.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ai_session.system.turns import Steps, finished

_UNSEEN = bytes([*range(8), *range(11, 13), *range(14, 27), *range(28, 32), 127])
"""Invisible bytes: DEL and all of C0 except BS, TAB, LF, CR and ESC."""

_STRING = re.compile(rb"\x1b[\]PX^_]")
_COLOUR = re.compile(rb"\x1b\[[0-9;:]*m")
ALTERNATE = rb"\x1b\[\?(?:(?!(?:1049|1047|47)[;hl])[0-9]++;)*(?:1049|1047|47)(?:;[0-9]++)*"
"""What switches the alternate screen on (``h``) or off (``l``), without that letter. No list of numbers, however long,
is scanned twice."""

_ALTERNATE = re.compile(ALTERNATE + rb"h.*?(?:" + ALTERNATE + rb"l|\Z)", re.DOTALL)
_INVISIBLE = re.compile(
    rb"\x1b(?:\[[0-9;:]*m|"
    rb"\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC, ended as it should be; without an end it reaches to the end of the line
    rb"|\][^\x07\x1b\n]*"
    rb"|[PX^_][^\x1b]*\x1b\\|[PX^_][^\x1b\n]*"  # DCS, SOS, PM, APC
    rb"|\[[<-?][0-?]*[ -/]*[@-~]|\[[0-?]*[ -/]+[@-~]"  # private and intermediate CSI
    rb"|\[[0-?]*[NOQRU-WY\[-_cg-qtv-~]"  # CSI that neither moves nor erases
    rb"|\[[0-?]*[ -/]*(?![ -~])"  # CSI cut off
    rb"|[ -/]+[0-~]|[0-69-CF-LNOQ-WYZ\\`abd-~]"
    rb"|\Z)"
)
_C1 = re.compile(rb"\xc2[\x80-\x9f]")
_CR_RUN = re.compile(rb"\r+\n")
_OTHER_LINES = re.compile(r"\x1b(?:\[[0-?]*[ABEFHJLMSTdefrsu]|[78DEMc])")
_MOVEMENT = re.compile(r"(\x1b\[[0-?]*[ -/]*[@-~]|\x1b.?|[\r\n\x08])", re.DOTALL)
_WIDE = re.compile(
    "([\u1100-\u115f\u231a\u231b\u2329\u232a\u23e9-\u23ec\u23f0\u23f3\u25fd\u25fe\u2614\u2615\u2648-\u2653\u267f\u2693"
    "\u26a1\u26aa\u26ab\u26bd\u26be\u26c4\u26c5\u26ce\u26d4\u26ea\u26f2\u26f3\u26f5\u26fa\u26fd\u2705\u270a\u270b\u2728\u274c"
    "\u274e\u2753-\u2755\u2757\u2795-\u2797\u27b0\u27bf\u2b1b\u2b1c\u2b50\u2b55\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97c"
    "\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6\U0001f300-\U0001f64f\U0001f680-\U0001f6ff"
    "\U0001f900-\U0001f9ff\U00020000-\U0003fffd])"
)
_ERASE = re.compile(r"\x1b\[[02]?K")
_SPECIAL = re.compile(r"[\x1b\r\x08]")
_STRUCK_OVER = re.compile(r"[ -~]\x08(?=[ -~])")
_OVERWRITTEN = re.compile(r"^[^\n]*(?:(?:\r|\x1b\[1?G)\x1b\[[02]?K|\x1b\[2K(?:\r|\x1b\[1?G))", re.MULTILINE)
"""All of a line up to the last point where it was erased and begun again."""


_MOVEMENTS = 500
"""Played in one step, which takes half a millisecond."""

_LINES = 20_000
"""Joined, or split at carriage returns, in one step."""


def clean(data: bytes) -> str:
    """Return text without control characters but TAB and LF. Invalid UTF-8 becomes U+FFFD; surrogates never occur."""
    return finished(cleaning(data))


def cleaning(data: bytes) -> Steps[str]:
    """Return the text that ``clean`` returns, in steps, of which the longest applies one expression to all of
    ``data``."""
    escapes = b"\x1b" in data
    if escapes:
        data = yield from _without_invisible(data)
        escapes = b"\x1b" in data
    returns = data.count(b"\r")
    if returns:
        data = data.replace(b"\r\n", b"\n")
        if b"\r\n" in data:
            data = _CR_RUN.sub(b"\n", data)
        returns = data.count(b"\r")
        yield
    data = data.translate(None, _UNSEEN)
    if b"\xc2" in data:
        data = _C1.sub(b"", data)
    text = data.decode("utf-8", "replace")
    backspaces = "\x08" in text
    if backspaces and not escapes:
        yield
        text = _STRUCK_OVER.sub("", text)
        backspaces = "\x08" in text
    if not escapes and not returns and not backspaces:
        return text
    yield
    if escapes and _OTHER_LINES.search(text):
        return (yield from _edit(text))
    if escapes and _ERASE.search(text):
        text = _OVERWRITTEN.sub("", text)
        yield
    return (yield from _lines(text))


def _without_invisible(data: bytes) -> Steps[bytes]:
    if _STRING.search(data) is None:
        data = _COLOUR.sub(b"", data)
        yield
        if b"\x1b" not in data:
            return data
    if b"\x1b[?" in data:
        data = _ALTERNATE.sub(b"", data)
        yield
    data = _INVISIBLE.sub(b"", data)
    yield
    return data


def _lines(text: str) -> Steps[str]:
    """Process each line separately; most often only few need it."""
    pieces: list[str] = []
    done = edited_lines = 0
    while (special := _SPECIAL.search(text, done)) is not None:
        begin = text.rfind("\n", done, special.start()) + 1 or done
        end = text.find("\n", special.start())
        end = end if end >= 0 else len(text)
        line = text[begin:end]
        edited = "\x1b" in line or "\x08" in line or not line.isascii()
        last = end == len(text)
        pieces += (text[done:begin], (yield from (_edit(line, last) if edited else _overwritten(line, last))))
        done = end
        edited_lines += 1
        if edited_lines % _MOVEMENTS == 0:
            yield
    pieces.append(text[done:])
    return "".join(pieces)


def _overwritten(line: str, last: bool) -> Steps[str]:
    shown = ""
    parts = line.split("\r")
    for count, part in enumerate(reversed(parts), 1):
        if len(part) > len(shown):
            shown += part[len(shown) :]
        if count % _LINES == 0:
            yield
    return _up_to_cursor(shown, len(parts[-1]) if last else 0)


def _up_to_cursor(line: str, cursor: int) -> str:
    """Return ``line`` without the blanks at its end that are not before the cursor."""
    return line[: max(len(line.rstrip(" ")), cursor)]


_FILLER = "\0"
"""The second cell of a wide character."""

_LONG_LINE = 1024
"""Longer lines are stored as lists of cells, or each small change would copy them."""

_ROWS = 500
"""Taller than any terminal: no movement reaches further up, which bounds the work of one movement."""

_FRAME_ROWS = 100
"""What was drawn since the screen was cleared is removed by the next clearing, unless it is taller than this."""

_FAR, _EDGE = 200, 80
"""A movement of ``_FAR`` means "to the edge", wherever that is; the right edge is assumed to be at ``_EDGE``."""


def _edit(text: str, last: bool = True) -> Steps[str]:
    """Play ``text`` on a page as wide and as tall as it needs to be."""
    page = _Page(4 * len(text) + 4096)
    parsed: dict[str, tuple[Callable[[_Page, int], None], int, int]] = {}
    done = 0
    for count, found in enumerate(_MOVEMENT.finditer(text), 1):
        start, following = found.span()
        if start > done:
            page.write(text[done:start])
        done = following
        movement = found[0]
        if movement == "\n":
            page.feed(0)
        else:
            if movement not in parsed:
                parsed[movement] = _parse_movement(movement)
            action, times, page.second = parsed[movement]
            action(page, times)
        if count % _MOVEMENTS == 0:
            yield
    if done < len(text):
        page.write(text[done:])
    return (yield from page.text(last))


def _parse_movement(movement: str) -> tuple[Callable[[_Page, int], None], int, int]:
    """Return what a movement does, with its first two numbers."""
    if movement[:2] != "\x1b[":
        return _SINGLES.get(movement, _Page.stay), 0, 0
    first, _, rest = movement[2:-1].partition(";")
    return _CONTROLS.get(movement[-1], _Page.stay), _number(first), _number(rest.partition(";")[0])


def _number(parameter: str) -> int:
    return min(int(parameter[:6]), 99999) if parameter.isdecimal() else 0


class _Page:
    """Lines, a cursor that may be beyond them, and a budget of blanks for movements that skip cells.

    A count of 0 means that the sequence gave none.
    """

    __slots__ = ("blanks", "bottom", "framed", "hidden", "last", "lines", "saved", "second", "top", "x", "y")

    def __init__(self, blanks: int) -> None:
        self.lines: list[str | list[str]] = [""]
        self.x = self.y = self.top = self.bottom = 0
        self.framed = self.hidden = False
        self.saved = (0, 0)
        self.blanks = blanks
        self.last = ""
        self.second = 0

    def text(self, last: bool) -> Steps[str]:
        """Return the page's text. If ``last``, the cursor's line is the last one of all and not ended."""
        parts: list[str] = []
        for first in range(0, len(self.lines), _LINES):
            if first:
                yield
            lines = [line if isinstance(line, str) else "".join(line) for line in self.lines[first : first + _LINES]]
            parts.append("\n".join([line.rstrip(" ") if line[-1:] == " " else line for line in lines]))
        text = "\n".join(parts)
        if last and self.y == len(self.lines) - 1:
            line = self.lines[self.y]
            kept = _up_to_cursor(line if isinstance(line, str) else "".join(line), self.x)
            text += kept[len(kept.rstrip(" ")) :]
        return text.replace(_FILLER, "") if _FILLER in text else text

    def take(self, blanks: int) -> int:
        """Spend up to ``blanks`` of the budget and return how many it had."""
        blanks = max(0, min(blanks, self.blanks))
        self.blanks -= blanks
        return blanks

    def line(self) -> str | list[str]:
        """Return the cursor's line; create it if necessary."""
        missing = self.y - len(self.lines) + 1
        if missing > 0:
            self.lines += [""] * max(1, self.take(missing))
            self.y = len(self.lines) - 1
        line = self.lines[self.y]
        if isinstance(line, str) and len(line) > _LONG_LINE:
            self.lines[self.y] = line = list(line)
        return line

    def write(self, text: str) -> None:
        if self.hidden or not text:
            return
        if not text.isascii():
            text = _WIDE.sub("\\1" + _FILLER, text)
        self.last = text[-1]
        line = self.line()
        start = self.x
        if start > len(line):
            line += " " * self.take(start - len(line))
            start = len(line)
        end = self.x = start + len(text)
        if isinstance(line, str) and (start == len(line) or _FILLER not in line):
            self.lines[self.y] = line[:start] + text + line[end:]
            return
        self.lines[self.y] = cells = list(line) if isinstance(line, str) else line
        if start < len(cells) and cells[start] == _FILLER:
            cells[start - 1] = " "
        if end < len(cells) and cells[end] == _FILLER:
            cells[end] = " "
        cells[start:end] = text

    def stay(self, _: int) -> None:
        pass

    def return_carriage(self, _: int) -> None:
        self.x = 0

    def feed(self, _: int) -> None:
        if not self.hidden:
            if self.y >= len(self.lines):
                self.line()
            self.y += 1
            if self.y == len(self.lines):
                self.lines.append("")
        self.x = 0

    def up(self, count: int) -> None:
        floor = self.top if self.y >= self.top else 0
        self.y = max(self.y - (count or 1), floor, len(self.lines) - _ROWS)

    def down(self, count: int) -> None:
        last = len(self.lines) - 1
        self.y = max(self.y, last) if count >= _FAR else min(self.y + (count or 1), last + _ROWS)

    def previous_lines(self, count: int) -> None:
        self.up(count)
        self.x = 0

    def next_lines(self, count: int) -> None:
        self.down(count)
        self.x = 0

    def left(self, count: int) -> None:
        self.x = max(0, self.x - (count or 1))

    def right(self, count: int) -> None:
        self.x = max(self.x, len(self.line()), _EDGE) if count >= _FAR else self.x + (count or 1)

    def column(self, count: int) -> None:
        self.x = 0
        if count > 1:
            self.right(count - 1)

    def row(self, count: int) -> None:
        """Move to a row. Rows below a scrolling region hold a status line, which is not part of the text."""
        self.hidden = 0 < self.bottom < count
        if self.hidden:
            return
        if not self.framed or len(self.lines) - self.top > _ROWS:
            self.begin_frame()
        self.y = max(self.top, len(self.lines) - 1) if count >= _FAR else self.top + max(0, count - 1)

    def move_to(self, count: int) -> None:
        self.row(count)
        self.column(self.second)

    def set_region(self, _: int) -> None:
        self.bottom = self.second
        if self.framed:
            self.y = self.top
            self.x = 0

    def save(self, _: int) -> None:
        self.saved = (self.y, self.x)

    def restore(self, _: int) -> None:
        self.hidden = False
        self.y = max(self.saved[0], len(self.lines) - _ROWS)
        self.x = self.saved[1]

    def begin_frame(self) -> None:
        """Begin a new screen: what is drawn from here on; what came before stays above it."""
        self.framed = True
        self.top = len(self.lines) - (1 if self.lines and not self.lines[-1] else 0)

    def clear(self) -> None:
        row = max(0, self.y - self.top) if self.framed else 0
        if self.framed and len(self.lines) - self.top <= _FRAME_ROWS:
            del self.lines[self.top :]
        else:
            self.begin_frame()
        self.y = self.top + row

    def reset(self, _: int) -> None:
        self.clear()
        self.y = self.top
        self.x = 0

    def erase_screen(self, count: int) -> None:
        if count == 2 or (count == 0 and self.framed and (self.y, self.x) == (self.top, 0)):
            self.clear()
        elif count < 2:
            self.erase_line(count)
            if count == 0:
                del self.lines[self.y + 1 :]

    def erase_line(self, count: int) -> None:
        line = self.line()
        if count == 2:
            self.lines[self.y] = ""
        elif count == 1:
            x = self.x
            self.x = 0
            self.write(" " * self.take(min(x + 1, len(line))))
            self.x = x
        elif self.x < len(line):
            end = self.x - (line[self.x] == _FILLER)
            if isinstance(line, str):
                self.lines[self.y] = line[:end]
            else:
                del line[end:]

    def erase_characters(self, count: int) -> None:
        x = self.x
        self.write(" " * self.take(min(count or 1, len(self.line()) - x)))
        self.x = x

    def delete_characters(self, count: int) -> None:
        line = self.line()
        if isinstance(line, str):
            self.lines[self.y] = line[: self.x] + line[self.x + (count or 1) :]

    def insert_characters(self, count: int) -> None:
        line = self.line()
        if isinstance(line, str) and self.x < len(line):
            self.lines[self.y] = line[: self.x] + " " * self.take(count or 1) + line[self.x :]

    def insert_lines(self, count: int) -> None:
        self.line()
        self.x = 0
        self.lines[self.y : self.y] = [""] * self.take(min(count or 1, _ROWS))

    def delete_lines(self, count: int) -> None:
        self.line()
        self.x = 0
        del self.lines[self.y : self.y + (count or 1)]

    def repeat(self, count: int) -> None:
        self.write(self.last * self.take(count or 1))


_SINGLES: dict[str, Callable[[_Page, int], None]] = {
    "\r": _Page.return_carriage,
    "\n": _Page.feed,
    "\b": _Page.left,
    "\x1b7": _Page.save,
    "\x1b8": _Page.restore,
    "\x1bD": _Page.down,
    "\x1bE": _Page.feed,
    "\x1bM": _Page.up,
    "\x1bc": _Page.reset,
}
_CONTROLS: dict[str, Callable[[_Page, int], None]] = {
    "@": _Page.insert_characters,
    "A": _Page.up,
    "B": _Page.down,
    "C": _Page.right,
    "D": _Page.left,
    "E": _Page.next_lines,
    "F": _Page.previous_lines,
    "G": _Page.column,
    "H": _Page.move_to,
    "J": _Page.erase_screen,
    "K": _Page.erase_line,
    "L": _Page.insert_lines,
    "M": _Page.delete_lines,
    "P": _Page.delete_characters,
    "X": _Page.erase_characters,
    "b": _Page.repeat,
    "d": _Page.row,
    "f": _Page.move_to,
    "r": _Page.set_region,
    "s": _Page.save,
    "u": _Page.restore,
}
