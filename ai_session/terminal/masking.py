"""Removes secrets from what is read in pieces, wherever the pieces are cut, without changing offsets.

A secret becomes one unused character and NULs, which clean text drops; ``labelled`` turns the character into a label.
So of consecutive pages, one shows the label, and one that begins inside the secret shows nothing.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Protocol

from ai_session.system.turns import Steps


class Spans(Protocol):
    """Finds the secrets in a text, in order and not overlapping, with their replacements; in a ``growing`` text also at
    its end, if that may become one. It works in steps, since there may be thousands. Those that begin at ``before`` or
    later may be omitted."""

    def __call__(
        self, data: bytes, growing: bool = False, before: int = ..., /
    ) -> Steps[Sequence[tuple[int, int, bytes]]]: ...


CONTEXT_BYTES = 16384
"""Read on both sides of a piece, 0.1 ms: a private key of 8192 bits has 6.5 kB, one of PGP may have more."""

_SPANS, _BREAKS = 1000, 2000
"""Processed in one step."""

LEAST_CHARS = 8
"""A secret whose beginning has left the screen is hidden at its top from this length on."""

MARK_BYTES = 4
_FIRST, _MARKS = 0x100000, 0xFFFE
_MARK = re.compile("[\U00100000-\U0010fffd]")
_SEQUENCE = rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\-~])"
_WRAP = rb" (?:\x08|\r(?:\x1b\[K)?(?:(.)\r(?=\1))?)"
_SEQUENCES = re.compile(_SEQUENCE)
_BREAK = re.compile(_SEQUENCE + b"|" + _WRAP)
"""What a terminal does not show between characters: colours, and how programs and shells continue in the next row."""


class Hiding:
    """Hides what ``spans`` finds, and remembers the labels."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._labels: list[str] = []
        self._marks: dict[bytes, int] = {}
        self._begin = 0
        self._data = b""
        self._found = list[tuple[int, int, bytes]]()

    def piece(
        self, read: Callable[[int, int], bytes], start: int, end: int, first: int, last: int, growing: bool
    ) -> Steps[bytes]:
        """Return the bytes from ``start`` to ``end`` that exist, with secrets found in what is between ``first`` and
        ``last``, and if ``growing`` may continue after that. Raises what ``read`` raises if ``start`` is before
        ``first``."""
        kept = min(first, start)
        begin, stop = max(kept, start - CONTEXT_BYTES), min(last, end + CONTEXT_BYTES)
        if begin < self._begin or stop > self._begin + len(self._data) or not self._data:
            # Nearby pieces follow: how much text they give is only found by trying.
            near = min(end - start, CONTEXT_BYTES)
            begin = max(kept, begin - near)
            data = read(begin, min(last, stop + near))
            found = yield from secret_spans(data, self._spans, growing and stop + near >= last)
            if begin == first > 0 and (torn := data.find(b"\n", 0, CONTEXT_BYTES)) > 0:
                # The stored bytes may begin within a secret.
                found = [(0, torn, b""), *(span for span in found if span[0] >= torn)]
            self._begin = begin
            self._data = data
            self._found = found
        return (yield from self._hidden(self._data, self._found, start - self._begin, end - self._begin))

    def labelled(self, text: str) -> str:
        """Return clean text of pieces, with labels."""
        return _MARK.sub(self._label, text) if self._labels else text

    def cut(self, text: str, start: int, stop: int, growing: bool = False) -> Steps[str]:
        """Return the characters of ``text`` from ``start`` to ``stop``, labelling the secrets that begin there."""
        # No secret that begins or ends within reaches further than the context of a piece.
        first = max(0, start - CONTEXT_BYTES)
        near = text[first : stop + CONTEXT_BYTES]
        data = near.encode(errors="surrogatepass")
        from_byte = len(text[first:start].encode(errors="surrogatepass"))
        length = len(text[start:stop].encode(errors="surrogatepass"))
        growing = growing and first + len(near) == len(text)
        found = yield from secret_spans(data, self._spans, growing, from_byte + length)
        piece = yield from self._hidden(data, found, from_byte, from_byte + length)
        return self.labelled(piece.replace(b"\0", b"").decode(errors="surrogatepass"))

    def _hidden(self, data: bytes, found: Sequence[tuple[int, int, bytes]], start: int, end: int) -> Steps[bytes]:
        shown = bytearray(data[start:end])
        for count, (a, b, label) in enumerate(found, 1):
            if count % _SPANS == 0:
                yield
            if a >= end or b <= start:
                continue
            # Half a mark would not be a character.
            whole = b - a >= MARK_BYTES and start <= a and a + MARK_BYTES <= end
            left, right = max(a, start) - start, min(b, end) - start
            mark = self._mark(label) if whole else b""
            shown[left:right] = mark + bytes(right - left - len(mark))
        return bytes(shown)

    def _mark(self, label: bytes) -> bytes:
        number = self._marks.get(label)
        if number is None:
            number = self._marks[label] = len(self._labels)
            self._labels.append(label.decode(errors="replace"))
        return chr(_FIRST + number % _MARKS).encode()

    def _label(self, mark: re.Match[str]) -> str:
        number = ord(mark[0]) - _FIRST
        return self._labels[number] if number < len(self._labels) else mark[0]


