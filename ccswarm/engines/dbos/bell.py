"""Tells the threads that look for queued work when the file of the runs has changed, so that none looks in vain."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

QUIET_SECONDS = 2.0
"""Longest between two looks, for what becomes possible without a change: a limit of starts within a time."""

LOOKING = "queue-worker-"
"""How the names of these threads begin."""


class Doorbell:
    """What dbos waits at between two looks, in place of the event that says it is ``stopping``. It looks no more often
    than every ``seconds``, as before, but only where something was written."""

    def __init__(self, stopping: threading.Event, seconds: float) -> None:
        self._stopping, self._seconds = stopping, seconds
        self._changed = threading.Condition()
        self._count = 0
        self._heard = threading.local()

    def is_set(self) -> bool:
        """As of the event."""
        return self._stopping.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """As of the event; who looks for work waits until there may be some."""
        if not threading.current_thread().name.startswith(LOOKING):
            return self._stopping.wait(timeout)
        with self._changed:
            self._changed.wait_for(lambda: self._count != getattr(self._heard, "count", -1), QUIET_SECONDS)
            self._heard.count = self._count
        return self._stopping.is_set()

    def listen(self, file: Path) -> None:
        """Rings whenever anybody wrote to the file, in this process or another; until it is stopping."""
        store = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, isolation_level=None)
        seen = -1
        try:
            while not self._stopping.wait(self._seconds):
                now = _version(store)
                if now != seen:
                    seen = now
                    self._ring()
        finally:
            store.close()
            self._ring()

    def _ring(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()


def _version(store: sqlite3.Connection) -> int:
    """Another one after each change; -2 where it cannot be read just now."""
    try:
        return int(store.execute("PRAGMA data_version").fetchone()[0])
    except sqlite3.Error:
        return -2
