"""Keys that were pressed before a question was shown."""

from __future__ import annotations

import termios

from agentwire.system.readable import readable


def discard(terminal: int) -> None:
    """Discard everything typed at ``terminal`` until now. Raises termios.error if the terminal is closed.

    A flush alone misses keys that the kernel has not passed to the line discipline yet; on Linux a poll that finds
    nothing to read makes it do so (n_tty_poll in drivers/tty/n_tty.c).
    """
    waits = True
    while waits:
        waits = bool(readable((terminal,), 0))
        termios.tcflush(terminal, termios.TCIFLUSH)
