"""This terminal's keyboard for a command that asks: typed keys are sent to its session until the command has ended.

Ctrl-C and Ctrl-Z are handled here, every other key is the program's. Its own terminal echoes what should be echoed.
While a program draws on the alternate screen, as editors and pagers do, that is drawn here in this terminal's size, and
all keys are the program's except the one that leaves it.
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
    """Report whether standard input is a terminal that this process may read: a background job would be stopped."""
    try:
        return os.isatty(INPUT) and os.tcgetpgrp(INPUT) == os.getpgrp()
    except OSError:
        return False


class Keyboard:
    """In use from ``start``, once the command waits for input, to ``stop``, which restores the terminal.

    ``on_refused`` is called if the policy forbids people to type, ``on_left`` at the key that leaves a program's
    screen. ``covers``: such a screen is shown now.
    """

    def __init__(
        self, session: str, command_id: str, on_refused: Callable[[], None], on_left: Callable[[], None]
    ) -> None:
        self._session = session
        self._command_id = command_id
        self._on_refused = on_refused
        self._on_left = on_left
        self._filter = TerminalFilter(live=True)
        self._client: ControlClient | None = None
        self.covers = False
        self._before: list[Any] = termios.tcgetattr(INPUT)
        self._handlers: dict[int, Any] = {}
        self._lock = threading.RLock()
        self._in_use = self._stopped = False

    def start(self) -> None:
        """Start, without waiting; call it in the thread that receives signals."""
        handlers = {
            **dict.fromkeys((signal.SIGTERM, signal.SIGHUP), _end),
            signal.SIGTSTP: self._suspended,
            signal.SIGCONT: self._continued,
            signal.SIGWINCH: self._resized,
        }
        self._handlers = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        # It may still wait for the daemon when the command has ended; no caller joins it.
        threading.Thread(target=self._serve, daemon=True).start()

    def stop(self) -> None:
        """Restore the terminal."""
        with self._lock:
            self._stopped = True
            self._uncover()
            if self._in_use:
                with suppress(termios.error):
                    termios.tcsetattr(INPUT, termios.TCSADRAIN, self._before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _serve(self) -> None:
        with suppress(DaemonUnavailable, OSError):
            try:
                with connect(start=False) as client:
                    if not self._wait_for_input(client):
                        return
                    self._client = client
                    client.attach(self._session, rows=0, cols=0, read_only=False)
                    self._set_key_mode()
                    while not self._relay(client):
                        client.reconnect()
                        client.attach(self._session, rows=0, cols=0, read_only=False)
            except DaemonUnavailable:
                raise
            except AiSessionError:
                self._on_refused()

    def _wait_for_input(self, client: ControlClient) -> bool:
        """Wait until the command waits for input and return True; return False if it has ended."""
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

    def _set_key_mode(self) -> None:
        """Read each key unchanged, at once and without echo; Ctrl-C and Ctrl-Z are signals for this process, except
        while a program has the screen."""
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
            self._in_use = True

    def _relay(self, client: ControlClient) -> bool:
        """Return True when the command or the keyboard has ended, False when the daemon has."""
        while True:
            # Some frames may have been received together with an earlier response.
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
                        self._on_left()
                        return True
                    with self._lock:
                        client.send_frame(b"i", typed)
            except DaemonUnavailable:
                return self._stopped

    def _show(self, payload: bytes) -> None:
        """Draw what belongs to a program's alternate screen."""
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
            self._set_key_mode()
            write_bytes(b"\x1b[?1049h\x1b[H\x1b[2J")
            self._send_size()

    def _uncover(self) -> None:
        if self.covers:
            self.covers = False
            with suppress(OSError):
                write_bytes(LEAVE + b"\x1b[?1049l")
            self._set_key_mode()

    def _send_size(self) -> None:
        with self._lock, suppress(OSError, DaemonUnavailable):
            if self._client is not None:
                size = os.get_terminal_size(OUTPUT)
                self._client.send_frame(b"r", json.dumps({"rows": size.lines, "cols": size.columns}).encode())

    def _resized(self, number: int, frame: FrameType | None) -> None:
        if self.covers:
            self._send_size()

    def _suspended(self, number: int, frame: FrameType | None) -> None:
        if self._in_use:
            termios.tcsetattr(INPUT, termios.TCSADRAIN, self._before)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, self._suspended)

    def _continued(self, number: int, frame: FrameType | None) -> None:
        if self._in_use:
            self._set_key_mode()


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
