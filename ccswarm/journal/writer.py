"""The writer of the journal: append-only records, one file for each worker, chained so that changes are detected.

When ``append`` returns, the record has been passed to the kernel: it survives the end of the process.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import platform
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ccswarm.errors import ConfigInvalid, JournalBroken, OperatorError, StorageFull
from ccswarm.journal.chain import GENESIS, RECOVER, Record, is_torn, seal
from ccswarm.journal.files import end_of, file_of, read
from ccswarm.journal.verify import CALL_PREFIX, JoinReport, Report, join, verify

__all__ = ["CALL_PREFIX", "JoinReport", "Journal", "Record", "Report", "join", "persons_journal", "read", "verify"]

MOST_PENDING = 4096
"""The most records held in memory while they cannot be written. Of any more, only the number is recorded."""

_WORKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class Journal:
    """The only writer of ``<directory>/<worker_id>.jsonl`` (modes 0700 and 0600). Any thread may use it.

    An unfinished line of an earlier process stays in the file, and a record ``journal.recover`` reports it. Raises
    ConfigInvalid for an id that cannot be a file name, JournalBroken if another process writes as this worker or the
    file cannot be used, and StorageFull.
    """

    def __init__(self, directory: Path, worker_id: str) -> None:
        if not _WORKER.match(worker_id):
            raise ConfigInvalid(
                f"{worker_id[:140]!r} is not a valid worker name", suggestion="use letters, digits, dots, - and _"
            )
        self.worker_id = worker_id
        self._path = file_of(directory, worker_id)
        self._lock = threading.RLock()
        self._pending: list[tuple[str, dict[str, Any]]] = []
        self._lost = 0
        self._fd = -1
        try:
            self._open(directory)
            self.append("journal.open", pid=os.getpid(), host=platform.node())
        except BaseException:
            if self._fd >= 0:
                os.close(self._fd)
            raise

    @property
    def head(self) -> tuple[int, str]:
        """The number and hash of the newest record, for ``verify`` to check later."""
        return self._seq, self._head

    def append(self, event: str, /, *, sync: bool = False, **facts: Any) -> int:
        """Write a record and return its number. ``facts`` are written as JSON: long text is cut, other types are named.
        With ``sync`` the call blocks until the record also survives a power cut. Raises StorageFull or JournalBroken;
        the record then counts as not written, though it may be in the file if only ``sync`` failed."""
        with self._lock:
            while self._pending:
                pending, pending_facts = self._pending[0]
                self._write(pending, pending_facts)
                del self._pending[0]
            if self._lost:
                self._write("journal.lost", {"records": self._lost})
                self._lost = 0
            self._write(event, facts)
            if sync:
                self._translate_errors(_sync, self._fd)
            return self._seq

    def note(self, event: str, /, **facts: Any) -> None:
        """Write a record of something that has already happened. Never raises. If the record cannot be written now, it
        is held in memory and written before the next one."""
        with self._lock:
            try:
                self.append(event, **facts)
            except OperatorError:
                if len(self._pending) < MOST_PENDING:
                    self._pending.append((event, facts))
                else:
                    self._lost += 1

    def close(self) -> None:
        """Write a close record and close the file. Further calls do nothing."""
        if self._fd < 0:
            return
        self.note("journal.close")
        with suppress(OSError):
            _sync(self._fd)
        os.close(self._fd)
        self._fd = -1

    def _open(self, directory: Path) -> None:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            directory.chmod(0o700)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self._path, flags, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._resume()
        except BlockingIOError:
            raise JournalBroken(
                f"another process writes the journal of worker {self.worker_id}",
                suggestion="give each worker its own id",
            ) from None
        except OSError as error:
            raise self._problem(error) from error

    def _resume(self) -> None:
        """Find where the chain continues, and which bytes after that must be reported."""
        end = end_of(self._path)
        self._seq, self._head = (end.last.record.seq, end.last.digest) if end.last else (0, GENESIS)
        self._at = end.last.record.at if end.last else 0.0
        self._gap = b"" if end.terminated else b"\n"
        left = end.left.removesuffix(b"\n")
        self._torn = {"bytes": len(left), "sha256": hashlib.sha256(left).hexdigest()} if is_torn(left) else None

    def _write(self, event: str, facts: dict[str, Any]) -> None:
        if self._fd < 0:
            raise JournalBroken(f"the journal of worker {self.worker_id} is closed")
        if self._seq < 0:
            self._translate_errors(self._resume)
        if self._torn:
            torn = self._torn
            self._torn = None
            self._put(RECOVER, torn)
        self._put(event, facts)

    def _put(self, event: str, facts: dict[str, Any]) -> None:
        at = max(time.time_ns() // 1000 / 1e6, self._at)
        seq, head = self._seq + 1, self._head
        line, digest = seal(Record(self.worker_id, seq, at, event, facts), head)
        self._seq = -1  # until the whole line is written, only the file shows where the chain continues
        line = self._gap + line
        written = self._translate_errors(os.write, self._fd, line)
        if written != len(line):
            raise StorageFull("the disk is full: the journal cannot be written", suggestion="free some space")
        self._gap = b""
        self._seq = seq
        self._head = digest
        self._at = at

    def _translate_errors(self, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except OSError as error:
            raise self._problem(error) from error

    def _problem(self, error: OSError) -> OperatorError:
        what = f"the journal {self._path} cannot be written: {error.strerror or error}"
        if error.errno in _FULL:
            return StorageFull(what, suggestion="free some space")
        return JournalBroken(what, suggestion="the directory must belong to you and be writable")


def persons_journal(directory: Path) -> Journal:
    """Open the journal of what the user does on this machine. All such processes share one file; one that runs at the
    same time as another gets its own."""
    name = f"{platform.node() or 'host'}-call"
    try:
        return Journal(directory, name)
    except JournalBroken:
        return Journal(directory, f"{name}-{os.getpid()}")
