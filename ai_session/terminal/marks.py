"""Finds our shell integration's marks in terminal output. No I/O; independent of sessions and logs.

A mark is ``ESC ] 7777 ; NONCE ; KIND [; FIELDS] BEL`` (the fields are listed in ``shells.base``). What identifies it
has no lower-case letters, as a terminal may print them as capitals. Output without knowledge of the nonce cannot
contain one; replayed ones are recognized by the sequence number. A program that read its own session's nonce can print
marks by the million: of those, only the decisive ones are parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

MAX_MARK_BYTES = 8192
"""The longest mark, from ESC to BEL. A path may have 4096 bytes; anything longer without an end is not a mark."""

MOST_MARKS = 8
"""The marks of one chunk that are parsed one by one. A shell writes four for each command; further ones are skimmed."""

_TRIES = 4
"""How many of the last marks of one kind are tried to find a whole one."""


class MarkKind(StrEnum):
    """What a mark reports; the values are those in the mark."""

    SHELL_STARTED = "R"
    COMMAND_EXECUTED = "C"
    COMMAND_FINISHED = "D"
    LINE_EXECUTED = "P"
    PROMPT_START = "A"
    PROMPT_READY = "B"
    LINE_CONTINUED = "L"
    SHELL_EXITED = "X"
    AT_PROMPT = "Q"
    NEVER_BEGUN = "U"
    CAUGHT_UP = "S"


_KINDS = {kind.value.encode(): kind for kind in MarkKind}


class Mark(NamedTuple):
    """One mark. ``start`` and ``end`` are the log offsets of its own bytes (``end`` is the first byte after it).

    ``at`` is the shell's clock in UTC seconds. A field that the kind does not have, or that is malformed, is None
    (numbers) or empty (text).
    """

    kind: MarkKind
    start: int
    end: int
    seq: int | None = None
    exit_code: int | None = None
    at: float | None = None
    flags: str = ""
    cwd: str = ""
    pid: int | None = None
    version: str = ""


class MarkScanner:
    """Accepts output in any chunks and returns the same marks; never raises and holds back at most MAX_MARK_BYTES.

    ``offset`` is the log offset just after the last byte fed. After ``MOST_MARKS`` of one chunk the rest of it is
    skimmed, at a cost that does not depend on their number: that returns the last mark of each kind, which determine
    the state of the shell, and the first ones that begin and end the command ``seq``.
    """

    __slots__ = ("_awaited", "_held", "_prefix", "offset")

    def __init__(self, nonce: str, offset: int = 0) -> None:
        self.offset = offset
        self._prefix = _prefix(nonce)
        self._held = b""
        self._awaited: _Awaited | None = None

    def feed(self, chunk: bytes, seq: int | None = None) -> list[Mark]:
        """Return the marks that ``chunk`` completes, in order. ``seq`` is that of the command whose end is awaited."""
        data, prefix = self._held + chunk if self._held else chunk, self._prefix
        self.offset += len(chunk)
        base = self.offset - len(data)
        spans: list[tuple[int, int]] = []
        start, position = data.find(prefix), 0
        for _ in range(MOST_MARKS):
            if start < 0:
                break
            bell = data.find(b"\x07", start, start + MAX_MARK_BYTES)
            if bell >= 0:
                # If another mark begins inside, the first one is cut off and not a mark.
                position = bell + 1
                spans.append((max(start, data.rfind(prefix, start, bell)), position))
            start = data.find(prefix, max(position, start + len(prefix)))
        if start >= 0:
            spans += self._skimmed(data, start, seq)
            position = max(position, _end_of_last(data, prefix))
        self._held = _unfinished(data, prefix, position)
        found = (_parse(data[a + len(prefix) : b - 1], base + a, base + b) for a, b in spans)
        return [mark for mark in found if mark]

    def _skimmed(self, data: bytes, position: int, seq: int | None) -> list[tuple[int, int]]:
        """Return start and end of the marks from ``position`` on that no later one supersedes."""
        found = {at for kind in _KINDS if (at := _last(data, self._prefix, kind, position))}
        if seq is not None:
            if self._awaited is None or self._awaited.seq != seq:
                self._awaited = _Awaited(self._prefix, seq)
            found |= self._awaited.find(data, position)
        return sorted(found)


class _Awaited:
    """Finds the first marks that begin and end one command."""

    __slots__ = ("_begin", "_end", "seq")

    def __init__(self, prefix: bytes, seq: int) -> None:
        self.seq = seq
        self._begin = re.compile(b"%bC;%d;[^\x07\x1b]{0,64}\x07" % (re.escape(prefix), seq))
        self._end = re.compile(
            b"%b[AD];%d;[0-9]{1,18};[^\x07\x1b]{0,%d}\x07" % (re.escape(prefix), seq, MAX_MARK_BYTES)
        )

    def find(self, data: bytes, position: int) -> set[tuple[int, int]]:
        begin = self._begin.search(data, position)
        # It may have begun before; then its end may precede a second beginning.
        ends = (self._end.search(data, start) for start in {position, begin.end() if begin else position})
        found = (begin, *ends)
        return {match.span() for match in found if match and match.end() - match.start() <= MAX_MARK_BYTES}


def caught_up(nonce: str, number: int) -> bytes:
    """Return the mark that a session prints itself: once it is read, everything printed before it has been read."""
    return b"%bS;%d\x07" % (_prefix(nonce), number)


def strip_marks(data: bytes, nonce: str) -> bytes:
    """Return ``data`` without the marks in it; a mark that is cut off at either end stays."""
    if _prefix(nonce) not in data:
        return data
    return _whole(nonce).sub(_removed, data)


def unfinished_mark(data: bytes, nonce: str) -> bytes:
    """Return the end of ``data`` that more bytes may complete to a mark; less than MAX_MARK_BYTES."""
    prefix = _prefix(nonce)
    return _unfinished(data, prefix, _end_of_last(data, prefix))


def without_marks(data: bytes, nonce: str) -> Iterator[tuple[int, int]]:
    """Yield the parts of ``data`` between whole marks, as ``strip_marks`` leaves them."""
    position = 0
    if _prefix(nonce) in data:
        for found in _whole(nonce).finditer(data):
            if not _removed(found):
                if position < found.start():
                    yield position, found.start()
                position = found.end()
    if position < len(data):
        yield position, len(data)


def _prefix(nonce: str) -> bytes:
    return b"\x1b]7777;%b;" % nonce.encode()


def _whole(nonce: str) -> re.Pattern[bytes]:
    """Return an expression for any mark, of whatever length. ``re`` caches it."""
    prefix = re.escape(_prefix(nonce))
    return re.compile(b"%b[^\x07\x1b]*+(?:\x1b(?!%b)[^\x07\x1b]*+)*+\x07" % (prefix, prefix[2:]))


def _removed(found: re.Match[bytes]) -> bytes:
    return b"" if found.end() - found.start() <= MAX_MARK_BYTES else found[0]


def _last(data: bytes, prefix: bytes, kind: bytes, position: int) -> tuple[int, int] | None:
    """Return start and end of the last whole mark of that kind."""
    end = len(data)
    for _ in range(_TRIES):
        start = data.rfind(prefix + kind, position, end)
        if start < 0:
            return None
        bell = data.find(b"\x07", start, start + MAX_MARK_BYTES)
        named = data[start + len(prefix) + 1 : start + len(prefix) + 2] in (b";", b"\x07")
        if named and bell >= 0 and data.rfind(prefix, start, bell) == start:
            return start, bell + 1
        end = start
    return None


def _end_of_last(data: bytes, prefix: bytes) -> int:
    """Return the end of the last mark, 0 if there is none."""
    start = data.rfind(prefix)
    return data.find(b"\x07", start, start + MAX_MARK_BYTES) + 1


def _unfinished(data: bytes, prefix: bytes, position: int) -> bytes:
    """Return the end of ``data`` that more bytes may complete to a mark; after ``position`` there is no whole one."""
    start = data.rfind(prefix, max(position, len(data) - MAX_MARK_BYTES + 1))
    if start < 0:
        start = data.rfind(b"\x1b", max(position, len(data) - len(prefix) + 1))
        if start < 0 or not prefix.startswith(data[start:]):
            return b""
    return data[start:]


def _parse(body: bytes, start: int, end: int) -> Mark | None:
    letter, _, rest = body.partition(b";")
    kind = _KINDS.get(letter)
    if kind is None:
        return None
    if kind in (MarkKind.COMMAND_EXECUTED, MarkKind.CAUGHT_UP):
        seq, _, at = rest.partition(b";")
        return Mark(kind, start, end, seq=_number(seq), at=_seconds(at))
    if kind is MarkKind.SHELL_STARTED:
        pid, _, version = rest.partition(b";")
        return Mark(kind, start, end, pid=_number(pid), version=version.decode("utf-8", "replace"))
    if kind in (MarkKind.PROMPT_READY, MarkKind.LINE_EXECUTED, MarkKind.AT_PROMPT, MarkKind.LINE_CONTINUED):
        return Mark(kind, start, end, flags=rest.lower().decode() if rest.lower() in (b"t", b"p") else "")
    seq, code, at, flags, cwd, *_ = *rest.split(b";", 4), b"", b"", b"", b"", b""
    if flags.isupper():
        # `stty olcuc`: an interactive shell has lower-case letters in its flags.
        flags, cwd = flags.lower(), b""
    return Mark(
        kind,
        start,
        end,
        seq=_number(seq),
        exit_code=_number(code),
        at=_seconds(at),
        flags=flags.decode("utf-8", "replace"),
        cwd=cwd.decode("utf-8", "replace"),
    )


def _number(field: bytes) -> int | None:
    return int(field) if field.isdigit() and len(field) < 19 else None


def _seconds(field: bytes) -> float | None:
    """Parse the shell's clock, which has the locale's decimal separator."""
    whole, _, fraction = field.replace(b",", b".").partition(b".")
    if not whole.isdigit() or len(field) > 40 or not (fraction.isdigit() or not fraction):
        return None
    return float(whole + b"." + fraction)
