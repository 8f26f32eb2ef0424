"""Keys that were pressed before anybody asked."""

from __future__ import annotations

import termios

from agentwire.system.readable import readable


def discard(terminal: int) -> None:
    """Forget all that was typed at ``terminal`` until now. Raises termios.error where it has gone.

    A flush alone misses keys that the kernel has not yet handed to the line discipline; on Linux a poll that finds
    nothing to read has it do so (n_tty_poll in drivers/tty/n_tty.c).
    """
    waits = True
    while waits:
        waits = bool(readable((terminal,), 0))
        termios.tcflush(terminal, termios.TCIFLUSH)
