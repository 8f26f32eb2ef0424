"""A terminal's output: append-only, addressed by offset, bounded by retention, safe if the reader is killed.

Files (every program that appends to a mapped log must follow this, and only one may append at a time)::

    log       byte N of the file is byte N of the output. The space behind the end is reserved ahead
              (posix_fallocate, so a full disk is an error and not SIGBUS) and reads as NUL until output fills it.
    log.end   the first 8 bytes: the committed end, unsigned, little-endian. Never truncated, written by one 8-byte
              write after the bytes themselves.

    To append   read at most READ_BYTES with one system call directly to offset ``end`` of ``log``, then write ``end``.
    To resume   a killed writer may have stored one chunk and not committed it, so the true end is the last byte that
                is not NUL in log[committed : committed + READ_BYTES]. (NULs at the end of such a chunk are not
                recognized.)
    Lost        bytes that found no room on the disk are never written: ``end`` advances and the file keeps a hole.
    Released    bytes older than the retention limit are punched out from the front; offsets stay the same.

A followed log is the file ``log`` alone: another process appends, and its size is its end. Space behind the end is
reserved ahead there too, if the file system can do that without changing the size. The appending process also releases
the oldest bytes if this one does not, perhaps before they were read here.
"""

from __future__ import annotations

import errno
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from ai_session.errors import OutputExpired, SessionNotFound, StorageFull
from ai_session.system.log_tail import KEEP_SIZE, PUNCH_HOLE, RELEASE_BYTES, RETAIN_BYTES, allocate, reserve, write_all

READ_BYTES = 65536
"""The most that one call to a source may store, and how far recovery searches behind the committed end."""

FOLLOW_BYTES = 256 * 1024
FIRST_RESERVE_BYTES = 64 * 1024
RESERVE_BYTES = 1 << 20
MEMORY_BYTES = 1 << 20
"""The least that is kept in memory while the disk is full."""

_MAP_FLAGS = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
"""Pages are mapped before output is read: a reader killed in a page fault that waits for the disk lost 64 bytes in 1 of
600 kills on ext4."""

_PAGE = mmap.ALLOCATIONGRANULARITY

Source = Callable[[memoryview], int]
"""Stores output in the buffer with one system call; returns the number of bytes, 0 if there is none now."""


class OutputLog(ABC):
    """The common part of both kinds. Not thread-safe.

    ``end`` is the offset behind the last byte, ``first`` that of the oldest byte still stored. Bytes that exist when a
    log is opened count as read: ``fill`` returns only later ones. The owner sets ``losing`` while output does not even
    reach the log.
    """

    def __init__(self, path: Path, *, retain_bytes: int = RETAIN_BYTES) -> None:
        self.path = path
        self.end = 0
        self.first = 0
        self.losing = False
        self._retain_bytes = retain_bytes
        self._moved = 0
        self._lost: list[tuple[int, int]] = []
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @property
    def closed(self) -> bool:
        """Whether the log has been closed."""
        return self._fd < 0

    @property
    def size(self) -> int:
        """The offset behind the last existing byte, including those not read yet."""
        return self.end

    @abstractmethod
    def fill(self, source: Source | None = None) -> bytes:
        """Read one chunk and return it; ``b""`` if there is none. It ends at ``end``, and begins where ``end`` was
        before unless what was between has been released."""

    @abstractmethod
    def rewind(self, offset: int) -> None:
        """Read again what follows ``offset``, if bytes may be released before they were processed."""

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from ``start`` to ``end`` or the log's end, whichever is first. Lost bytes read as NUL.

        Raises OutputExpired if ``start`` is before ``first``, and SessionNotFound if the log has been closed.
        """
        require_kept(start, self.first)
        end = min(end, self.end)
        if start < end and self.closed:
            raise SessionNotFound(
                "the session was closed in the meantime and its output deleted",
                suggestion="list_sessions shows the open sessions",
            )
        return self._read(start, end) if start < end else b""

    def require_room(self) -> None:
        """Raise StorageFull unless READ_BYTES of output can certainly be stored now."""
        if self.losing or not self._has_room():
            raise StorageFull(
                "the disk is too full for the session's output",
                suggestion="free space on the disk of the runtime directory; meanwhile sessions can be read and closed",
            )

    def lost_bytes(self, start: int, end: int) -> int:
        """Return how many bytes of the range were lost to a full disk."""
        return sum(max(0, min(end, b) - max(start, a)) for a, b in self._lost)

    def close(self) -> None:
        """Close the files; nothing is truncated or removed. May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @abstractmethod
    def _has_room(self) -> bool: ...

    def _read(self, start: int, end: int) -> bytes:
        position = start - self._moved
        data = os.pread(self._fd, end - start, position)
        while len(data) < end - start:
            more = os.pread(self._fd, end - start - len(data), position + len(data))
            if not more:
                return data + bytes(end - start - len(data))
            data += more
        return data

    def _find_first(self) -> None:
        """Find what an earlier owner released: the hole at the file's beginning."""
        if self.end and _all_nul(self._fd, 0):
            self.first = _seek_data(self._fd, 0, self.end)

    def _release(self) -> None:
        limit = (self.end - self._retain_bytes) // RELEASE_BYTES * RELEASE_BYTES
        start = max(0, self.first - self._moved)
        if allocate(self._fd, KEEP_SIZE | PUNCH_HOLE, start, limit - self._moved - start):
            self._retain_bytes = 1 << 62
            return
        self.first = limit
        self._lost = [(max(a, limit), b) for a, b in self._lost if b > limit]

    def _lose(self, start: int, end: int) -> None:
        if start < end:
            if self._lost and self._lost[-1][1] >= start:
                start = min(start, self._lost.pop()[0])
            self._lost.append((start, end))


