"""Short turns on a processor for threads that respond quickly and then sleep. Standard library only.

On a busy machine a program that wakes up waits until another one has had its turn, 2 to 3 ms; a call wakes several of
our processes one after the other. From 6.12 on, Linux lets a program declare that its turns are short, and then runs it
first. Its share of the processor stays the same.
"""

from __future__ import annotations

import os
import struct
import sys

TURN_NANOSECONDS = 100_000
_SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
_NOT_OF_CHILDREN = 1
_ATTRIBUTES = struct.Struct("IIQiIQQQ")


def take_short_turns(thread: int = 0) -> bool:
    """Declare short turns for the calling thread, or another one of this user; children do not inherit it. Returns
    False if the system does not support it."""
    number = _SET_ATTRIBUTES.get(os.uname().machine) if sys.platform == "linux" else None
    try:
        # Another policy was set on purpose.
        if number is None or os.sched_getscheduler(thread) != os.SCHED_OTHER:
            return False
        nice = os.getpriority(os.PRIO_PROCESS, thread)
    except OSError:
        return False
    import ctypes

    attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, _NOT_OF_CHILDREN, nice, 0, TURN_NANOSECONDS, 0, 0)
    return ctypes.CDLL(None).syscall(number, thread, attributes, 0) == 0
