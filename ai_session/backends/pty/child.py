"""The start of a program on a new pseudo-terminal. It forks, so the process must have a single thread."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import signal
import struct
import sys
from collections.abc import Callable, Mapping, Sequence

from ptyprocess import PtyProcess  # pyright: ignore[reportMissingTypeStubs]

from agentwire.system import inherited_signals

OUT_OF = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENOSPC)
DESCRIPTORS_NEEDED = 8
PIDFD = hasattr(os, "pidfd_open")


class StartFailed(Exception):
    """A program could not be started. ``kind`` is ``directory``, ``exhausted`` or ``exec``, the text the system's."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class _Child(PtyProcess):
    """A child that the caller reaps: closing or collecting a PtyProcess sleeps 0.1 s or more."""

    pid: int
    fd: int

    @classmethod
    def launch(cls, argv: list[str], env: dict[str, str], prepare: Callable[[], None], size: tuple[int, int]) -> _Child:
        spawn: Callable[..., _Child] = cls.spawn  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        parent = os.getpid()
        try:
            return spawn(argv, env=env, preexec_fn=prepare, dimensions=size)
        finally:
            # ptyprocess catches only OSError in the child, which must never continue as its parent.
            if os.getpid() != parent:
                os._exit(127)

    def close(self, force: bool = True) -> None:
        self.fileobj.close()
        self.closed = True


class PtyChild:
    """A running child with its non-blocking master and its pidfd, which is -1 if the system has none."""

    def __init__(self, pid: int, master: int, pidfd: int) -> None:
        self.pid = pid
        self.master = master
        self.pidfd = pidfd
        self.tty = tty_name(master)


def start(argv: Sequence[str], env: Mapping[str, str], cwd: str, rows: int, cols: int) -> PtyChild:
    """Start ``argv`` in ``cwd`` with exactly ``env`` and default signals. Raises StartFailed, leaking no descriptor."""

    def prepare() -> None:
        inherited_signals.reset()
        try:
            os.chdir(cwd)
        except OSError as error:
            # ptyprocess carries only the class name and the text to the parent.
            raise NotADirectoryError(error.strerror) from None

    if not all(map(_can_be_passed, (cwd, *argv, *env, *env.values()))) or any("=" in name or not name for name in env):
        raise StartFailed(
            "exec", "an argument or environment variable contains characters that cannot be passed to a program"
        )
    started = _spawn(list(argv), dict(env), prepare, (rows, cols))
    if isinstance(started, StartFailed):
        raise started
    return started


def _spawn(
    argv: list[str], env: dict[str, str], prepare: Callable[[], None], size: tuple[int, int]
) -> PtyChild | StartFailed:
    before: set[int] | None = None
    try:
        _check_room()
        before = _open_fds()
        child = _Child.launch(argv, env, prepare, size)
    except NotADirectoryError as error:
        failure = StartFailed("directory", str(error))
    except OSError as error:
        exhausted = error.errno in OUT_OF or "out of pty devices" in str(error)
        failure = StartFailed("exhausted" if exhausted else "exec", str(error))
    else:
        master = os.dup(child.fd)
        os.set_blocking(master, False)
        child.close()
        return PtyChild(child.pid, master, os.pidfd_open(child.pid) if PIDFD else -1)
    # ptyprocess leaves an object in a reference cycle with its traceback, which would close its descriptor later.
    gc.collect()
    for fd in _open_fds() - before if before is not None else ():
        os.close(fd)
    return failure


def _can_be_passed(word: str) -> bool:
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:
        return False


def _check_room() -> None:
    """Raise OSError if this process cannot open the descriptors that a start needs."""
    taken: list[int] = []
    try:
        while len(taken) < DESCRIPTORS_NEEDED:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    finally:
        for fd in taken:
            os.close(fd)


def _open_fds() -> set[int]:
    """Return the open descriptors. The new ones after a failure are pipes and masters that ptyprocess left open."""
    found = {int(name) for name in os.listdir("/dev/fd")}
    # The listing itself had the lowest free number, which is free again.
    free = os.dup(0)
    os.close(free)
    return found - {free}


def tty_name(master: int) -> str:
    """Return the path of the terminal device of ``master``; os.ptsname is new in Python 3.13."""
    if sys.platform == "linux":
        tiocgptn = 0x80045430
        return f"/dev/pts/{struct.unpack('I', fcntl.ioctl(master, tiocgptn, bytes(4)))[0]}"
    tiocptygname = 0x40807453
    return fcntl.ioctl(master, tiocptygname, bytes(128)).split(b"\0")[0].decode()


def open_tty(tty: str) -> int:
    """Open the device without making it the controlling terminal."""
    return os.open(tty, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)


def foreign_exit_code(pid: int, pidfd: int) -> int | None:
    """Return the exit code (negative: signal) of an ended process that is not a child of this one; None if unknown.

    Until its parent reaps it, /proc has the code; afterwards the pidfd has it (Linux 6.15).
    """
    if pidfd < 0:
        return None
    for ask in (_status_of_pidfd, _status_of_zombie, _status_of_pidfd):
        status = ask(pid, pidfd)
        if status is not None:
            return os.waitstatus_to_exitcode(status)
    return None


def _status_of_pidfd(_: int, pidfd: int) -> int | None:
    pidfd_get_info = 0xC040FF0B
    pidfd_info_exit = 1 << 3
    status_at = 60
    info = bytearray(pidfd_info_exit.to_bytes(8, sys.byteorder) + bytes(56))
    try:
        fcntl.ioctl(pidfd, pidfd_get_info, info)
    except OSError:
        return None
    known = int.from_bytes(info[:8], sys.byteorder) & pidfd_info_exit
    return struct.unpack_from("i", info, status_at)[0] if known else None


def _status_of_zombie(pid: int, pidfd: int) -> int | None:
    folder = f"/proc/{pid}"
    try:
        with open(f"{folder}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        owner = os.stat(folder).st_uid
        # If the process still exists, its pid has not been reused for another.
        signal.pidfd_send_signal(pidfd, 0)
    except OSError:
        return None
    # The kernel shows 0 as the status to users that may not see it.
    readable = os.geteuid() in (0, owner)
    return int(fields[49]) if fields[0] == b"Z" and readable else None
