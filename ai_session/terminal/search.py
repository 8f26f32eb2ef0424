"""Finds lines that match a regular expression in clean text and lists them with the lines around. No I/O.

Expressions are RE2's: matching takes time linear in the text, whatever the expression.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, Protocol, cast

import re2  # pyright: ignore[reportMissingTypeStubs]

from ai_session.errors import InvalidArguments, OutputExpired
from ai_session.system.turns import Steps

_LINES = "(?m)"
"""The flag with which ``^`` and ``$`` match at line boundaries."""
LINE_CHARS = 500
"""Longer lines are shortened to the part around the match."""

BLOCK_BYTES = 8192
"""The bytes searched in one step, unless one line is longer: 5 ms for the slowest expression."""

_ENTRY_CHARS = len(":") + len("\n") + len("--\n")


class Expression(Protocol):
    """A compiled expression; ``search`` returns the first match from ``start`` to ``end``."""

    def search(self, text: bytes, start: int = 0, end: int = ..., /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Match:
    """A matching line; ``offset`` is where it begins, or somewhat before if the cursor was moved between lines."""

    offset: int
    line: str


class Window:
    """Some whole lines of the log, raw and clean. ``hide`` returns both with secrets hidden, raw no shorter."""

    def __init__(
        self, begin: int, raw: bytes, text: str, hide: Callable[[], Steps[tuple[bytes, str]]] | None = None
    ) -> None:
        self.begin = begin
        self.raw = raw
        self.end = begin + len(raw)
        self._text = text.encode()
        self._hide = hide

    def hidden(self) -> Steps[Window]:
        """Return the window without secrets, which takes longer than a search. Lines may be joined."""
        return Window(self.begin, *(yield from self._hide())) if self._hide else self

    def hit(self, expression: Expression) -> Steps[bool]:
        """Report whether a line matches."""
        return (yield from self.hits(expression, lambda index, at: True))

    @cached_property
    def lines(self) -> list[bytes]:
        lines = self._text.split(b"\n")
        return lines if lines[-1] else lines[:-1]

    @cached_property
    def starts(self) -> list[int] | None:
        """The offset of each line; None if lines of text are not lines of output."""
        raw = self.raw.split(b"\n")
        if len(raw) - (not raw[-1]) != len(self.lines):
            return None
        return list(accumulate((len(line) + 1 for line in raw), initial=self.begin))[: len(self.lines)]

    def hits(self, expression: Expression, take: Callable[[int, int], bool]) -> Steps[bool]:
        """Call ``take`` with the number of each matching line and the position in it until it returns true. Return
        whether it did. A match never spans lines."""
        index = at = 0
        text = self._text
        while at < len(text):
            end = text.find(b"\n", min(at + BLOCK_BYTES, len(text) - 1))
            end = end if end >= 0 else len(text)
            while at <= end:
                search = partial(expression.search, text, at, end)
                match = (yield search) if end - at > 2 * BLOCK_BYTES else search()
                if match is None:
                    break
                index += text.count(b"\n", at, match.start())
                if index >= len(self.lines):
                    return False
                line = text.rfind(b"\n", 0, match.start()) + 1
                following = text.find(b"\n", match.start()) + 1
                if match.end() >= following > 0:  # it spans lines, so it may match neither
                    match_line = partial(expression.search, self.lines[index])
                    match, line = (yield match_line) if following - line > 2 * BLOCK_BYTES else match_line(), 0
                if match is not None and take(index, match.start() - line):
                    return True
                at = following or len(text) + 1
                index += 1
                yield
            index += text.count(b"\n", at, end + 1)
            at = max(at, end + 1)
            yield
        return False


class Listing:
    """Matches and the lines around them, window by window, limited in matches and characters."""

    def __init__(self, max_matches: int, context_lines: int, max_chars: int) -> None:
        self.matches: list[Match] = []
        self.entries: list[str] = []
        self.stopped_at: int | None = None
        self._max_matches = max_matches
        self._context_lines = context_lines
        self._room = max_chars
        self._previous = Window(0, b"", "")
        self._listed = -context_lines - 1
        self._context_end = -1

    def add(self, expression: Expression, window: Window) -> Steps[None]:
        """Add the matches in ``window``. Secrets never match, or searches could reveal them letter by letter."""
        hit = yield from window.hit(expression)
        if hit or self._context_end >= 0:
            window = yield from window.hidden()
        if hit:
            try:
                self._previous = yield from self._previous.hidden()
            except OutputExpired:
                self._previous = Window(window.begin, b"", "")
        full = yield from window.hits(expression, partial(self._list_match, window))
        if full:
            return
        self._list(window, self._listed + 1, min(self._context_end + 1, len(window.lines)))
        self._listed -= len(window.lines)
        self._context_end -= len(window.lines)
        self._previous = window

    def _list_match(self, window: Window, index: int, at: int) -> bool:
        """List a matching line and return whether there was no room for it."""
        offset = window.starts[index] if window.starts else window.begin
        around = _ENTRY_CHARS + len(str(offset))
        line = _shortened(window.lines[index], at, LINE_CHARS if self.matches else self._room - around)
        if len(self.matches) == self._max_matches or len(line) + around > self._room:
            self.stopped_at = offset if window.starts else window.end
            return True
        self._list(window, self._listed + 1, min(self._context_end + 1, index))
        self._room -= len(line) + around
        self._list(window, max(self._listed + 1, index - self._context_lines), index)
        self._separate(index)
        self.entries.append(f"{offset}:{line}")
        self.matches.append(Match(offset, line))
        self._listed = index
        self._context_end = index + self._context_lines
        return False

    def _list(self, window: Window, first: int, end: int) -> None:
        """List lines around a match; negative numbers count back into the previous window."""
        for index in range(max(first, -len(self._previous.lines)), end):
            source = window if index >= 0 else self._previous
            offset = source.starts[index] if source.starts else source.begin
            entry = f"{offset}-{_shortened(source.lines[index], 0, LINE_CHARS)}"
            if len(entry) + _ENTRY_CHARS <= self._room:
                self._room -= len(entry) + _ENTRY_CHARS
                self._separate(index)
                self.entries.append(entry)
                self._listed = index

    def _separate(self, index: int) -> None:
        if self.entries and index > self._listed + 1:
            self.entries.append("--")


def compile_expression(pattern: str) -> Expression:
    """Compile an expression in which ``^`` and ``$`` match at line boundaries. Raises InvalidArguments."""
    library = cast("Any", re2)
    options = library.Options()
    options.log_errors = False
    try:
        return library.compile((_LINES + pattern).encode(), options)
    except UnicodeEncodeError:
        reason = "it is not valid text"
    except library.error as error:
        reason = error.args[0].decode("utf-8", "replace").replace(f": {_LINES}", ": ", 1)
    raise InvalidArguments(
        f"pattern {pattern[:80]!a} is not a valid RE2 expression: {reason}",
        suggestion="RE2 has no look-around and no back-references; put \\ before ( ) [ ] { } . * + ? | meant literally",
    )


def _shortened(line: bytes, at: int, room: int) -> str:
    """Return ``line`` as text; if it is long, the part around ``at``."""
    text = line.decode()
    limit = max(0, min(LINE_CHARS, room))
    if len(text) <= limit:
        return text
    begin = max(0, min(len(line[:at].decode()) - limit // 3, len(text) - limit + 2))
    return ("…" + text[begin : begin + max(0, limit - 2)] + "…")[:limit]
