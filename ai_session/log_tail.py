"""Appends to a session's log in its owner's stead, in the same format (see ``output_log``). Standard library only."""

from __future__ import annotations

import contextlib
import os

WINDOW = 65536
RESERVE_BYTES = 1 << 20
BACKLOG_BYTES = 256 << 20


class LogTail:
    """Appends to a session's log as its owner would have: bytes first, then the committed end."""

    def __init__(self, directory: str, limit: int = BACKLOG_BYTES) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self.log = os.open(os.path.join(directory, "log"), flags, 0o600)
        try:
            self.mark = os.open(os.path.join(directory, "log.end"), flags, 0o600)
        except OSError:
            os.close(self.log)
            raise
        committed = int.from_bytes(os.pread(self.mark, 8, 0), "little")
        self.end = committed + len(os.pread(self.log, WINDOW, committed).rstrip(b"\0"))
        self.reserved = self.end
        self.limit = self.end + limit
        self.commit()

    def commit(self) -> None:
        os.pwrite(self.mark, self.end.to_bytes(8, "little"), 0)

    def room(self) -> bool:
        """True when one more chunk surely fits: it is asked before the chunk is read, so none is ever held back."""
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
        done = 0
        while done < len(data):
            done += os.pwrite(self.log, data[done:], self.end + done)
        self.end += done
        self.commit()

    def close(self) -> None:
        os.close(self.log)
        os.close(self.mark)


def reserve(fd: int, start: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, start, size)
    else:
        os.pwrite(fd, bytes(size), start)
