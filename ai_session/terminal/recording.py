"""A session's log as asciicast v3 (docs.asciinema.org/manual/asciicast/v3): what a person saw, at the original pace.

Our marks are removed, secrets are masked, and commands are markers. Nothing extra is recorded: a recording can be made
of any session at any time, as far back as its output is stored.
"""

from __future__ import annotations

import codecs
import json
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from ai_session.models import CommandRecord
from ai_session.system.turns import Steps, finished, pausing
from ai_session.terminal.marks import without_marks
from ai_session.terminal.masking import Hiding, Spans, breaks, secret_spans
from ai_session.terminal.timing import Tick

MASK_BYTES = 1 << 20
"""Secrets are searched for in windows of this size, with an overlap longer than any secret."""

STEP_BYTES = 1 << 16
"""The window's size if the work is done in steps."""

OVERLAP_BYTES = 1 << 14

POINTS = 2000
"""Processed in one step."""

EVENT_CHARS = 1 << 16
"""Longer output is written as several events of one time, so that no line is long."""

MARKER_CHARS = 200
"""How much of a command its marker has."""


@dataclass(frozen=True, slots=True)
class Source:
    """What a recording is made of. ``read(start, end)`` returns raw log bytes, of which ``first`` to ``end`` are
    stored."""

    name: str
    nonce: str
    rows: int
    cols: int
    read: Callable[[int, int], bytes]
    first: int
    end: int
    ticks: Sequence[Tick]
    commands: Sequence[CommandRecord] = ()
    exit_code: int | None = None

    @property
    def began(self) -> float:
        """When the first stored byte arrived (UTC seconds); 0 if unknown."""
        return next((tick.at for tick in self.ticks if tick.offset > self.first), 0.0)

    @property
    def marked(self) -> list[CommandRecord]:
        """The commands whose output is stored, in the order of their markers."""
        kept = (record for record in self.commands if self.first <= record.start_offset < self.end)
        return sorted(kept, key=lambda record: record.start_offset)


def export(source: Source, spans: Spans, *, window_bytes: int = MASK_BYTES) -> Iterator[str]:
    """Return the lines of the file, each ending in a newline. They are made as they are read."""
    return (line for line in _lines(source, spans, window_bytes) if line)


def exported(source: Source, spans: Spans) -> Steps[list[str]]:
    """Return all lines of the file, in steps."""
    lines: list[str] = []
    for count, line in enumerate(_lines(source, spans, STEP_BYTES)):
        if line:
            lines.append(line)
        if not line or count % POINTS == 0:
            yield
    return lines


def _lines(source: Source, spans: Spans, window_bytes: int) -> Iterator[str | None]:
    """Yield the lines, and None now and then if a line takes long."""
    sizes = [tick for tick in source.ticks if tick.rows]
    before = [tick for tick in sizes if tick.offset <= source.first]
    rows, cols = (before[-1].rows, before[-1].cols) if before else (source.rows, source.cols)
    header: dict[str, Any] = {"version": 3, "term": {"cols": cols, "rows": rows, "type": "xterm-256color"}}
    header |= {"timestamp": int(source.began), "title": finished(Hiding(spans).cut(source.name, 0, len(source.name)))}
    yield json.dumps(header) + "\n"
    then = source.began
    for event in _events(source, spans, window_bytes):
        if event is None:
            yield None
            continue
        at, code, text = event
        for start in range(0, len(text) or 1, EVENT_CHARS):
            part = text[start : start + EVENT_CHARS]
            yield json.dumps([max(0.0, round(at - then, 6)), code, part], ensure_ascii=False) + "\n"
            then = max(then, at)


def write_recording(source: Source, spans: Spans, folder: Path) -> Path:
    """Write a new file (0600) in ``folder`` (0700) and return its path. Blocks; raises OSError."""
    folder.mkdir(mode=0o700, exist_ok=True)
    fd, path = tempfile.mkstemp(".cast", dir=folder)
    with open(fd, "w", encoding="utf-8", errors="replace") as file:
        file.writelines(export(source, spans))
    return Path(path)


_Event = tuple[float, str, str]


