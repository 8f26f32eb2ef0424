"""Ctrl-C before a verb has begun and after it has ended: the process ends by it and prints nothing, as programs do that
are not written in Python. Standard library only.
"""

from __future__ import annotations

import signal


def end_by_them() -> None:
    """From here on, unless they are ignored, or somebody heeds them already. For the main thread."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_them() -> bool:
    """From here on one raises KeyboardInterrupt, where it would have ended the process; whether that is so."""
    ends = signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    if ends:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return ends
