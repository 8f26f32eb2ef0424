"""This terminal for a command that asks: what is typed goes to its session until the command has ended.

Ctrl-C and Ctrl-Z stay ours, every other key is the program's. Its own terminal echoes what it wants echoed. While a
program draws on a screen of its own, as editors and pagers do, that is drawn here in this terminal's size, and all keys
are the program's but the one that leaves it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import termios
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn

from agentwire.cli.output import write_bytes
from ai_session.cli.attach import ALTERNATE
from ai_session.client.connection import ControlClient, connect
from ai_session.errors import AiSessionError, DaemonUnavailable
from ai_session.terminal.filter import LEAVE, TerminalFilter

INPUT, OUTPUT = 0, 1
LEAVING_KEY = b"\x1d"
"""Ctrl-]."""
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

    ``refused`` is called where the policy keeps people from typing, ``left`` at the key that leaves a program's screen.
    ``covers``: such a screen is shown now.
    """

    def __init__(self, session: str, command_id: str, refused: Callable[[], None], left: Callable[[], None]) -> None:
        self._session = session
        self._command_id = command_id
        self._refused = refused
        self._left = left
        self._filter = TerminalFilter(live=True)
        self._client: ControlClient | None = None
        self.covers = False
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
            signal.SIGWINCH: self._resized,
        }
        self._handlers = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        # It may wait for the daemon when the command has ended: nobody waits for it then.
        threading.Thread(target=self._lend, daemon=True).start()

    def stop(self) -> None:
        """Gives the terminal back."""
        with self._lock:
            self._stopped = True
            self._uncover()
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
                    self._client = client
                    client.attach(self._session, rows=0, cols=0, read_only=False)
                    self._take_keys()
                    while not self._pass_on(client):
                        client.reconnect()
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
        """Each key at once and as it is, none echoed; Ctrl-C and Ctrl-Z are signals for this process, except while
        a program has the screen."""
        with self._lock:
            if self._stopped or not usable():
                return
            mode = termios.tcgetattr(INPUT)
            mode[0] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR | termios.IXON)
            mode[3] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
            mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
            mode[6][termios.VQUIT] = b"\0"
            mode[3] = mode[3] & ~termios.ISIG if self.covers else mode[3] | termios.ISIG
            termios.tcsetattr(INPUT, termios.TCSANOW, mode)
            self._lent = True

    def _pass_on(self, client: ControlClient) -> bool:
        """True when the command or the keyboard has ended, False when the daemon has."""
        while True:
            # Some may have come with the answer to what was asked before.
            for kind, payload in client.arrived():
                if kind == b"e":
                    return True
                if kind == b"o":
                    self._show(payload)
            ready, _, _ = select.select((INPUT, client), (), ())
            try:
                if client in ready:
                    client.receive()
                if INPUT in ready:
                    with self._lock:
                        typed = b"" if self._stopped else os.read(INPUT, READ_BYTES)
                    if not typed:
                        return True
                    if self.covers and LEAVING_KEY in typed:
                        self._left()
                        return True
                    with self._lock:
                        client.send_frame(b"i", typed)
            except DaemonUnavailable:
                return self._stopped

    def _show(self, payload: bytes) -> None:
        """Draws what belongs to a screen of the program's own."""
        shown, drawn = self._filter.feed(payload), 0
        with self._lock:
            for switch in ALTERNATE.finditer(shown):
                if self.covers:
                    write_bytes(shown[drawn : switch.start()])
                drawn = switch.end()
                if switch[1] == b"h":
                    self._cover()
                else:
                    self._uncover()
            if self.covers:
                write_bytes(shown[drawn:])

    def _cover(self) -> None:
        if not (self.covers or self._stopped):
            self.covers = True
            self._take_keys()
            write_bytes(b"\x1b[?1049h\x1b[H\x1b[2J")
            self._lend_size()

    def _uncover(self) -> None:
        if self.covers:
            self.covers = False
            with suppress(OSError):
                write_bytes(LEAVE + b"\x1b[?1049l")
            self._take_keys()

    def _lend_size(self) -> None:
        with self._lock, suppress(OSError, DaemonUnavailable):
            if self._client is not None:
                size = os.get_terminal_size(OUTPUT)
                self._client.send_frame(b"r", json.dumps({"rows": size.lines, "cols": size.columns}).encode())

    def _resized(self, number: int, frame: FrameType | None) -> None:
        if self.covers:
            self._lend_size()

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