def _events(source: Source, spans: Spans, window_bytes: int) -> Iterator[_Event | None]:
    """Yield the output split at every tick, resize and command, in the order of the log."""
    points: list[tuple[int, int, float, str, str]] = []
    for tick in source.ticks:
        if tick.offset > source.first:
            shape = f"{tick.cols}x{tick.rows}" if tick.rows else ""
            points.append((tick.offset, 0, tick.at, "r" if shape else "o", shape))
    points += [
        (record.start_offset, 1, 0.0, "m", finished(Hiding(spans).cut(record.command, 0, MARKER_CHARS)))
        for record in source.marked
    ]
    points.sort(key=lambda point: (point[0], point[1]))
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    output = _Output(_clean(source, spans, window_bytes))
    at = source.began
    for offset, _, recorded_at, code, text in points:
        at = max(at, recorded_at)
        if shown := decoder.decode((yield from output.until(offset))):
            yield at, "o", shown
        if code != "o":
            yield at, code, text
    if rest := decoder.decode((yield from output.until(source.end)), True):
        yield at, "o", rest
    if source.exit_code is not None:
        yield at, "x", str(source.exit_code)


@dataclass(frozen=True, slots=True)
class _Piece:
    """What is shown of the log from ``start`` to ``end``: its own bytes, or if ``masked`` others instead."""

    start: int
    end: int
    data: bytes
    masked: bool = False


class _Output:
    """Cleaned pieces, read up to log offsets that never decrease."""

    def __init__(self, pieces: Iterator[_Piece | None]) -> None:
        self._pieces = pieces
        self._held: _Piece | None = None

    def until(self, offset: int) -> Generator[None, None, bytes]:
        taken: list[bytes] = []
        for piece in chain((self._held,) if self._held else (), self._pieces):
            self._held = None
            if piece is None:
                yield None
                continue
            if piece.start >= offset:
                self._held = piece
                break
            if piece.end > offset and not piece.masked:
                cut = offset - piece.start
                taken.append(piece.data[:cut])
                self._held = _Piece(offset, piece.end, piece.data[cut:])
                break
            taken.append(piece.data)
        return b"".join(taken)


def _clean(source: Source, spans: Spans, window_bytes: int) -> Iterator[_Piece | None]:
    """Yield the log in order without marks, each secret replaced as a whole where it begins. None now and then."""
    position, growing = source.first, source.exit_code is None
    if position:  # the stored log may begin within a secret
        position += source.read(position, min(source.end, position + OVERLAP_BYTES)).find(b"\n") + 1
    while position < source.end:
        stop = min(source.end, position + window_bytes)
        data = source.read(position, min(source.end, stop + OVERLAP_BYTES))
        if not data:
            return
        base, position = position, position + len(data)
        parts = list(without_marks(data, source.nonce))
        yield None
        shown = b"".join(data[a:b] for a, b in parts)
        found = yield from pausing(secret_spans(shown, spans, growing and position == source.end))
        for piece in _masked(parts, data, found):
            start, end = base + piece.start, base + piece.end
            if start >= stop:
                position = start
                break
            if end > stop and not piece.masked:
                yield _Piece(start, stop, piece.data[: stop - start])
                position = stop
                break
            yield _Piece(start, end, piece.data, piece.masked)


def _masked(
    parts: Sequence[tuple[int, int]], data: bytes, secrets: Sequence[tuple[int, int, bytes]]
) -> Iterator[_Piece]:
    """Yield ``parts`` of ``data`` split at the secrets, whose positions count in the joined parts."""
    before = 0
    found = list(secrets)
    for start, end in parts:
        position = start
        while found and found[0][0] < before + end - start:
            a, b, instead = found[0]
            left, right = max(start, start + a - before), min(end, start + b - before)
            if left > position:
                yield _Piece(position, left, data[position:left])
            # A secret that a mark interrupts is written once, where it begins.
            shown = (instead if a >= before else b"") + breaks(data[left:right])
            yield _Piece(left, right, shown, masked=True)
            position = right
            if b > before + end - start:
                break
            found.pop(0)
        if position < end:
            yield _Piece(position, end, data[position:end])
        before += end - start
