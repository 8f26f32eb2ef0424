"""A second hold on a terminal that another process of the same user keeps; standard library only."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import sys

_PIDFD_GETFD = 438
_TIOCGPTN = 0x80045430
_libc = ctypes.CDLL(None, use_errno=True)


def borrow_master(keeper: int, tty: str) -> int:
    """A duplicate of the master of ``tty`` that process ``keeper`` holds, or -1 where the kernel does not allow it.

    It shares the keeper's file description, so it is as non-blocking as the keeper made it. Needs Linux 5.6 and the
    right to trace the keeper: given to root and, unless a security module says no, to the same user.
    """
    if sys.platform != "linux" or not tty.startswith("/dev/pts/"):
        return -1
    try:
        names = os.listdir(f"/proc/{keeper}/fd")
        pidfd = os.pidfd_open(keeper)
    except OSError:
        return -1
    try:
        # A new terminal has one of the highest numbers.
        for number in sorted(map(int, names), reverse=True):
            if (master := _borrow(pidfd, keeper, number, int(tty[9:]))) >= 0:
                return master
    finally:
        os.close(pidfd)
    return -1


def _borrow(pidfd: int, keeper: int, number: int, index: int) -> int:
    try:
        with open(f"/proc/{keeper}/fdinfo/{number}") as facts:
            if f"tty-index:\t{index}\n" not in facts:
                return -1
    except OSError:
        return -1
    fd: int = _libc.syscall(_PIDFD_GETFD, pidfd, number, 0)
    if fd < 0:
        return -1
    try:
        if struct.unpack("I", fcntl.ioctl(fd, _TIOCGPTN, bytes(4)))[0] == index:
            return fd
    except OSError:
        pass
    os.close(fd)
    return -1
