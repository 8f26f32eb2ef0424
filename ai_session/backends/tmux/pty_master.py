"""Duplicates of the descriptors of a terminal that another process of the same user keeps. Standard library only."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import struct
import sys
from collections.abc import Generator

from agentwire.system import inherited_signals

_PIDFD_GETFD = 438
_TIOCGPTN = 0x80045430
_CHUNK_BYTES = 65536
_TAIL_BYTES = 1 << 17
"""More than a pseudo-terminal of Linux can hold unread."""

# The child has ended if its id is unused: tmux reaps it before it frees the pane.
_SAVER = 'while read -r _ <&3; do :; done; kill -0 "$1" 2>/dev/null || exec head -c "$2" >>"$3"'

_libc = ctypes.CDLL(None, use_errno=True)


class BorrowedTty:
    """Both ends of a terminal, held open in addition to its keeper's. ``master`` and the keeper's are non-blocking.

    Until ``close``, neither its keeper nor a child that closes its tty for a while hangs the terminal up.
    """

    def __init__(self, master: int, tty: str) -> None:
        os.set_blocking(master, False)
        self.master = master
        self._slave = os.open(tty, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)

    def write(self, data: bytearray) -> bool:
        """Move what the terminal has room for out of ``data``. Return whether all is written. Raises OSError."""
        with contextlib.suppress(BlockingIOError):
            while data:
                del data[: os.write(self.master, data[:_CHUNK_BYTES])]
        return not data

    def tail(self) -> Generator[bytes]:
        """Yield the output that the keeper left unread. Call it when no other process reads any more."""
        left = _TAIL_BYTES
        with contextlib.suppress(OSError):
            while left > 0 and (data := os.read(self.master, left)):
                left -= len(data)
                yield data

    def leave_saver(self, child: int, lifeline: str, own_lifeline: str, log: str) -> int:
        """Start a process that outlives this one and appends the ``tail`` to ``log``. Return its id. Raises OSError.

        It appends when the FIFO ``lifeline``, which a process must hold now, ends, and only if ``child`` has ended by
        then. Until it is done it holds ``own_lifeline`` and the terminal.
        """
        with contextlib.ExitStack() as opened:
            end = os.open(lifeline, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            opened.callback(os.close, end)
            own = os.open(own_lifeline, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            opened.callback(os.close, own)
            os.set_blocking(end, True)
            words = ["sh", "-c", _SAVER, "sh", str(child), str(_TAIL_BYTES), log]
            null = (
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
            )
            given = [(os.POSIX_SPAWN_DUP2, fd, number) for fd, number in ((self.master, 0), (end, 3), (own, 4))]
            return os.posix_spawn(
                "/bin/sh",
                words,
                {"PATH": os.defpath},
                file_actions=[*given, *null],
                setsid=True,
                setsigmask=(),
                setsigdef=inherited_signals.SETTABLE,
            )

    def close(self) -> None:
        os.close(self.master)
        os.close(self._slave)


def borrow_tty(keeper: int, tty: str) -> BorrowedTty | None:
    """Duplicate the descriptors of ``tty``, whose master process ``keeper`` has. Return None if the kernel forbids it.

    Needs Linux 5.6 and the right to trace the keeper, which root and, unless a security module denies it, the same user
    have.
    """
    if sys.platform != "linux" or not tty.startswith("/dev/pts/"):
        return None
    try:
        names = os.listdir(f"/proc/{keeper}/fd")
        pidfd = os.pidfd_open(keeper)
    except OSError:
        return None
    try:
        # A new terminal has one of the highest numbers.
        for number in sorted(map(int, names), reverse=True):
            with contextlib.suppress(OSError):
                if _is_master(keeper, number, tty) and (master := _libc.syscall(_PIDFD_GETFD, pidfd, number, 0)) >= 0:
                    return _checked(master, tty)
    finally:
        os.close(pidfd)
    return None


def _is_master(keeper: int, number: int, tty: str) -> bool:
    with open(f"/proc/{keeper}/fdinfo/{number}") as facts:
        return f"tty-index:\t{tty.removeprefix('/dev/pts/')}\n" in facts


def _checked(master: int, tty: str) -> BorrowedTty:
    try:
        if struct.unpack("I", fcntl.ioctl(master, _TIOCGPTN, bytes(4)))[0] == int(tty.removeprefix("/dev/pts/")):
            return BorrowedTty(master, tty)
        raise OSError("the descriptor now belongs to another terminal")
    except OSError:
        os.close(master)
        raise
