"""Short turns on a processor, for what answers quickly and then sleeps. Standard library only.

A program that wakes up on a busy machine waits until whoever runs has had a turn, 2 to 3 ms; a call wakes several of
ours one after the other. Linux, from 6.12 on, lets a program say that its own turns are short, and then has it run
first. Its share of the processor stays what it is.
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
    """Of the calling thread, or of another one of this user's; what it starts is not concerned. False where the system
    has no such thing."""
    number = _SET_ATTRIBUTES.get(os.uname().machine) if sys.platform == "linux" else None
    try:
        # Where somebody has set another policy, he knows better.
        if number is None or os.sched_getscheduler(thread) != os.SCHED_OTHER:
            return False
        nice = os.getpriority(os.PRIO_PROCESS, thread)
    except OSError:
        return False
    import ctypes

    words = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, _NOT_OF_CHILDREN, nice, 0, TURN_NANOSECONDS, 0, 0)
    return ctypes.CDLL(None).syscall(number, thread, words, 0) == 0
