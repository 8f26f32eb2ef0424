"""Quotes data in the text of a command for every supported shell, and finds where a quoted word is one word.

Which shell will read a text is unknown when a plan is checked. So constructs that bash, dash, zsh and fish read
differently make the rest of the text unclear, and nothing may be inserted there. Does no input or output.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from ccswarm.errors import PlanInvalid

RUN = re.compile(r"['\\]|[^'\\]+")
SIMPLE_EXPANSION = re.compile(r"\{[A-Za-z0-9_#@*?!$-]+\}")
CASE = re.compile(r"\bcase\b")
DUPLICATED = re.compile(r"&(?:[0-9]+-?|-)(?=[\s;|&<>()]|\Z)")
"""The rest of ``2>&1``. Any other word there is a file name to bash, which expands it again without its quotes."""
INDEXED = re.compile(r"[A-Za-z0-9_@*?!$#-]")
BLANK = " \t\n"
BEFORE_BRACKETS = f"{BLANK}=<>;&|("


class Spot(Enum):
    """The context of a position in a command: a word or a part of one, quotes, a comment, or unclear."""

    WORD = "word"
    DOUBLE = '"'
    SINGLE = "'"
    COMMENT = "#"
    UNCLEAR = "?"


@dataclass(frozen=True, slots=True)
class Location:
    """The ``start`` and ``end`` of a reference in a text, and its context. ``opened`` is where its quotes begin.
    ``why`` tells what makes an unclear context so."""

    start: int
    end: int
    spot: Spot
    opened: int = -1
    why: str = ""


def quote(text: str) -> str:
    """Quote ``text`` as one word of bash, dash, zsh, fish and others. Raises PlanInvalid if it cannot be one."""
    if "\0" in text:
        raise PlanInvalid("text with a NUL character cannot be an argument", suggestion="pass it as a command's stdin")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PlanInvalid("text that is not UTF-8 cannot be an argument", suggestion="pass it as stdin") from None
    # A backslash is special within the single quotes of fish, but not within those of other shells.
    words = (part if part == "" else f"\\{part}" if part in "'\\" else f"'{part}'" for part in RUN.findall(text))
    return "".join(words) or "''"


def locate(text: str, references: Sequence[tuple[int, int]], opaque: Collection[int] = ()) -> list[Location]:
    """Return the context of each of ``references`` (start, end) in the text of a command. After a reference whose start
    is in ``opaque`` everything is unclear, because its value may contain quotes."""
    scan = _Scan(text, dict(references), opaque)
    return list(scan.found())


class _Scan:
    """One pass over a text, as far as all shells agree on it."""

    def __init__(self, text: str, references: dict[int, int], opaque: Collection[int]) -> None:
        self._text = text
        self._references = references
        self._opaque = opaque
        self._at = 0
        self._depth: list[Spot] = []
        """The context around each open substitution or group."""
        self._spot = Spot.WORD
        self._opened: list[int] = [-1]
        self._dollar = False
        """Whether the single quotes began with a dollar sign."""
        self._why = ""
        self._escaped = -1
        """The end of the character after the last backslash."""

    def found(self) -> Iterator[Location]:
        while self._at < len(self._text):
            if end := self._references.get(self._at):
                yield Location(self._at, end, self._spot, self._opened[-1], self._why)
                if self._at in self._opaque:
                    self._unclear("a value inserted before it")
                self._at = end
                continue
            character = self._text[self._at]
            escapes = character == "\\" and self._spot in (Spot.WORD, Spot.DOUBLE)
            if escapes and (end := self._references.get(self._at + 1)):
                yield Location(self._at + 1, end, Spot.UNCLEAR, why="a backslash")
                self._unclear("a backslash")
                self._at = end
                continue
            self._at += self._step(character)

    def _step(self, character: str) -> int:
        """Read one construct, and return its length."""
        match self._spot:
            case Spot.WORD:
                return self._word(character)
            case Spot.DOUBLE:
                return self._double(character)
            case Spot.SINGLE:
                return self._single(character)
            case Spot.COMMENT:
                return self._comment(character)
            case Spot.UNCLEAR:
                return 1

    def _word(self, character: str) -> int:
        before = self._text[self._at - 1] if self._at else "\n"
        match character:
            case "\\":
                return self._backslash()
            case "'" | '"':
                self._open(Spot.SINGLE if character == "'" else Spot.DOUBLE)
                self._dollar = character == "'" and before == "$"
            case "#":
                if self._escaped == self._at or before in ";&|<>()" or (before.isspace() and before not in BLANK):
                    self._unclear("a # that is not a word of its own")
                elif before in BLANK:
                    self._spot = Spot.COMMENT
            case "`":
                self._unclear("a backtick (write $(…))")
            case "$":
                return self._dollar_sign()
            case "(":
                if before not in BEFORE_BRACKETS or self._next("("):
                    self._unclear("brackets outside any command")
                self._enter()
            case ")" if self._depth:
                self._spot = self._depth.pop()
                self._opened.pop()
            case "&" if before in "<>" and not DUPLICATED.match(self._text, self._at):
                self._unclear("a name after >& (write > name 2>&1)")
            case "<" if self._next("<<"):
                return 3
            case "<" if self._next("<"):
                self._unclear("a here-document")
            case "[" if INDEXED.match(before):
                self._unclear("an index in brackets")
            case "c" if self._depth and CASE.match(self._text, self._at):
                self._unclear("a case in brackets")
            case _:
                pass
        return 1

    def _double(self, character: str) -> int:
        match character:
            case "\\":
                return 2
            case '"':
                self._close()
            case "`":
                self._unclear("a backtick (write $(…))")
            case "$":
                return self._dollar_sign()
            case _:
                pass
        return 1

    def _single(self, character: str) -> int:
        if character == "\\" and self._dollar:
            self._unclear("$'…' with a backslash")
        elif character == "\\":
            if self._next("'"):
                self._unclear("a backslash before a single quote")
            return 2 if self._next("\\") else 1
        elif character == "'":
            self._close()
        return 1

    def _comment(self, character: str) -> int:
        if character == "\n":
            self._spot = Spot.WORD
        elif character in "'\"`\\" or (character in "()" and self._depth):
            self._unclear("quotes or brackets in a comment")
        return 1

    def _backslash(self) -> int:
        if self._next("c"):
            self._unclear("\\c")
        self._escaped = self._at + 2
        return 2

    def _dollar_sign(self) -> int:
        # In a plan ``$${`` is a literal ``${``.
        length = 2 if self._next("${") else 1
        if length == 1 and self._next("$"):
            if self._text.startswith(("(", "{", "[", "$", "'", '"'), self._at + 2):
                self._unclear("$$ before a bracket or a quote")
            return 2
        rest = self._at + length
        if self._text.startswith(("((", "["), rest):
            self._unclear("arithmetic")
        elif self._text.startswith("(", rest):
            self._enter()
            return length + 1
        elif self._text.startswith("{", rest):
            if simple := SIMPLE_EXPANSION.match(self._text, rest):
                return simple.end() - self._at
            self._unclear("an expansion in braces")
        return length

    def _next(self, text: str) -> bool:
        return self._text.startswith(text, self._at + 1)

    def _enter(self) -> None:
        if self._spot is Spot.UNCLEAR:
            return
        self._depth.append(self._spot)
        self._opened.append(-1)
        self._spot = Spot.WORD

    def _open(self, spot: Spot) -> None:
        self._spot = spot
        self._opened[-1] = self._at

    def _close(self) -> None:
        self._spot = Spot.WORD
        self._opened[-1] = -1

    def _unclear(self, why: str) -> None:
        self._spot = Spot.UNCLEAR
        self._why = self._why or why


def move_out_of_quotes(text: str, found: Location, quoted: str) -> str | None:
    """Replace the reference by ``quoted``, moved out of the quotes around it; None if that is not possible."""
    before, after = text[: found.start], text[found.end :]
    if found.spot is Spot.WORD:
        return before + quoted + after
    if found.spot not in (Spot.DOUBLE, Spot.SINGLE):
        return None
    mark = found.spot.value
    before = before[:-1] if found.opened == found.start - 1 else before + mark
    after = after[1:] if after.startswith(mark) else mark + after
    return before + quoted + after
