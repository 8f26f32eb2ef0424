"""The files of the audit log: segments ``audit-000001.jsonl`` … of whole lines, and disk space reserved for them."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentwire import chain
from ai_session.audit.chain import CHECKPOINT_RECORDS, GENESIS, Anchor, Report, Verifier, unseal
from ai_session.errors import AuditBroken

RESERVE_BYTES = 1 << 20
"""Reserved after the end of the newest segment, so that reading and closing are recorded even on a full disk."""


_KEEP_SIZE = 1
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

_sync = getattr(os, "fdatasync", os.fsync)


def segments(directory: Path) -> list[Path]:
    """Return the segments, oldest first."""
    return sorted(path for path in directory.glob("audit-*.jsonl") if path.stem[6:].isdigit())


def number(segment: Path) -> int:
    """Return the segment's number."""
    return int(segment.stem[6:])


def lines(directory: Path) -> Iterator[bytes]:
    """Yield every whole line in order, valid or not."""
    for path in segments(directory):
        with path.open("rb") as file:
            yield from (line for line in file if line.endswith(b"\n"))


def last_lines(directory: Path, count: int) -> list[bytes]:
    """Return the newest ``count`` lines, oldest first."""
    found: deque[bytes] = deque(maxlen=count)
    for path in reversed(segments(directory)):
        with path.open("rb") as file:
            older = deque((line for line in file if line.endswith(b"\n")), maxlen=count - len(found))
        found.extendleft(reversed(older))
        if len(found) == count:
            break
    return list(found)


