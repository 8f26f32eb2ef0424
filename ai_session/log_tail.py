"""Appends to a session's log in its owner's stead, in the same format (see ``output_log``). Standard library only."""

from __future__ import annotations

import os

WINDOW = 65536
RESERVE_BYTES = 1 << 20
BACKLOG_BYTES = 256 << 20


class LogTail:
    """Appends to a session's log as its owner would have: bytes first, then the committed end."""

    def __init__(self, directory: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self.log = os.open(os.path.join(directory, "log"), flags, 0o600)
        self.mark = os.open(os.path.join(directory, "log.end"), flags, 0o600)
        committed = int.from_bytes(os.pread(self.mark, 8, 0), "little")
        self.start = self.end = committed + len(os.pread(self.log, WINDOW, committed).rstrip(b"\0"))
        self.reserved = self.end
        self.commit()

    def commit(self) -> None:
        os.pwrite(self.mark, self.end.to_bytes(8, "little"), 0)

    def room(self) -> bool:
        """True when one more chunk surely fits: it is asked before the chunk is read, so none is ever held back."""
        if self.end - self.start + WINDOW > BACKLOG_BYTES:
            return False
        if self.end + WINDOW > self.reserved:
            try:
                reserve(self.log, self.end, RESERVE_BYTES)
            except OSError:
                return False
            self.reserved = self.end + RESERVE_BYTES
        return True

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
