"""The output of one command as clean text: head and tail, pages, last lines, search.

Offsets count raw bytes from the command's first. Work is limited whatever the log's size: only windows of it are read.
It is done in steps, since a window may take a tenth of a second; meanwhile the log may grow and release bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ai_session.errors import OutputExpired
from ai_session.system.turns import Steps
from ai_session.terminal.log import OutputLog, require_kept
from ai_session.terminal.masking import Hiding, Spans
from ai_session.terminal.search import Expression, Listing, Match, Window, compile_expression
from ai_session.terminal.text import ALTERNATE, cleaning

WHOLE_BYTES = 256 * 1024
"""Longer output is cut without trying whether it would collapse into less."""

WINDOW_BYTES = 128 * 1024
"""The most raw bytes cleaned for one piece of text: below 1 ms if plain, 15 ms if every few bytes move the cursor."""

MORE_PIECES = 6
"""The pieces after the first: 200,000 characters of three bytes each need five windows."""

SEARCH_BYTES = 8 << 20
"""The most raw bytes of plain text in one search: 50 ms. With escape sequences it is less."""

_ESCAPE_BYTES = 40
"""Cleaning an escape sequence takes as long as this many bytes of plain text."""
_LOOK_BACK_BYTES = 65536
_HELD_BACK_BYTES = 8192
_AHEAD_BYTES, _UNFINISHED_BYTES = 64, 16384
_MARKER_CHARS = 120
_NEARLY_CHARS = 256
_HEAD_SHARE = 0.4

_SEQUENCE = re.compile(
    rb"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)|\][^\x07\x1b\n]*|[PX^_][^\x1b]*\x1b\\|[PX^_][^\x1b\n]*"
    rb"|\[[0-?]*[ -/]*[@-~]?|[ -/]*[0-Z\\`-~]?)"
)
_UNFINISHED = re.compile(
    rb"(?:\x1b(?:\][^\x07\x1b\n]*|[PX^_][^\x1b\n]*|\[[0-?]*[ -/]*|[ -/]*)"
    rb"|[\xc2-\xdf]|[\xe0-\xef][\x80-\xbf]?|[\xf0-\xf4][\x80-\xbf]{0,2})\Z"
)
_ALTERNATE = re.compile(ALTERNATE + rb"([hl])")
_ENTER_ALTERNATE = b"\x1b[?1049h"


@dataclass(frozen=True, slots=True)
class Rendering:
    """``text`` is all of it, or head, a line that says what is missing, and tail.

    ``next_offset`` is where the missing part begins, or the current end if nothing is missing.
    """

    text: str
    omitted_bytes: int
    next_offset: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class Page:
    """``text`` of the bytes from ``offset`` to ``next_offset``; ``end_offset`` is the current end."""

    text: str
    offset: int
    next_offset: int
    end_offset: int
    at_end: bool


@dataclass(frozen=True, slots=True)
class Found:
    """``text`` lists matches as ``offset:line`` and lines around them as ``offset-line``.

    Unless ``complete``, a search from ``next_offset`` may find more.
    """

    matches: tuple[Match, ...]
    text: str
    next_offset: int
    complete: bool

    @property
    def count(self) -> int:
        """The number of matching lines."""
        return len(self.matches)


class Transcript:
    """Bytes ``start`` to ``end`` of ``log``, or to its growing end if ``end`` is None. Our marks are not part of it.

    ``spans`` finds secrets: wherever text is cut, labels replace them. Whole text is left to the caller to mask.
    """

    def __init__(
        self, log: OutputLog, start: int, end: int | None = None, nonce: str = "", spans: Spans | None = None
    ) -> None:
        self._log = log
        self._hiding = Hiding(spans) if spans else None
        self._start = start
        self._end = end
        self._mark = b"\x1b]7777;%b;" % nonce.encode()

    @property
    def end_offset(self) -> int:
        """The number of bytes now; while the command runs, without an incomplete character or sequence at the end."""
        if self._end is not None:
            return self._end - self._start
        end = self._log.end - self._start
        last = self._raw(max(end - _HELD_BACK_BYTES, self.first_offset), end)
        unfinished = _UNFINISHED.match(last, max(0, last.rfind(b"\x1b"))) or _UNFINISHED.search(last, len(last) - 3)
        return end - len(unfinished[0]) if unfinished else end

    @property
    def first_offset(self) -> int:
        """The oldest byte still stored; the end if none is."""
        first = max(0, self._log.first - self._start)
        return first if self._end is None else min(first, self._end - self._start)

    def render(self, max_chars: int) -> Steps[Rendering]:
        """Return at most ``max_chars`` characters: everything if it fits, else about 40 % head and 60 % tail."""
        while True:
            first, end = self.first_offset, self.end_offset
            try:
                return (yield from self._render(first, end, max_chars))
            except OutputExpired:
                if first == self.first_offset:
                    raise

    def _render(self, first: int, end: int, max_chars: int) -> Steps[Rendering]:
        if end <= WHOLE_BYTES and not first:
            # A finished command is not cut.
            raw = (yield from self._without_secrets(0, end)) if self._end is None else self._raw(0, end)
            text = yield from self._clean(raw)
            if len(text) <= max_chars:
                return Rendering(text, 0, end, truncated=False)
        return (yield from self._head_and_tail(first, end, max_chars))

    def page(self, offset: int, max_chars: int) -> Steps[Page]:
        """Return what follows ``offset``. Reading on at each ``next_offset`` shows everything once.

        Raises OutputExpired if ``offset`` is before ``first_offset``.
        """
        end = self.end_offset
        offset = min(max(0, offset), end)
        require_kept(offset, self.first_offset)
        text, following = yield from self._forward(offset, end, max_chars)
        return Page(text, offset, following, end, following >= end)

    def tail(self, lines: int, max_chars: int) -> Steps[Page]:
        """Return the last ``lines`` lines, fewer if they do not fit into ``max_chars``."""
        while True:
            first, end = self.first_offset, self.end_offset
            try:
                return (yield from self._tail(first, end, lines, max_chars))
            except OutputExpired:
                if first == self.first_offset:
                    raise

    def _tail(self, first: int, end: int, lines: int, max_chars: int) -> Steps[Page]:
        text, offset = yield from self._backward(first, end, max_chars)
        before = text[: max(0, len(text) - 1)].rsplit("\n", lines)
        if len(before) <= lines:
            return Page(text, offset, end, end, at_end=True)
        position = len(before[0])
        raw = yield from self._without_secrets(offset, end)
        if raw.count(b"\n") == text.count("\n"):
            offset += _line_start(raw, text.count("\n", 0, position + 1))
        return Page(text[position + 1 :], offset, end, end, at_end=True)

    def search(
        self, pattern: str, max_matches: int, context_lines: int, max_chars: int, from_offset: int = 0
    ) -> Steps[Found]:
        """Return lines that match an RE2 expression, with ``context_lines`` before and after, in at most ``max_chars``.

        Stops after SEARCH_BYTES. Raises InvalidArguments for an invalid expression.
        """
        expression = compile_expression(pattern)
        listing = Listing(max_matches, context_lines, max_chars)
        end = self.end_offset
        position = min(max(from_offset, self.first_offset), end)
        alternate: bool | None = None
        work = 0
        while position < end and work < SEARCH_BYTES and listing.stopped_at is None:
            if position < self.first_offset:
                position, alternate = self.first_offset, None  # released meanwhile
                continue
            try:
                window, following = yield from self._window(position, end, alternate)
                yield from listing.add(expression, window)
            except OutputExpired:
                continue
            position, alternate = window.end, following
            work += len(window.raw) + _ESCAPE_BYTES * window.raw.count(b"\x1b")
        reached = position if listing.stopped_at is None else listing.stopped_at
        return Found(tuple(listing.matches), "\n".join(listing.entries), reached, reached >= end)

    def pattern_cursor(self, pattern: str, from_offset: int = 0) -> PatternCursor:
        """Return a cursor that finds a matching line as output arrives. Raises InvalidArguments."""
        return PatternCursor(self, self._window, compile_expression(pattern), from_offset)

    def _head_and_tail(self, first: int, end: int, max_chars: int) -> Steps[Rendering]:
        room = max_chars - _MARKER_CHARS
        if room < _MARKER_CHARS:
            text, begin = yield from self._backward(first, end, max_chars)
            return Rendering(text, begin, first if begin else end, truncated=begin > 0)
        head, head_end = "", first
        tail, begin = yield from self._backward(first, end, room if first else room - int(room * _HEAD_SHARE))
        if not first:
            head, head_end = yield from self._forward(0, begin, room - len(tail))
        omitted = begin if first else begin - head_end
        if not omitted:
            return Rendering(head + tail, 0, end, truncated=False)
        gone = f", the first {first} no longer kept" if first else ""
        border = "\n" if head and not head.endswith("\n") else ""
        marker = f"… [{omitted} bytes omitted{gone}; read_output offset={head_end}] …\n"
        return Rendering(head + border + marker + tail, omitted, head_end, truncated=True)

    def _forward(self, offset: int, stop: int, max_chars: int) -> Steps[tuple[str, int]]:
        """Return text from ``offset`` on that nearly fills ``max_chars`` unless it collapses, and where it ends."""
        text, following = yield from self._ahead(offset, stop, max_chars)
        for _ in range(MORE_PIECES):
            missing = max_chars - len(text)
            if following >= stop or missing < _NEARLY_CHARS or len(text) < missing // 4:
                break
            more, following = yield from self._ahead(following, stop, missing)
            text += more
        return text, following

    def _backward(self, floor: int, stop: int, max_chars: int) -> Steps[tuple[str, int]]:
        """Return text that ends at ``stop`` and nearly fills ``max_chars`` unless it collapses, and where it begins."""
        text, begin = yield from self._behind(floor, stop, max_chars)
        for _ in range(MORE_PIECES):
            missing = max_chars - len(text)
            if begin <= floor or missing < _NEARLY_CHARS or len(text) < missing // 4:
                break
            more, begin = yield from self._behind(floor, begin, missing)
            text = more + text
        return text, begin

    def _ahead(self, offset: int, stop: int, max_chars: int) -> Steps[tuple[str, int]]:
        """Return text from ``offset`` on that fits, at least one character or sequence, and where it ends."""
        begin, alternate = self._safe_start(offset, stop)
        prefix = _ENTER_ALTERNATE if alternate else b""
        limit = min(WINDOW_BYTES, stop - begin)
        fit = _Fit(limit, max_chars)
        data = b""
        while fit.size:
            data = yield from self._without_secrets(begin, min(begin + fit.size + _AHEAD_BYTES, stop))
            cut = fit.size if begin + fit.size >= stop else _cut(data, fit.size)
            fit.record(cut, (yield from self._clean(prefix + data[:cut])))
            yield
        if not fit.taken and begin < stop:
            step = _unit(data, 1)[1] if len(data) > 1 else 1
            text = yield from self._clean(prefix + data[:step])
            return text[:max_chars], begin + step
        return fit.text, begin + fit.taken

    def _behind(self, floor: int, stop: int, max_chars: int) -> Steps[tuple[str, int]]:
        """Return text that fits and ends at ``stop``, and where it begins."""
        fit = _Fit(min(WINDOW_BYTES, stop - floor), max_chars)
        begin, text = stop, ""
        while fit.size:
            begin, alternate = self._safe_start(stop - fit.size, stop) if stop - fit.size > floor else (floor, False)
            data = yield from self._without_secrets(begin, stop)
            if begin > floor:
                line = data.find(b"\n", 0, len(data) // 2) + 1
                data, begin = data[line:], begin + line
            if alternate is None:
                toggle = _ALTERNATE.search(data)
                alternate = toggle is not None and toggle[1] == b"l"
            text = yield from self._clean(_ENTER_ALTERNATE + data if alternate else data)
            fit.record(len(data), text)
            yield
        if not fit.taken:
            return text[max(0, len(text) - max_chars) :], begin
        return fit.text, stop - fit.taken

    def _window(self, position: int, end: int, alternate: bool | None) -> Steps[tuple[Window, bool]]:
        """Return whole lines from ``position`` on, and whether the alternate screen is on after them.

        ``alternate`` says the same of ``position``, if known. The last line may be unfinished; a line longer than a
        window is cut.
        """
        begin = position
        if alternate is None:
            begin, alternate = self._safe_start(position, end)
        data = self._raw(begin, min(begin + WINDOW_BYTES + _AHEAD_BYTES, end))
        if begin + WINDOW_BYTES < end:
            data = data[: _cut(data, WINDOW_BYTES) or WINDOW_BYTES]
        prefix = _ENTER_ALTERNATE if alternate else b""

        def hidden() -> Steps[tuple[bytes, str]]:
            without_secrets = yield from self._without_secrets(begin, begin + len(data))
            return without_secrets, (yield from self._clean(prefix + without_secrets))

        toggles = _ALTERNATE.findall(data) if b"\x1b[?" in data else []
        text = yield from self._clean(prefix + data)
        window = Window(begin, data, text, hidden if self._hiding else None)
        return window, toggles[-1] == b"h" if toggles else bool(alternate)

    def _safe_start(self, offset: int, stop: int) -> tuple[int, bool | None]:
        """Return where reading may begin (not inside a character or sequence), and whether on the alternate screen, or
        None if that was switched too far back."""
        if offset <= 0 or offset >= stop:
            return max(0, min(offset, stop)), False
        require_kept(offset, self.first_offset)
        back = max(self.first_offset, offset - _LOOK_BACK_BYTES)
        data = self._raw(back, min(stop, offset + _HELD_BACK_BYTES))
        at = offset - back
        if at < len(data) and data[at - 1 : at] != b"\n":
            at = _unit(data, at)[1]
        toggles = _ALTERNATE.findall(data, 0, at) if b"\x1b[?" in data else []
        alternate = toggles[-1] == b"h" if toggles else None if back else False
        return back + at, alternate

    def _clean(self, raw: bytes) -> Steps[str]:
        if self._mark in raw:
            raw = re.sub(re.escape(self._mark) + rb"[^\x07\x1b]*\x07", b"", raw)
            yield
        text = yield from cleaning(raw)
        return self._hiding.labelled(text) if self._hiding else text

    def _without_secrets(self, start: int, end: int) -> Steps[bytes]:
        """Return the bytes of a range, with secrets replaced by labels."""
        if not self._hiding:
            return self._raw(start, end)
        known = (self.first_offset, self.end_offset, self._end is None)
        return (yield from self._hiding.piece(self._raw, start, end, *known))

    def _raw(self, start: int, end: int) -> bytes:
        """Return the bytes of a range. Raises OutputExpired if its beginning has been released."""
        require_kept(start, self.first_offset)
        return self._log.read(self._start + start, self._start + end) if start < end else b""


_WindowReader = Callable[[int, int, bool | None], Steps[tuple[Window, bool]]]


class PatternCursor:
    """A search that remembers its position, so that repeating it costs only what is new."""

    def __init__(self, transcript: Transcript, window: _WindowReader, expression: Expression, offset: int) -> None:
        self._transcript = transcript
        self._window = window
        self._expression = expression
        self._offset: int = offset
        self._found = False

    def find(self) -> Steps[bool]:
        """Report whether a matching line has arrived; an unfinished line (a prompt) counts."""
        end = self._transcript.end_offset
        while not self._found and self._offset < end:
            try:
                window, _ = yield from self._window(max(self._offset, self._transcript.first_offset), end, None)
                self._found = (yield from window.hit(self._expression)) and (
                    yield from (yield from window.hidden()).hit(self._expression)
                )
            except OutputExpired:  # released meanwhile: stored bytes begin later, perhaps behind this end
                self._offset = self._transcript.first_offset
                continue
            self._offset = window.end
            if window.end >= end:
                unfinished = window.begin + window.raw.rfind(b"\n") + 1
                self._offset = max(unfinished, end - _UNFINISHED_BYTES)
                break
            yield
        return self._found


class _Fit:
    """Finds in few tries how many raw bytes (``size`` next, 0 when done) give as much text as fits."""

    def __init__(self, limit: int, max_chars: int) -> None:
        self.size = min(limit, max(max_chars, 64))
        self.taken = 0
        self.text = ""
        self._limit = limit
        self._max_chars = max_chars
        self._fits = 0
        self._too_much = 0

    def record(self, taken: int, text: str) -> None:
        """Record that ``taken`` of ``size`` bytes gave ``text``."""
        size, missing = self.size, self._max_chars - len(text)
        if missing < 0:
            self._too_much = size
        else:
            self._fits = size
            if taken > self.taken:
                self.taken = taken
                self.text = text
            if size >= self._limit or missing * 5 <= self._max_chars:
                self.size = 0
                return
            if not self._too_much:
                self.size = min(self._limit, 4 * size, size + 64 + missing * size // max(1, len(text)))
                return
        near = self._too_much - self._fits <= max(64, self._too_much // 8)
        self.size = 0 if near else (self._fits + self._too_much) // 2


def _cut(data: bytes, at: int) -> int:
    """Return where to cut, at most at ``at``: after a line if one ends in the second half, else not inside a unit."""
    return data.rfind(b"\n", at // 2, at) + 1 or _unit(data, at)[0]


def _unit(data: bytes, at: int) -> tuple[int, int]:
    """Return begin and end of the character, CRLF or escape sequence around ``at``; twice ``at`` if there is none."""
    escape = data.rfind(b"\x1b", max(0, at - _LOOK_BACK_BYTES), at)
    if escape >= 0 and (sequence := _SEQUENCE.match(data, escape)) and sequence.end() > at:
        return escape, sequence.end()
    if data[at - 1 : at + 1] == b"\r\n":
        return at - 1, at + 1
    for lead in range(at - 1, max(at - 4, -1), -1):
        if data[lead] >= 0xC2:
            end = lead + 2 + (data[lead] >= 0xE0) + (data[lead] >= 0xF0)
            whole = end > at and all(0x80 <= byte < 0xC0 for byte in data[lead + 1 : end])
            return (lead, min(end, len(data))) if whole else (at, at)
        if data[lead] < 0x80:
            break
    return at, at


def _line_start(raw: bytes, lines: int) -> int:
    """Return where the line after ``lines`` newlines begins."""
    return len(raw) - len(raw.split(b"\n", lines)[lines])
