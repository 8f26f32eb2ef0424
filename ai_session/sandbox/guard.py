"""A program that protects paths inside a running box and then ends.

``python -I -S guard.py PID`` reads a list of ``[path, kind]`` as JSON from standard input and mounts each path in the
mount namespace of PID onto itself: ``kept`` so that it cannot be moved, ``closed`` so that it cannot be written either;
``hidden`` is covered with an empty file or directory. It writes what failed to standard output, as a list of ``[path,
why]``. It is a process of its own because only one with a single thread can join a user namespace. Standard library
only; Linux 5.12 or newer.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager

_NS_GET_USERNS = 0xB701
_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
_OPEN_TREE = 428
_MOVE_MOUNT = 429
_OPENAT2 = 437
_SET_ATTRIBUTES = 442
_CLONE = 0x1
_CLOSE_ON_EXEC = 0o2000000
_WHOLE = 0x8000
_ITSELF = 0x1000
_FROM_ITSELF, _TO_ITSELF = 0x4, 0x40
_READ_ONLY = 0x1
_WITHOUT_LINKS = 0x4 | 0x2
_libc = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class _Attributes(ctypes.Structure):
    _fields_ = (
        *(("set", ctypes.c_uint64), ("clear", ctypes.c_uint64)),
        *(("propagation", ctypes.c_uint64), ("user", ctypes.c_uint64)),
    )


def _call(number: int, *words: object) -> int:
    found = _libc.syscall(number, *words)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


def enter(pid: int) -> None:
    """Join the mount namespace of a box. Raises OSError, also if it is this process's own."""
    mounts = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    if os.fstat(mounts).st_ino == os.stat("/proc/self/ns/mnt").st_ino:
        raise OSError(f"process {pid} is in no box")
    owner = fcntl.ioctl(mounts, _NS_GET_USERNS)
    for namespace, kind in ((owner, _NEW_USER), (mounts, _NEW_MOUNTS)):
        if kind == _NEW_USER and os.fstat(namespace).st_ino == os.stat("/proc/self/ns/user").st_ino:
            continue
        if _libc.setns(namespace, kind) != 0:
            raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")


def guard(path: str, kind: str) -> None:
    """Protect one path as ``kind`` says. Raises OSError, also if a part of the path is a link."""
    target = _open(path)
    try:
        if kind == "hidden":
            with _empty(directory=stat.S_ISDIR(os.fstat(target).st_mode)) as source:
                _mount(source, target, closed=True)
        else:
            _mount(target, target, closed=kind == "closed")
    finally:
        os.close(target)


def _mount(source: int, target: int, *, closed: bool) -> None:
    tree = _call(_OPEN_TREE, source, b"", _ITSELF | _CLONE | _CLOSE_ON_EXEC | _WHOLE)
    try:
        if closed:
            attributes = _Attributes(_READ_ONLY, 0, 0, 0)
            _call(_SET_ATTRIBUTES, tree, b"", _ITSELF | _WHOLE, ctypes.byref(attributes), ctypes.sizeof(attributes))
        _call(_MOVE_MOUNT, tree, b"", target, b"", _FROM_ITSELF | _TO_ITSELF)
    finally:
        os.close(tree)


def _open(path: str) -> int:
    how = _How(os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW, 0, _WITHOUT_LINKS)
    return _call(_OPENAT2, -100, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))


@contextmanager
def _empty(*, directory: bool) -> Generator[int]:
    """Yield a descriptor of an empty file or directory, whose name is removed afterwards."""
    name = f"/run/.{os.urandom(8).hex()}"
    if directory:
        os.mkdir(name, 0o555)
    else:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    fd = -1
    try:
        fd = _open(name)
        yield fd
    finally:
        if fd >= 0:
            os.close(fd)
        (os.rmdir if directory else os.unlink)(name)


def main() -> int:
    """Protect the paths listed on standard input and report those that failed."""
    wanted: list[tuple[str, str]] = json.load(sys.stdin)
    failed: list[tuple[str, str]] = []
    enter(int(sys.argv[1]))
    for path, kind in sorted(wanted, key=lambda one: one[0].split("/")):
        try:
            guard(path, kind)
        except OSError as problem:
            failed.append((path, problem.strerror or str(problem)))
    json.dump(failed, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
