"""What happened, as it happened: append-only records, a file for each worker, chained so that changes are found.

A record is on its way to the disk when ``append`` returns, and survives the end of the process by any means.
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

MOST_KEPT = 4096
"""Records that wait in memory for room; of more than these only the number is kept."""

_WORKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_sync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)


class Journal:
    """The one writer of ``<directory>/<worker_id>.jsonl`` (modes 0700 and 0600); any thread may use it.

    Unfinished bytes of an earlier process stay where they are, and a record ``journal.recover`` reports them.
    Raises ConfigInvalid for an id that is no file name, JournalBroken where another process writes as this worker or
    the file cannot be used, StorageFull.
    """

    def __init__(self, directory: Path, worker_id: str) -> None:
        if not _WORKER.match(worker_id):
            raise ConfigInvalid(
                f"{worker_id[:140]!r} cannot name a worker", suggestion="use letters, digits, dots, - and _"
            )
        self.worker_id = worker_id
        self._path = file_of(directory, worker_id)
        self._lock = threading.RLock()
        self._kept: list[tuple[str, dict[str, Any]]] = []
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
        """Number and hash of the newest record: what somebody outside may keep, for ``verify``."""
        return self._seq, self._head

    def append(self, event: str, /, *, sync: bool = False, **facts: Any) -> int:
        """Write a record and return its number. With ``sync`` it is safe from a power cut too, and the caller's thread
        is held up until it is. ``facts`` are written as JSON: long text and what JSON does not have are cut or named.

        Raises StorageFull or JournalBroken; then it does not count as written, though it may be there when only
        ``sync`` failed.
        """
        with self._lock:
            while self._kept:
                kept, its_facts = self._kept[0]
                self._write(kept, its_facts)
                del self._kept[0]
            if self._lost:
                self._write("journal.lost", {"records": self._lost})
                self._lost = 0
            self._write(event, facts)
            if sync:
                self._failing(_sync, self._fd)
            return self._seq

    def note(self, event: str, /, **facts: Any) -> None:
        """As ``append``, for what has happened already: where it cannot be written it is kept, and written before the
        next record. Never raises."""
        with self._lock:
            try:
                self.append(event, **facts)
            except OperatorError:
                if len(self._kept) < MOST_KEPT:
                    self._kept.append((event, facts))
                else:
                    self._lost += 1

    def close(self) -> None:
        """End the file as a process does that ends in order. A second time does nothing."""
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
        """Find where the chain continues, and what to report about bytes after that."""
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
            self._failing(self._resume)
        if self._torn:
            torn = self._torn
            self._torn = None
            self._put(RECOVER, torn)
        self._put(event, facts)

    def _put(self, event: str, facts: dict[str, Any]) -> None:
        at = max(time.time_ns() // 1000 / 1e6, self._at)
        seq, head = self._seq + 1, self._head
        line, digest = seal(Record(self.worker_id, seq, at, event, facts), head)
        self._seq = -1  # until it is written as a whole, only the file knows where the chain continues
        line = self._gap + line
        written = self._failing(os.write, self._fd, line)
        if written != len(line):
            raise StorageFull("the disk is full: the journal cannot be written", suggestion="free some space")
        self._gap = b""
        self._seq = seq
        self._head = digest
        self._at = at

    def _failing(self, function: Callable[..., Any], *given: Any) -> Any:
        try:
            return function(*given)
        except OSError as error:
            raise self._problem(error) from error

    def _problem(self, error: OSError) -> OperatorError:
        what = f"the journal {self._path} cannot be written: {error.strerror or error}"
        if error.errno in _FULL:
            return StorageFull(what, suggestion="free some space")
        return JournalBroken(what, suggestion="the directory must belong to you and be writable")


def persons_journal(directory: Path) -> Journal:
    """One file for what people do on a machine, but for what happens at the same time: it has one writer."""
    name = f"{platform.node() or 'host'}-call"
    try:
        return Journal(directory, name)
    except JournalBroken:
        return Journal(directory, f"{name}-{os.getpid()}")