def records(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the records in those lines whose hash is correct."""
    return (record for line in lines if (record := unseal(line)))


def verify(
    directory: Path, check: Callable[[str, bytes, str], bool], *, key: str = "", anchors: Sequence[Anchor] = ()
) -> Report:
    """Read and verify the whole log, also while a daemon writes it. Raises OSError."""
    verifier = Verifier(check, key=key, anchors=anchors)
    paths = segments(directory)
    for path in paths:
        with path.open("rb") as file:
            for count, line in enumerate(file, 1):
                if line.endswith(b"\n"):
                    verifier.line(f"{path.name}:{count}", line)
                else:
                    verifier.torn(path.name, len(line), last=path == paths[-1])
    return verifier.finish()


@dataclass(frozen=True, slots=True)
class End:
    """The end of a segment: its newest records, from a checkpoint on, and the bytes after the last newline."""

    records: list[dict[str, Any]]
    size: int
    torn: bytes


def read_end(segment: Path) -> End:
    """Read a segment backwards, no further than its newest checkpoint."""
    with segment.open("rb") as file:
        found, torn = list[dict[str, Any]](), b""
        for data, complete in chain.ends(file):
            whole, _, torn = data.rpartition(b"\n")
            lines = whole.split(b"\n")[0 if complete else 1 :] if whole else []
            found = [record for line in lines if (record := unseal(line + b"\n"))]
            enough = any(record.get("event") == "audit.checkpoint" for record in found)
            if enough or len(found) > CHECKPOINT_RECORDS:
                break
        return End(found, file.tell() - len(torn), torn)


def unfinished(records: Sequence[dict[str, Any]]) -> dict[int, tuple[str, str]]:
    """Return the calls that have not ended: number of the begin record → call, tool. ``records`` begin with a
    checkpoint, which lists those unfinished by then."""
    found: dict[int, tuple[str, str]] = {}
    for record in records:
        event = record.get("event")
        if event == "audit.checkpoint":
            found = {}
            with suppress(TypeError, ValueError, OverflowError):  # validly sealed, but not by this program
                found = {int(seq): (str(call), str(tool)) for seq, call, tool in record.get("begun", ())}
        elif event == "tool.start":
            found[record["seq"]] = (str(record.get("call", "")), str(record.get("tool", "")))
        elif event == "tool.end" and isinstance(start := record.get("start"), int):
            found.pop(start, None)
    return found


class Writer:
    """The end of the log. ``seq`` and ``head`` are those of the last record on disk when it was opened; ``unfinished``
    are the calls without an end record.

    Raises AuditBroken if another process writes the log, OSError if the directory cannot be used.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AuditBroken(
                    f"another process writes the audit log in {directory}", suggestion="ai-session daemon status"
                ) from None
            self.waiting = bytearray()
            """Lines that are not written yet because the disk is full."""
            self._unsynced = bytearray()
            self._roll_back = False
            self._reserved = 0
            self.problem = ""
            """Why records cannot be stored safely, or ``""``."""
            self._recover(segments(directory))
        except BaseException:
            os.close(self._lock)
            raise

    def _recover(self, paths: list[Path]) -> None:
        self.torn: dict[str, Any] | None = None
        """The incomplete record that was moved elsewhere: file, bytes, sha256."""
        self.seq = 0
        self.head = GENESIS
        self.unsigned = 0
        self.number = number(paths[-1]) if paths else 1
        ends = [read_end(paths[-1])] if paths else []
        for path in reversed(paths[:-1]):
            if ends[-1].records:
                break
            ends.append(read_end(path))
        newest = ends[-1].records if ends else []
        if newest:
            self.seq = newest[-1]["seq"]
            self.head = newest[-1]["hash"]
            signed = [i for i, record in enumerate(newest) if record.get("event") == "audit.checkpoint"]
            self.unsigned = len(newest) - 1 - signed[-1] if signed else len(newest)
            if not signed and len(ends) < len(paths):
                newest = read_end(paths[-1 - len(ends)]).records + newest  # the newest segment had only just begun
        self.unfinished = unfinished(newest)
        self.fd = self._open(self.path, os.O_CREAT)
        self.size = ends[0].size if ends else 0
        if ends and ends[0].torn:
            self._set_aside(ends[0].torn)
        os.fsync(self._lock)
        self.reserve()

    @property
    def path(self) -> Path:
        """The newest segment."""
        return self.directory / f"audit-{self.number:06}.jsonl"

    def _open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

    def _set_aside(self, torn: bytes) -> None:
        taken = len(list(self.directory.glob(f"{self.path.name}.torn.*")))
        aside = self.path.with_name(f"{self.path.name}.torn.{taken + 1}")
        facts: dict[str, Any] = {"bytes": len(torn), "sha256": hashlib.sha256(torn).hexdigest()}
        try:
            fd = self._open(aside, os.O_CREAT | os.O_EXCL)
            try:
                os.write(fd, torn)
                os.fsync(fd)
            finally:
                os.close(fd)
            facts["file"] = aside.name
        except OSError as error:
            facts["not_kept"] = error.strerror
        os.ftruncate(self.fd, self.size)
        self.torn = facts

    def write(self, line: bytes) -> None:
        """Append a line, which stays in memory while the disk is full. Never raises."""
        self.waiting += line
        self.flush()

    def flush(self) -> None:
        """Try to write waiting lines again; ``problem`` is set if that fails."""
        if not self.waiting:
            return
        try:
            if self._roll_back:
                os.ftruncate(self.fd, self.size)
                self._roll_back = False
            while self.waiting:
                written = os.write(self.fd, self.waiting)
                self._unsynced += self.waiting[:written]
                self.size += written
                del self.waiting[:written]
        except OSError as error:
            self.problem = error.strerror or str(error)

    @property
    def unsynced(self) -> int:
        """The number of written bytes that may not be on the disk yet."""
        return len(self._unsynced)

    def sync(self) -> str:
        """Sync what was written so far; return why that failed, or an empty text. May block for long: use a thread."""
        if (fd := self.fd) < 0:
            return "closed"
        try:
            _sync(fd)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def synced(self, count: int, problem: str) -> None:
        """Record the result of a ``sync`` that began when ``count`` bytes were unsynced."""
        self.problem = problem
        if not problem:
            del self._unsynced[:count]
            return
        # After a failed sync the kernel marks the lost pages clean: all unsynced bytes are written again.
        self.size -= len(self._unsynced)
        self._roll_back = True
        self.waiting[:0] = self._unsynced
        self._unsynced.clear()

    @property
    def short(self) -> bool:
        """Whether less than half of the reserve is left."""
        return 0 <= self._reserved < self.size + RESERVE_BYTES // 2

    def reserve(self) -> str:
        """Reserve space after the end; return why that failed. Where that is not supported there is no reserve."""
        if not self.short:
            return ""
        try:
            _allocate(self.fd, self.size, RESERVE_BYTES)
            self._reserved = self.size + RESERVE_BYTES
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                return error.strerror or str(error)
            self._reserved = -1
        return ""

    def rotate(self) -> None:
        """Start a new segment; the old one is then safe. Raises OSError without having changed anything."""
        if self.waiting:
            raise OSError(errno.EAGAIN, "records wait for room")
        _sync(self.fd)
        self._unsynced.clear()
        self.number += 1
        try:
            fd = self._open(self.path, os.O_CREAT | os.O_EXCL)
        except OSError:
            self.number -= 1
            raise
        with suppress(OSError):
            os.ftruncate(self.fd, self.size)  # releases the reserve
        os.close(self.fd)
        self.fd = fd
        self.size = 0
        self._reserved = min(self._reserved, 0)
        with suppress(OSError):
            os.fsync(self._lock)

    def remove(self, paths: Sequence[Path]) -> None:
        """Remove segments whose end is stated in a record that is safely on the disk."""
        for path in paths:
            path.unlink(missing_ok=True)
        os.fsync(self._lock)

    def close(self) -> None:
        """Write and sync what is possible, release the reserve and allow another writer."""
        self.flush()
        with suppress(OSError):
            if not self._roll_back:
                os.ftruncate(self.fd, self.size)
            _sync(self.fd)
        os.close(self.fd)
        os.close(self._lock)
        self.fd = -1


def _allocate(fd: int, offset: int, size: int) -> None:
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "no reserve here")
    import ctypes  # 2 ms, needed by the daemon only

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(fd, _KEEP_SIZE, ctypes.c_int64(offset), ctypes.c_int64(size)):
        raise OSError(number := ctypes.get_errno(), os.strerror(number))
