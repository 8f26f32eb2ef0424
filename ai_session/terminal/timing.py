"""When each byte of a session's log arrived: a few bytes next to the log, from which recordings take their pace."""

from __future__ import annotations

import contextlib
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from ai_session.system.turns import Steps

ENTRY = struct.Struct("<QQHH")
STEP_SECONDS = 0.01
"""Output that arrives within this time after an entry belongs to it: no person sees a finer pace."""

MAX_BYTES = 4 << 20
"""About 200,000 entries. Beyond that, those of expired output are removed first, then every second one."""

_ENTRIES = 2000
"""Read in one step, which takes 2 ms."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The log had reached ``offset`` at ``at`` (UTC seconds). With ``rows``, the terminal got that size then."""

    at: float
    offset: int
    rows: int = 0
    cols: int = 0


class Timing:
    """Appends ticks. Those that cannot be written are dropped: a recording is then coarser, never wrong.

    ``full`` says that there are more than MAX_BYTES; then call ``thin``.
    """

    def __init__(self, path: Path) -> None:
        self.full = False
        self._path = path
        self._last = 0.0
        self._fd = -1
        self._size = 0
        with contextlib.suppress(OSError):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            self._size = os.fstat(self._fd).st_size

    def note(self, offset: int) -> None:
        """Record that output up to ``offset`` has arrived."""
        now = time.time()
        if now - self._last >= STEP_SECONDS or now < self._last:
            self._last = now
            self._write(Tick(now, offset))

    def resized(self, offset: int, rows: int, cols: int) -> None:
        """Record that the terminal has another size."""
        self._write(Tick(time.time(), offset, rows, cols))

    def _write(self, tick: Tick) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                self._size += os.write(self._fd, _pack(tick))
                self.full = self._size > MAX_BYTES

    def thin(self, first: int) -> Steps[None]:
        """Remove the ticks of output before ``first`` and every second other one. Ticks added meanwhile are kept."""
        data = _read(self._path)
        ticks = yield from _ticks(data)
        remaining = [tick for tick in ticks if tick.offset >= first or tick.rows]
        yield
        while len(remaining) * ENTRY.size > MAX_BYTES // 2:
            remaining = [tick for number, tick in enumerate(remaining) if number % 2 or tick.rows]
            if all(tick.rows for tick in remaining):
                remaining = remaining[-(MAX_BYTES // 4 // ENTRY.size) :]
            yield
        packed: list[bytes] = []
        for first_entry in range(0, len(remaining), _ENTRIES):
            packed.append(b"".join(map(_pack, remaining[first_entry : first_entry + _ENTRIES])))
            yield
        self.full = False
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                new = self._path.with_name(self._path.name + ".new")
                fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
                os.write(fd, b"".join((*packed, _read(self._path)[len(data) :])))
                new.rename(self._path)
                os.close(self._fd)
                self._fd = fd
                self._size = os.fstat(fd).st_size

    def close(self) -> None:
        """Release the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_ticks(path: Path) -> Steps[list[Tick]]:
    """Return all ticks in order, without an incomplete last one; offsets never decrease."""
    return (yield from _ticks(_read(path)))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _ticks(data: bytes) -> Steps[list[Tick]]:
    ticks: list[Tick] = []
    offset = 0
    for at, reached, rows, cols in ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size]):
        offset = max(offset, reached)
        ticks.append(Tick(at / 1e6, offset, rows, cols))
        if len(ticks) % _ENTRIES == 0:
            yield
    return ticks


def _pack(tick: Tick) -> bytes:
    return ENTRY.pack(int(tick.at * 1e6), tick.offset, tick.rows, tick.cols)
