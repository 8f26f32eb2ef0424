"""Changes in directories as Linux reports them, without polling. Standard library only."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

ATTRIB = 0x4
CLOSE_WRITE = 0x8
MODIFY = 0x2
MOVED_FROM = 0x40
MOVED_TO = 0x80
CREATE = 0x100
DELETE = 0x200
MOVE_SELF = 0x800
_OVERFLOW = 0x4000
_IGNORED = 0x8000
_IS_DIRECTORY = 0x40000000
_EXCEPT_UNLINKED, _IN_ADDITION = 0x04000000, 0x20000000

APPEARED = CREATE | MOVED_TO | MOVE_SELF
"""A name appeared in the directory, or the directory itself was moved."""
LISTED = APPEARED | DELETE | MOVED_FROM
"""A name appeared or disappeared. In a tree most events are temporary files, so watch few directories for this."""
WRITTEN = LISTED | ATTRIB | CLOSE_WRITE | MODIFY
"""A name appeared or disappeared, or the file behind it was changed."""
CONTENT = ATTRIB | CLOSE_WRITE | MODIFY

SHARE = 4
"""This process uses at most one part in so many of the user's watches; other programs need them, too."""
LIMIT = "/proc/sys/fs/inotify/max_user_watches"
MOST_BYTES = 1 << 20
"""The most that is read at once: the kernel queues 16,384 events before it drops some."""

_EVENT = struct.Struct("iIII")


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the directory with this watch. ``gone``: the watch has ended."""

    watch: int
    name: str
    mask: int
    gone: bool

    @property
    def directory(self) -> bool:
        """Whether the name is that of a directory."""
        return bool(self.mask & _IS_DIRECTORY)


class TooManyWatches(OSError):
    """This process has used up its share of watches, or the kernel has no more."""


class DirectoryEvents:
    """One inotify instance, for one thread at a time except for ``pending`` and ``reader``.

    Raises OSError if the system has no inotify, or no more instances.
    """

    _taken = 0
    """The number of watches of all instances in this process."""
    _counting = threading.Lock()

    def __init__(self) -> None:
        if sys.platform != "linux":
            raise OSError("only Linux reports changes of directories")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._watches: set[int] = set()
        self._closing = threading.Lock()
        self._most = _most()

    def add(self, fd: int, mask: int = APPEARED) -> int:
        """Watch the file or directory behind an open descriptor for ``mask`` in addition to earlier masks; return the
        watch.

        Changes of a file are reported whichever of its names is used. Raises TooManyWatches, OSError.
        """
        if DirectoryEvents._taken >= self._most:
            raise TooManyWatches(errno.ENOSPC, "this process has used up its share of watches")
        mask |= _EXCEPT_UNLINKED | _IN_ADDITION
        watch = self._libc.inotify_add_watch(self.fd, b"/proc/self/fd/%d" % fd, mask)
        if watch < 0:
            number = ctypes.get_errno()
            kind = TooManyWatches if number == errno.ENOSPC else OSError
            raise kind(number, os.strerror(number))
        if watch not in self._watches:
            self._watches.add(watch)
            self._count(1)
        return watch

    def remove(self, watch: int) -> None:
        """End a watch; one that has ended already is not an error."""
        self._libc.inotify_rm_watch(self.fd, watch)

    def reader(self) -> int:
        """Return a duplicate descriptor for an event loop, readable while events are pending. Only the caller closes
        it, so that no other thread can close it and reuse its number. Raises OSError."""
        with self._closing:
            return fcntl.fcntl(self.fd, fcntl.F_DUPFD_CLOEXEC, 0)

    def pending(self) -> bool:
        """Report whether there are events to read; False once closed."""
        with self._closing:
            if self.fd < 0:
                return False
            count = fcntl.ioctl(self.fd, termios.FIONREAD, b"\0\0\0\0")
        return count != b"\0\0\0\0"

    def read(self) -> tuple[list[Event], bool]:
        """Return the events since the last call, and whether they are complete. Does not block."""
        found: list[Event] = []
        whole, size = True, 0
        with suppress(BlockingIOError):
            while size < MOST_BYTES and (data := os.read(self.fd, 1 << 16)):
                size += len(data)
                for event in _events(data):
                    if event.mask & _OVERFLOW:
                        whole = False
                        continue
                    if event.gone and event.watch in self._watches:
                        self._watches.remove(event.watch)
                        self._count(-1)
                    found.append(event)
        return found, whole

    def close(self) -> None:
        """Close the instance; may be called twice. The watches end with the last descriptor, including readers."""
        with self._closing:
            if self.fd >= 0:
                os.close(self.fd)
                self.fd = -1
        self._count(-len(self._watches))
        self._watches.clear()

    def _count(self, more: int) -> None:
        with self._counting:
            DirectoryEvents._taken += more


def _events(data: bytes) -> Iterator[Event]:
    at = 0
    while at < len(data):
        watch, mask, _, size = _EVENT.unpack_from(data, at)
        at += _EVENT.size
        name = data[at : at + size].rstrip(b"\0")
        at += size
        yield Event(watch, os.fsdecode(name), mask, bool(mask & _IGNORED))


def _most() -> int:
    try:
        with open(LIMIT) as file:
            return int(file.read()) // SHARE
    except (OSError, ValueError):
        return 2048
