"""Detects that a process has written to a file in a directory. Standard library only."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

MODIFY, CREATE = 0x2, 0x100
EVENT = struct.Struct("iIII")
LIBC = ctypes.CDLL(None)


class FolderChanges:
    """A watch on ``folders``, which may be created later. ``fd`` becomes readable when a file in one of them is
    written; it is -1 if the kernel cannot report that. Writes to files whose names end with one of ``ignored`` do not
    count, nor does creating or removing files, which readers do."""

    def __init__(self, folders: Collection[Path], ignored: tuple[str, ...] = ()) -> None:
        self._folders = folders
        self._ignored = ignored
        self.fd = int(LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)) if hasattr(LIBC, "inotify_init1") else -1
        if self.fd >= 0 and not self._watch():
            self.close()

    def _watch(self) -> bool:
        """Watch the folders and report whether any is watched. Those watched already stay so."""
        return max(LIBC.inotify_add_watch(self.fd, os.fsencode(one), MODIFY | CREATE) for one in self._folders) >= 0

    def changed(self) -> bool:
        """Report whether something that counts was written since the last call."""
        names: list[tuple[int, str]] = []
        with suppress(BlockingIOError):
            while data := os.read(self.fd, 1 << 16):
                at = 0
                while at < len(data):
                    _, mask, _, size = EVENT.unpack_from(data, at)
                    at += EVENT.size + size
                    names.append((mask, os.fsdecode(data[at - size : at].rstrip(b"\0"))))
        if any(mask & CREATE for mask, _ in names):
            self._watch()
        return any(mask & MODIFY and not name.endswith(self._ignored or "\0") for mask, name in names)

    def close(self) -> None:
        """Stop watching."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
