"""Two pseudo-terminals and a socket in one blocking loop, without our code: the minimal cost of relaying them.

Run it as ``python -I -S plain_relay.py FILE [COMMAND]``: standard input is a socket for the keys and the output of a
bash with readline. COMMAND prints on the other terminal, whose output goes to FILE.
"""

from __future__ import annotations

import os
import pty
import selectors
import signal
import sys

READ_BYTES = 1 << 16
KEPT_BYTES = 64 << 20


def main(path: str, command: list[str]) -> None:
    """Relay until the other end of the socket is closed."""
    shell = _on_terminal(["bash", "--norc", "--noprofile", "-i"])
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    loop = selectors.DefaultSelector()
    loop.register(0, selectors.EVENT_READ)
    loop.register(shell, selectors.EVENT_READ)
    if command:
        loop.register(_on_terminal(["bash", "-c", *command]), selectors.EVENT_READ)
    written = 0
    while True:
        for key, _ in loop.select():
            data = os.read(key.fd, READ_BYTES)
            if key.fd == shell:
                os.write(0, data)
            elif key.fd:
                written += os.pwrite(log, data, written % KEPT_BYTES)
            elif data:
                os.write(shell, data)
            else:
                return


def _on_terminal(command: list[str]) -> int:
    pid, master = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        os.execvp(command[0], command)
    return master


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
