"""Appends to a session's log in place of its owner, in the same format (see terminal/log). Standard library only."""

from __future__ import annotations

import contextlib
import errno
import os

WINDOW = 65536
RESERVE_BYTES = 1 << 20
RELEASE_BYTES = 1 << 20
"""Space is released in steps of this size: punching 1 MiB costs about 0.1 ms."""

RETAIN_BYTES = 64 << 20
BACKLOG_BYTES = 64 << 20
"""The most that waits for an owner to read it: it processes that much in a few tenths of a second."""

KEEP_SIZE, PUNCH_HOLE = 1, 2


class LogTail:
    """Appends to a session's log as its owner would: bytes first, then the committed end.

    Like the owner, it retains the newest ``retain_bytes`` of the log. It never releases what the owner has not read, so
    that it has ``room`` for that much only, and for BACKLOG_BYTES at most.
    """

    def __init__(self, directory: str, retain_bytes: int = RETAIN_BYTES) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self.log = os.open(os.path.join(directory, "log"), flags, 0o600)
        try:
            self.mark = os.open(os.path.join(directory, "log.end"), flags, 0o600)
        except OSError:
            os.close(self.log)
            raise
        committed = int.from_bytes(os.pread(self.mark, 8, 0), "little")
        self.end = committed + len(os.pread(self.log, WINDOW, committed).rstrip(b"\0"))
        self.reserved = self.released = self.begin = self.end
        with contextlib.suppress(OSError):
            self.released = os.lseek(self.log, 0, os.SEEK_DATA)
        self.retain_bytes = retain_bytes
        self.limit = self.end + min(retain_bytes, BACKLOG_BYTES)
        self.commit()

    def commit(self) -> None:
        os.pwrite(self.mark, self.end.to_bytes(8, "little"), 0)

    def room(self) -> bool:
        """Report whether one more chunk certainly fits. Call it before reading one, so that no data is held back."""
        if self.end + WINDOW > self.limit:
            return False
        for size in (RESERVE_BYTES, WINDOW):
            if self.end + WINDOW <= self.reserved:
                break
            with contextlib.suppress(OSError):
                reserve(self.log, self.end, size)
                self.reserved = self.end + size
        return self.end + WINDOW <= self.reserved

    def append(self, data: bytes) -> None:
        write_all(self.log, data, self.end)
        self.end += len(data)
        self.commit()
        if self.end - self.released >= self.retain_bytes + RELEASE_BYTES:
            self.release()

    def release(self) -> None:
        """Release space in steps, as long as the file system supports it."""
        upto = min(self.end - self.retain_bytes, self.begin) // RELEASE_BYTES * RELEASE_BYTES
        if upto > self.released:
            if allocate(self.log, KEEP_SIZE | PUNCH_HOLE, self.released, upto - self.released):
                self.retain_bytes = 1 << 62
            self.released = upto

    def close(self) -> None:
        os.close(self.log)
        os.close(self.mark)


def reserve(fd: int, start: int, size: int) -> None:
    """Allocate disk space. Raises OSError if the disk is full."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, start, size)
    else:
        write_all(fd, bytes(size), start)


def write_all(fd: int, data: bytes | bytearray, position: int) -> None:
    with memoryview(data) as view:
        done = 0
        while done < len(view):
            done += os.pwrite(fd, view[done:], position + done)


def allocate(fd: int, mode: int, start: int, size: int) -> int:
    """Call Linux's fallocate and return the error number, 0 on success."""
    import ctypes  # a third of a holder's start time

    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate64", None) or getattr(libc, "fallocate", None)
    if fallocate is None:
        return errno.ENOSYS
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return ctypes.get_errno() if fallocate(fd, mode, start, size) else 0