class MappedLog(OutputLog):
    """A log whose reader stores output directly in the page cache, so that killing it loses nothing.

    A full disk never stops it: output then goes to memory, which keeps at least ``MEMORY_BYTES`` of it, and moves to
    the file as soon as there is room again.
    """

    def __init__(self, path: Path, *, retain_bytes: int = RETAIN_BYTES) -> None:
        super().__init__(path, retain_bytes=retain_bytes)
        try:
            self._end_fd = os.open(f"{path}.end", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            os.close(self._fd)
            raise
        self._map: mmap.mmap | None = None
        self._view = memoryview(b"")
        self._base = 0
        self._limit = 0
        self._memory: bytearray | None = None
        self._memory_start = 0
        self.end = int.from_bytes(os.pread(self._end_fd, 8, 0), "little")
        uncommitted = os.pread(self._fd, READ_BYTES, self.end).rstrip(b"\0")
        self._find_lost()
        self.end += len(uncommitted)
        self._commit()
        self._find_first()

    def fill(self, source: Source | None = None) -> bytes:
        if source is None:
            return b""
        if not self._has_room():
            return self._fill_memory(source)
        at = self.end - self._base
        try:
            with self._view[at : at + READ_BYTES] as room:
                count = source(room)
                if not count:
                    return b""
                data = bytes(room[:count])
        except OSError as error:
            size = os.fstat(self._fd).st_size
            if error.errno != errno.EFAULT or size >= self._limit:
                raise
            # Another process truncated the file: the mapping has no pages behind its new end.
            self._lose(max(self.first, size), self.end)
            self._limit = 0
            return self.fill(source)
        self.end += count
        self._commit()
        if self.end - self.first >= self._retain_bytes + RELEASE_BYTES:
            self._release()
        return data

    def close(self) -> None:
        if self._fd >= 0:
            self._unmap()
            os.close(self._end_fd)
        super().close()

    def _commit(self) -> None:
        try:
            os.pwrite(self._end_fd, self.end.to_bytes(8, "little"), 0)
        except OSError:
            pass  # a full copy-on-write disk: after a kill, a chunk of about READ_BYTES is found

    def _has_room(self) -> bool:
        return self._limit - self.end >= READ_BYTES or self._make_room()

    def _make_room(self) -> bool:
        """Reserve and map the space behind ``end``; return False if the disk has none."""
        for size in _reserves(self.end):
            start = self.end if self._memory is None else self._memory_start
            try:
                reserve(self._fd, start, self.end + size - start)
                if self._memory is not None:
                    write_all(self._fd, self._memory, start)
                    self._memory = None
                self._unmap()
                self._base = self.end // _PAGE * _PAGE
                self._map = mmap.mmap(self._fd, self.end + size - self._base, _MAP_FLAGS, offset=self._base)
            except OSError:
                continue
            self._view = memoryview(self._map)
            self._limit = self.end + size
            return True
        return False

    def _unmap(self) -> None:
        self._limit = 0
        self._view.release()
        if self._map is not None:
            self._map.close()
            self._map = None

    def _fill_memory(self, source: Source) -> bytes:
        room = bytearray(READ_BYTES)
        with memoryview(room) as view:
            count = source(view)
        if not count:
            return b""
        data = bytes(room[:count])
        if self._memory is None:
            self._memory = bytearray()
            self._memory_start = self.end
        self._memory += data
        self.end += count
        if len(self._memory) >= 2 * MEMORY_BYTES:
            kept_from = self.end - MEMORY_BYTES
            self._lose(self._memory_start, kept_from)
            del self._memory[: kept_from - self._memory_start]
            self._memory_start = kept_from
        self._commit()
        return data

    def _read(self, start: int, end: int) -> bytes:
        memory = self._memory
        if memory is None or end <= self._memory_start:
            return super()._read(start, end)
        split = max(start, self._memory_start)
        kept = bytes(memory[split - self._memory_start : end - self._memory_start])
        return super()._read(start, split) + kept if start < split else kept

    def _find_lost(self) -> None:
        """Find what an earlier owner could not store: the file's holes before the committed end.

        Space reserved but not used at their edges (less than READ_BYTES) may count as stored.
        """
        position = 0
        while position < self.end:
            try:
                hole = os.lseek(self._fd, position, os.SEEK_HOLE)
            except OSError:
                hole = position  # the file ends before the committed end
            position = max(_seek_data(self._fd, hole, self.end), position + 1)
            if hole and _all_nul(self._fd, hole):
                self._lose(hole, position)

    def rewind(self, offset: int) -> None:
        """Do nothing: bytes are processed before they are released."""


class FollowedLog(OutputLog):
    """A log to which another process appends; ``fill`` reads on and ignores its source. The file may be truncated."""

    def __init__(self, path: Path, *, retain_bytes: int = RETAIN_BYTES) -> None:
        super().__init__(path, retain_bytes=retain_bytes)
        self.end = os.fstat(self._fd).st_size
        self._reserved = 0
        self._find_first()
        self._has_room()

    @property
    def size(self) -> int:
        return max(self.end, self._moved + os.fstat(self._fd).st_size)

    def rewind(self, offset: int) -> None:
        self.end = max(self.first, min(offset, self.end))

    def fill(self, source: Source | None = None) -> bytes:
        data = os.pread(self._fd, FOLLOW_BYTES, self.end - self._moved)
        if len(data) == FOLLOW_BYTES and self._skip_released():
            data = os.pread(self._fd, FOLLOW_BYTES, self.end - self._moved)
        if not data and os.fstat(self._fd).st_size < self.end - self._moved:
            # Truncated by another process: what follows is new, and what was before no longer exists.
            self.first = self._moved = self.end
            data = os.pread(self._fd, FOLLOW_BYTES, 0)
        self.end += len(data)
        if self.end - self.first >= self._retain_bytes + RELEASE_BYTES:
            self._release()
        self._has_room()
        return data

    def _skip_released(self) -> bool:
        """Report whether what was just read may have been released; ``end`` is then moved to stored bytes."""
        if self.size - self.end <= self._retain_bytes:
            return False
        kept = self._moved + _seek_data(self._fd, self.end - self._moved, self.size - self._moved)
        if kept > self.end:
            # Somewhat further, so that it is not released while it is read.
            self.first = self.end = max(kept, self.size - self._retain_bytes // 2)
            return True
        return False

    def _has_room(self) -> bool:
        if self._reserved - self.end >= READ_BYTES:
            return True
        for size in _reserves(self.end):
            if problem := allocate(self._fd, KEEP_SIZE, self.end - self._moved, size):
                if problem not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                    # Not every file system can; what finds no room is then lost at once instead of a little later.
                    self._reserved = 1 << 62
                    return True
                continue
            self._reserved = self.end + size
            return True
        return False


def require_kept(offset: int, first: int) -> None:
    """Raise OutputExpired if ``offset`` is before ``first``, the oldest offset still stored."""
    if offset < first:
        raise OutputExpired(
            f"output before offset {first} is no longer kept",
            suggestion=f"read from offset {first} on; earlier output is gone",
        )


def _reserves(end: int) -> tuple[int, int]:
    """Return how much to reserve behind ``end``: much, or at least enough."""
    return READ_BYTES + min(max(end, FIRST_RESERVE_BYTES), RESERVE_BYTES), READ_BYTES


def _seek_data(fd: int, position: int, end: int) -> int:
    """Return where the next data from ``position`` on begins; ``end`` if there is none before it."""
    try:
        return min(end, os.lseek(fd, position, os.SEEK_DATA))
    except OSError as error:
        return end if error.errno == errno.ENXIO else position


def _all_nul(fd: int, position: int) -> bool:
    """Report whether a hole reads as one: some file systems report pages not yet written back as holes."""
    return not os.pread(fd, _PAGE, position).rstrip(b"\0")
