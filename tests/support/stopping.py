"""Stops processes, so that they do nothing more until they are continued."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.bounds import BOUND_SECONDS

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WAIT_FOR_ALL = 0x40000000
"""``__WALL``: also for a process that is no child."""


def stop(pid: int) -> None:
    """Send SIGSTOP and wait until the process has stopped: until then it may still return from the call it is in."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + BOUND_SECONDS
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < end, f"{pid} does not stop"


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop a process as a debugger does, which its parent does not notice: tmux continues one that SIGSTOP stopped.

    Where only descendants may be traced, it is stopped by SIGSTOP, and may be continued early.
    """
    try:
        _ptrace(PTRACE_SEIZE, pid)
    except PermissionError:
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)
        return
    try:
        _ptrace(PTRACE_INTERRUPT, pid)
        os.waitpid(pid, WAIT_FOR_ALL)
        yield
    finally:
        _ptrace(PTRACE_DETACH, pid)


def _ptrace(request: int, pid: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    library.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    library.ptrace.restype = ctypes.c_long
    if library.ptrace(request, pid, None, None) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
