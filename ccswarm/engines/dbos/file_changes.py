"""Detects writes to a SQLite file by any process."""

from __future__ import annotations

import ctypes
import os
import select
import sqlite3
from contextlib import suppress
from pathlib import Path

MODIFY, CLOSED_ON_EXEC = 0x2, os.O_NONBLOCK | os.O_CLOEXEC
POLL_SECONDS = 0.2
"""The interval of checks if the kernel does not report changes (macOS)."""

QUEUED = "SELECT 1 FROM workflow_status WHERE status IN ('ENQUEUED', 'DELAYED') LIMIT 1"


class FileChanges:
    """The ``Changes`` of ``file``, which is in WAL mode and open in this process, so writes reach its log first."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._store = sqlite3.connect(
            f"{file.as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        self._version = -1
        self._woken, self._waking = os.pipe()
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)
        self._watched = _watch(f"{file}-wal")
        if self._watched >= 0:
            self._poll.register(self._watched, select.POLLIN)

    def wait_for_change(self, seconds: float) -> bool:
        if self._changed():  # before the wait
            return True
        self._poll.poll(1000 * (seconds if self._watched >= 0 else min(seconds, POLL_SECONDS)))
        if self._watched >= 0:
            with suppress(BlockingIOError):
                os.read(self._watched, 1 << 16)
        return self._changed()

    def _changed(self) -> bool:
        before = self._version
        try:
            self._version = int(self._store.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error:
            self._version = -2
        return self._version != before

    def queued(self) -> bool:
        try:
            return self._store.execute(QUEUED).fetchone() is not None
        except sqlite3.Error:
            return True

    def wake(self) -> None:
        os.write(self._waking, b".")

    def close(self) -> None:
        self._store.close()
        for fd in (self._woken, self._waking, self._watched):
            if fd >= 0:
                os.close(fd)


def _watch(path: str) -> int:
    """Return a descriptor that becomes readable when the file is written, or -1 if there is none."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "inotify_init1"):
        return -1
    fd = int(libc.inotify_init1(CLOSED_ON_EXEC))
    if fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(path), MODIFY) < 0:
        os.close(fd)
        return -1
    return fd
