"""A recording for playback in a tab: its content in pieces, and the screen at any time.

Times in a recording are seconds of playback, in which a pause lasts for ``IDLE_SECONDS`` at most; ``clock`` is the time
(UTC seconds) at which something happened.
"""

from __future__ import annotations

import json
import os
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ai_session.terminal.screen import Screen

IDLE_SECONDS = 2.0
PIECE_BYTES = 1 << 18
"""The size of a piece in the file; it extends to the end of a line."""

MOST_FRAMES = 256
"""The most screens that are stored; with more pieces, only every second, fourth … piece has one."""

Facts = dict[str, Any]


class Event(NamedTuple):
    """One line of a recording: output (``o``), a size (``r``), a command (``m``) or the end (``x``)."""

    at: float
    clock: float
    code: str
    text: bytes


class Piece(NamedTuple):
    """The beginning of a piece: its position in the file, and the times there. ``shown`` counts bytes of output."""

    start: int
    at: float
    played: float
    clock: float
    shown: int


class Frame(NamedTuple):
    """The output that draws the screen at the beginning of a piece."""

    piece: int
    rows: int
    cols: int
    ansi: bytes


class Mark(NamedTuple):
    """Where a command began: the time, the piece, and how many of its events come before."""

    at: float
    piece: int
    events: int


class Recording:
    """An asciicast v3 that began at ``began`` by the clock and has a marker for each of ``commands``, which are ids.

    The file is removed immediately and read on demand. All methods block, for one thread at a time. The constructor
    raises OSError, and ValueError for another format.
    """

    def __init__(
        self,
        path: Path,
        began: float,
        commands: Sequence[str] = (),
        *,
        piece_bytes: int = PIECE_BYTES,
        most_frames: int = MOST_FRAMES,
    ) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            path.unlink()
            self._began = began
            self._commands: dict[str, Mark] = {}
            self._pauses = array("d")
            self._ends = array("d")
            self._cut = array("d")
            self._pieces: list[Piece] = []
            self._frames: list[Frame] = []
            self._index(piece_bytes, most_frames, iter(commands))
        except BaseException:
            os.close(self._fd)
            raise

    def _index(self, piece_bytes: int, most_frames: int, commands: Iterator[str]) -> None:
        with open(os.dup(self._fd), "rb") as file:
            line = file.readline()
            term = json.loads(line)["term"]
            self._screen = Screen(int(term["rows"]), int(term["cols"]))
            start = self._end = len(line)
            played = 0.0
            clock = self._began
            shown = 0
            every = 1
            count = 0
            for line in file:
                event = _event(line, played, clock)
                if not self._pieces or self._end - start >= piece_bytes:
                    start, number = self._end, len(self._pieces)
                    if number % every == 0:
                        self._frames.append(Frame(number, self._screen.rows, self._screen.cols, self._screen.ansi()))
                    if len(self._frames) > most_frames:
                        self._frames = self._frames[::2]
                        every = 2 * every
                    self._pieces.append(Piece(start, event.at if number else 0.0, played, clock, shown))
                    count = 0
                if event.code == "m":
                    self._commands[next(commands, "")] = Mark(event.at, len(self._pieces) - 1, count)
                count += 1
                if event.clock - clock > IDLE_SECONDS:
                    before = clock - self._began - played
                    for column, value in ((self._pauses, clock), (self._ends, event.clock), (self._cut, before)):
                        column.append(value)
                played, clock = event.at, event.clock
                shown += _draw(self._screen, event)
                self._end += len(line)
        self._seconds = played
        self._shown = shown
        if not self._pieces:
            self._pieces.append(Piece(start, 0.0, 0.0, self._began, 0))
            self._frames.append(Frame(0, self._screen.rows, self._screen.cols, self._screen.ansi()))

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def facts(self) -> Facts:
        """Return its length in seconds, bytes of output and pieces, when it began, and the time of each command."""
        return {
            "seconds": self._seconds,
            "began": self._began,
            "shown": self._shown,
            "pieces": len(self._pieces),
            "commands": {name: mark.at for name, mark in self._commands.items()},
        }

    def piece(self, number: int) -> tuple[Facts, bytes]:
        """Return a piece's events, each with time, clock, code and length, and their bytes. Raises IndexError."""
        events = list(self._events(number))
        return {"events": [[one.at, one.clock, one.code, len(one.text)] for one in events]}, b"".join(
            one.text for one in events
        )

    def screen(self, at: float, command: str = "") -> tuple[Facts, bytes]:
        """Return what draws the screen at that time, or before a command, and the position of what follows: a piece,
        and how many events to skip. Raises KeyError for an unknown command."""
        at = min(max(at, 0.0), self._seconds)
        number = max(0, bisect_right(self._pieces, at, key=lambda one: one.at) - 1)
        most = None
        if command:
            at, number, most = self._commands[command]
        frame = self._frames[max(0, bisect_right(self._frames, number, key=lambda one: one.piece) - 1)]
        screen = Screen(frame.rows, frame.cols)
        screen.feed(frame.ansi)
        for before in range(frame.piece, number):
            for event in self._events(before):
                _draw(screen, event)
        skip, piece = 0, self._pieces[number]
        then, clock, shown = piece.played, piece.clock, piece.shown
        for event in self._events(number):
            if event.at > at or skip == most:
                break
            skip += 1
            then, clock = event.at, event.clock
            shown += _draw(screen, event)
        facts = {
            "at": at,
            "clock": clock + at - then,
            "shown": shown,
            "piece": number,
            "skip": skip,
            "rows": screen.rows,
            "cols": screen.cols,
        }
        return facts, screen.ansi()

    def positions(self, clocks: Sequence[float]) -> list[float]:
        """Return the playback times of these clock times."""
        return [min(max(self._position(clock), 0.0), self._seconds) for clock in clocks]

    def _position(self, clock: float) -> float:
        last = bisect_right(self._pauses, clock) - 1
        if last < 0:
            return clock - self._began
        pause, end = self._pauses[last], self._ends[last]
        left_out = max(0.0, min(clock, end) - pause - IDLE_SECONDS)
        if clock >= end:
            left_out = end - pause - IDLE_SECONDS
        return clock - self._began - self._cut[last] - left_out

    def _events(self, number: int) -> Iterator[Event]:
        piece = self._pieces[number]
        end = self._pieces[number + 1].start if number + 1 < len(self._pieces) else self._end
        played, clock = piece.played, piece.clock
        for line in os.pread(self._fd, end - piece.start, piece.start).splitlines():
            event = _event(line, played, clock)
            played, clock = event.at, event.clock
            yield event


def _event(line: bytes, played: float, clock: float) -> Event:
    gap, code, text = json.loads(line)
    return Event(played + min(gap, IDLE_SECONDS), clock + gap, code, text.encode("utf-8", "replace"))


def _draw(screen: Screen, event: Event) -> int:
    """Draw an event, and return how many bytes of output it has."""
    if event.code == "r":
        cols, _, rows = event.text.partition(b"x")
        screen.resize(int(rows), int(cols))
    elif event.code == "o":
        screen.feed(event.text)
        screen.replies()
        return len(event.text)
    return 0
