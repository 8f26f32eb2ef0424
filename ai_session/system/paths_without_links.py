"""Opens files in trees that others may write to: never through a link, and never blocking.

A link, a FIFO or a device in such a tree can neither lead outside of it nor keep its reader waiting.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PATH_ONLY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC
FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_OPENAT2, _BENEATH_WITHOUT_LINKS = 437, 0x8 | 0x4 | 0x2
_LONG = 4000
"""The kernel accepts paths of 4,095 bytes."""
_libc = ctypes.CDLL(None, use_errno=True)


def open_directory(path: str) -> int:
    """Open the directory at an absolute path that contains no link. Raises OSError."""
    root = os.open("/", DIRECTORY)
    try:
        return open_beneath(root, os.fsencode(path.strip("/")))
    finally:
        os.close(root)


def open_path(path: str) -> int:
    """Return an O_PATH descriptor for an absolute path. Raises OSError: ELOOP if the path contains a link."""
    root = os.open("/", PATH_ONLY)
    try:
        inner = os.fsencode(path.strip("/"))
        return (
            _open(root, inner or b".", _path_only)
            if len(inner) <= _LONG
            else _open_step_by_step(root, inner, PATH_ONLY)
        )
    finally:
        os.close(root)


def open_beneath(top: int, path: bytes) -> int:
    """Open the directory at a relative path below an open one; the empty path is that one itself. Raises OSError."""
    fd, left = top, path
    while True:
        part, left = _first_part(left)
        try:
            inner = _open(fd, part or b".", _directory)
        finally:
            if fd != top:
                os.close(fd)
        fd = inner
        if not left:
            return fd


def read_file(folder: int, name: str, most: int) -> bytes:
    """Return the first ``most`` bytes of a regular file in an open directory. Raises OSError, also for other files."""
    fd = os.open(name, os.O_RDONLY | FILE, dir_fd=folder)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", name)
        return file.read(most)


def _first_part(path: bytes) -> tuple[bytes, bytes]:
    """Return as much of a path as the kernel accepts at once, and the rest."""
    if len(path) <= _LONG:
        return path, b""
    end = path.rindex(b"/", 0, _LONG)
    return path[:end], path[end + 1 :]


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_directory = _How(DIRECTORY, 0, _BENEATH_WITHOUT_LINKS)
_path_only = _How(PATH_ONLY, 0, _BENEATH_WITHOUT_LINKS)


def _open(fd: int, path: bytes, how: _How) -> int:
    if sys.platform == "linux":
        found = _libc.syscall(_OPENAT2, fd, path, ctypes.byref(how), ctypes.sizeof(how))
        if found >= 0:
            return found
        number = ctypes.get_errno()
        if number not in (errno.ENOSYS, errno.EPERM, errno.EAGAIN):
            raise OSError(number, os.strerror(number))
    return _open_step_by_step(fd, path, how.flags)


def _open_step_by_step(fd: int, path: bytes, flags: int) -> int:
    """Open for a kernel older than 5.6, under a filter without openat2, or if something was moved during the call."""
    here = os.open(b".", flags, dir_fd=fd)
    for name in path.split(b"/"):
        try:
            inner = os.open(name, flags | os.O_NOFOLLOW, dir_fd=here)
        finally:
            os.close(here)
        here = inner
        if stat.S_ISLNK(os.fstat(here).st_mode):  # O_PATH opens links, too
            os.close(here)
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    return here
