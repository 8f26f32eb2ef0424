"""Starts a program on a new pseudo-terminal. Must be called in a process with one thread: it forks."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence

from ptyprocess import PtyProcess

OUT_OF = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOSPC)
DESCRIPTORS_NEEDED = 8
PIDFD = hasattr(os, "pidfd_open")


class StartFailed(Exception):
    """``kind`` is ``directory``, ``exhausted`` or ``exec``; the text says it in the system's words."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Child(PtyProcess):
    """ptyprocess sleeps 0.1 s or more when a child is closed or collected; here the caller reaps."""

    def close(self, force: bool = True) -> None:
        self.fileobj.close()
        self.closed = True


class PtyChild:
    """A running child, its non-blocking master and, where the system has one, its pidfd (else -1)."""

    def __init__(self, pid: int, master: int) -> None:
        self.pid = pid
        self.master = master
        self.tty = tty_name(master)
        self.pidfd = os.pidfd_open(pid) if PIDFD else -1


def start(argv: Sequence[str], env: Mapping[str, str], cwd: str, rows: int, cols: int) -> PtyChild:
    """Starts ``argv`` in ``cwd`` with exactly ``env`` and default signals; raises StartFailed, leaking nothing."""

    def prepare() -> None:
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        try:
            os.chdir(cwd)
        except OSError as error:
            # ptyprocess carries only the class name and the text to the parent.
            raise NotADirectoryError(error.strerror) from None

    try:
        with _closing_leaks():
            for fd in [os.open(os.devnull, os.O_RDONLY) for _ in range(DESCRIPTORS_NEEDED)]:
                os.close(fd)
            child = _Child.spawn(list(argv), env=dict(env), preexec_fn=prepare, dimensions=(rows, cols))
            master = os.dup(child.fd)
    except NotADirectoryError as error:
        raise StartFailed("directory", str(error)) from None
    except OSError as error:
        exhausted = error.errno in OUT_OF or "out of pty devices" in str(error)
        raise StartFailed("exhausted" if exhausted else "exec", str(error)) from None
    child.close()
    os.set_blocking(master, False)
    return PtyChild(child.pid, master)


@contextlib.contextmanager
def _closing_leaks() -> Iterator[None]:
    """ptyprocess and pty.fork leave pipes and masters open when they fail; with one thread they are easily told."""
    before = set(os.listdir("/dev/fd"))
    try:
        yield
    except OSError:
        for name in set(os.listdir("/dev/fd")) - before:
            with contextlib.suppress(OSError):
                os.close(int(name))
        raise


def tty_name(master: int) -> str:
    """Path of the terminal device of ``master``; os.ptsname is new in Python 3.13."""
    if sys.platform == "linux":
        tiocgptn = 0x80045430
        return f"/dev/pts/{struct.unpack('I', fcntl.ioctl(master, tiocgptn, bytes(4)))[0]}"
    tiocptygname = 0x40807453
    return fcntl.ioctl(master, tiocptygname, bytes(128)).split(b"\0")[0].decode()


def open_tty(tty: str) -> int:
    """The device itself, without making it the controlling terminal."""
    return os.open(tty, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
