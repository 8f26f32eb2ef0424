"""Finds our shell integration's marks in terminal output. No I/O; knows nothing of sessions or logs.

A mark is ``ESC ] 7777 ; NONCE ; KIND [; FIELDS] BEL`` (the fields are listed in ``shells.base``). Output that does not
know the nonce cannot make one; output that replays old ones is told apart by the sequence number.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MAX_MARK_BYTES = 8192
"""Longest mark, from ESC to BEL. A path may have 4096 bytes; anything longer without an end is not a mark."""


class MarkKind(StrEnum):
    """What a mark reports; the values are the wire's."""

    SHELL_STARTED = "R"
    COMMAND_EXECUTED = "C"
    COMMAND_FINISHED = "D"
    LINE_EXECUTED = "P"
    PROMPT_START = "A"
    PROMPT_READY = "B"
    SHELL_EXITED = "X"


_KINDS = {kind.value.encode(): kind for kind in MarkKind}


@dataclass(frozen=True, slots=True)
class Mark:
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
    """Takes output in any chunks and gives the same marks; never raises, holds back at most MAX_MARK_BYTES.

    ``offset`` is the log offset just after the last byte fed.
    """

    __slots__ = ("_held", "_prefix", "offset")

    def __init__(self, nonce: str, offset: int = 0) -> None:
        self.offset = offset
        self._prefix = _prefix(nonce)
        self._held = b""

    def feed(self, chunk: bytes) -> list[Mark]:
        """The marks that ``chunk`` completes, in order."""
        data = self._held + chunk if self._held else chunk
        self.offset += len(chunk)
        base = self.offset - len(data)
        marks: list[Mark] = []
        position = 0
        while (found := _find(data, self._prefix, position)) is not None:
            start, position = found
            mark = _parse(data[start + len(self._prefix) : position - 1], base + start, base + position)
            if mark is not None:
                marks.append(mark)
        self._held = _unfinished(data, self._prefix, position)
        return marks


def strip_marks(data: bytes, nonce: str) -> bytes:
    """``data`` without the marks in it; a mark that is cut off at either end stays."""
    prefix = _prefix(nonce)
    kept: list[bytes] = []
    position = 0
    while (found := _find(data, prefix, position)) is not None:
        kept.append(data[position : found[0]])
        position = found[1]
    if not kept:
        return data
    kept.append(data[position:])
    return b"".join(kept)


def _prefix(nonce: str) -> bytes:
    return b"\x1b]7777;%b;" % nonce.encode()


def _find(data: bytes, prefix: bytes, position: int) -> tuple[int, int] | None:
    """Start and end of the next whole mark. One that another begins in is cut off, so it is none."""
    start = data.find(prefix, position)
    while start >= 0:
        bell = data.find(b"\x07", start, start + MAX_MARK_BYTES)
        if bell >= 0:
            return max(start, data.rfind(prefix, start, bell)), bell + 1
        start = data.find(prefix, start + len(prefix))
    return None


def _unfinished(data: bytes, prefix: bytes, position: int) -> bytes:
    """The end of ``data`` that more bytes may make a mark: after ``position`` there is no whole one."""
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
    if kind is MarkKind.COMMAND_EXECUTED:
        seq, _, at = rest.partition(b";")
        return Mark(kind, start, end, seq=_number(seq), at=_seconds(at))
    if kind is MarkKind.SHELL_STARTED:
        pid, _, version = rest.partition(b";")
        return Mark(kind, start, end, pid=_number(pid), version=version.decode("utf-8", "replace"))
    if kind is MarkKind.PROMPT_READY or kind is MarkKind.LINE_EXECUTED:
        return Mark(kind, start, end)
    seq, code, at, flags, cwd, *_ = *rest.split(b";", 4), b"", b"", b"", b"", b""
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
    """Shells write the clock with the locale's decimal sign."""
    whole, _, fraction = field.replace(b",", b".").partition(b".")
    if not whole.isdigit() or len(field) > 40 or not (fraction.isdigit() or not fraction):
        return None
    return float(whole + b"." + fraction)
