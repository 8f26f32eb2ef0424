"""This terminal's keyboard for a command that asks: what is typed goes to its session until the command has ended.

Ctrl-C and Ctrl-Z stay ours, every other key is the program's. Its own terminal echoes what it wants echoed.
"""

from __future__ import annotations

import os
import select
import signal
import termios
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

from ai_session.client.connection import ControlClient, connect
from ai_session.errors import AiSessionError, DaemonUnavailable

INPUT = 0
READ_BYTES = 1 << 12
WAIT_SECONDS = 50.0


def usable() -> bool:
    """Whether standard input is a terminal that this process may read: a job in the background would be stopped."""
    try:
        return os.isatty(INPUT) and os.tcgetpgrp(INPUT) == os.getpgrp()
    except OSError:
        return False


class Keyboard:
    """Lent from ``start`` to ``stop``, from when the command first waits for input; the terminal is as it was then.

    ``refused`` is called where the policy keeps people from typing.
    """

    def __init__(self, session: str, command_id: str, refused: Callable[[], None]) -> None:
        self._session = session
        self._command_id = command_id
        self._refused = refused
        self._before: list[Any] = termios.tcgetattr(INPUT)
        self._handlers: dict[int, Any] = {}
        self._lock = threading.RLock()
        self._lent = self._stopped = False

    def start(self) -> None:
        """Returns at once; in the thread that may take signals."""
        handlers = {
            **dict.fromkeys((signal.SIGTERM, signal.SIGHUP), _end),
            signal.SIGTSTP: self._suspended,
            signal.SIGCONT: self._continued,
        }
        self._handlers = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        # It may wait for the daemon when the command has ended: nobody waits for it then.
        threading.Thread(target=self._lend, daemon=True).start()

    def stop(self) -> None:
        """Gives the terminal back."""
        with self._lock:
            self._stopped = True
            if self._lent:
                with suppress(termios.error):
                    termios.tcsetattr(INPUT, termios.TCSADRAIN, self._before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _lend(self) -> None:
        with suppress(DaemonUnavailable, OSError):
            try:
                with connect(start=False) as client:
                    if not self._asks(client):
                        return
                    client.attach(self._session, rows=0, cols=0, read_only=False)
                    self._take_keys()
                    while not self._pass_on(client):
                        client.outlive()
                        client.attach(self._session, rows=0, cols=0, read_only=False)
            except DaemonUnavailable:
                raise
            except AiSessionError:
                self._refused()

    def _asks(self, client: ControlClient) -> bool:
        """Returns when the command waits for input; False when it has ended."""
        while True:
            page = client.call(
                "read_output",
                session_id=self._session,
                command_id=self._command_id,
                wait_for="input",
                timeout_seconds=WAIT_SECONDS,
                tail_lines=1,
            ).structured
            if page["status"] != "running" or page.get("waited") == "finished":
                return False
            if page.get("waited") == "input":
                return True

    def _take_keys(self) -> None:
        """Each key at once and as it is, none echoed; Ctrl-C and Ctrl-Z go on being signals for this process."""
        with self._lock:
            if self._stopped or not usable():
                return
            mode = termios.tcgetattr(INPUT)
            mode[0] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR | termios.IXON)
            mode[3] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
            mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
            mode[6][termios.VQUIT] = b"\0"
            termios.tcsetattr(INPUT, termios.TCSANOW, mode)
            self._lent = True

    def _pass_on(self, client: ControlClient) -> bool:
        """True when the command or the keyboard has ended, False when the daemon has."""
        while True:
            ready, _, _ = select.select((INPUT, client), (), ())
            try:
                if client in ready:
                    client.receive()
                    if any(kind == b"e" for kind, _ in client.arrived()):
                        return True
                if INPUT in ready:
                    with self._lock:
                        typed = b"" if self._stopped else os.read(INPUT, READ_BYTES)
                    if not typed:
                        return True
                    client.send_frame(b"i", typed)
            except DaemonUnavailable:
                return self._stopped

    def _suspended(self, number: int, frame: FrameType | None) -> None:
        if self._lent:
            termios.tcsetattr(INPUT, termios.TCSADRAIN, self._before)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._suspended)

    def _continued(self, number: int, frame: FrameType | None) -> None:
        if self._lent:
            self._take_keys()


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