def secret_spans(
    data: bytes, spans: Spans, growing: bool = False, before: int = sys.maxsize
) -> Steps[list[tuple[int, int, bytes]]]:
    """Return the spans of ``data`` and those visible only without its breaks, in order and not overlapping."""
    found = list((yield from spans(data, growing, before)))
    wrapped = b" \x08" in data or b" \r" in data
    if wrapped or b"\x1b" in data:
        plain = (_BREAK if wrapped else _SEQUENCES).sub(b"", data)
        yield
        if joined := (yield from spans(plain, growing, before)):
            starts, offsets = yield from _parts(data)
            found += [
                (_original(a, starts, offsets), _original(b - 1, starts, offsets) + 1, label) for a, b, label in joined
            ]
            yield
    if len(found) < 2:
        return found
    found.sort()
    merged = found[:1]
    for a, b, label in found[1:]:
        begin, end, known = merged[-1]
        if a < end:
            merged[-1] = (begin, max(b, end), known if end - begin >= b - a else label)
        else:
            merged.append((a, b, label))
    return merged


def breaks(data: bytes) -> bytes:
    """Return what breaks up the text of ``data``, without the text."""
    return b"".join(found[0] for found in _BREAK.finditer(data))


def _parts(data: bytes) -> Steps[tuple[list[int], list[int]]]:
    """Return where each part between breaks begins in the text without breaks, and where in ``data``."""
    starts, offsets = [0], [0]
    position = length = 0
    for count, found in enumerate(_BREAK.finditer(data), 1):
        if count % _BREAKS == 0:
            yield
        length += found.start() - position
        position = found.end()
        if starts[-1] == length:
            offsets[-1] = position
        else:
            starts.append(length)
            offsets.append(position)
    return starts, offsets


def _original(at: int, starts: list[int], offsets: list[int]) -> int:
    part = bisect_right(starts, at) - 1
    return offsets[part] + at - starts[part]


def on_screen(lines: Sequence[str], cols: int, spans: Spans, printed: bytes = b"") -> Steps[list[str]]:
    """Return the rows of a screen with labels over secrets, of that length; also where one continues in the next row.

    ``printed`` is what was printed last: it may show a secret on the screen whose beginning has scrolled away.
    """
    joined: list[str] = []
    for line in lines:
        joined += (line, "" if len(line) >= cols else "\n")
    text = "".join(joined)
    data = text.encode(errors="surrogatepass")
    found = list((yield from spans(data)))
    if top := (yield from _at_top(data, printed, spans)):
        found = [top, *(span for span in found if span[0] >= top[1])]
    parts: list[str] = []
    position = 0
    for count, (a, b, label) in enumerate(found, 1):
        if count % _SPANS == 0:
            yield
        covered = data[a:b].decode(errors="surrogatepass")
        over = iter(label.decode(errors="replace").ljust(len(covered), "*"))
        parts.append(data[position:a].decode(errors="surrogatepass"))
        parts.append("".join("\n" if c == "\n" else next(over) for c in covered))
        position = b
    text = "".join(parts) + data[position:].decode(errors="surrogatepass")
    rows: list[str] = []
    position = 0
    for line in lines:
        rows.append(text[position : position + len(line)])
        position += len(line) + (len(line) < cols)
    return rows


def _at_top(data: bytes, printed: bytes, spans: Spans) -> Steps[tuple[int, int, bytes] | None]:
    """Return the end of a secret with which ``data`` begins."""
    head, longest = data[:LEAST_CHARS], (0, b"")
    for a, b, label in (yield from secret_spans(printed, spans)) if len(head) == LEAST_CHARS else ():
        yield
        secret = _BREAK.sub(b"", printed[a:b])
        at = secret.find(head, 1)
        while at > 0:
            if data.startswith(secret[at:]):
                longest = max(longest, (len(secret) - at, label))
            at = secret.find(head, at + 1)
    return (0, *longest) if longest[0] else None
