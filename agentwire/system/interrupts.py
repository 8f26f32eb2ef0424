"""Ctrl-C before a verb has begun and after it has ended: it ends the process, which prints nothing, as is usual for
programs that are not written in Python. Standard library only."""

from __future__ import annotations

import signal


def end_process() -> None:
    """Let Ctrl-C end the process from now on, unless it is ignored or has a handler already. For the main thread."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_exception() -> bool:
    """Let Ctrl-C raise KeyboardInterrupt from now on if it would have ended the process; report whether that is so."""
    ends = signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    if ends:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return ends
