"""The verb attach: connects this terminal to a session until the detach key or the shell's end.

Output is drawn on the main screen, so that the terminal's own scrollback works, and only drawn: sequences that read or
write anything else (clipboard, printer, files, notifications, queries) are dropped. Modes that programs in the session
switched on are switched off at the end. A question for the person is drawn over the last lines while output pauses, and
the screen is redrawn after it.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import termios
import tty
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Annotated, Any, NoReturn

from agentwire.cli.options import Option
from agentwire.cli.output import EXIT_ERROR, leave, remark, write_bytes
from agentwire.system import typed_ahead
from agentwire.visible import visible
from ai_session.cli.output import EXIT_UNAVAILABLE, report
from ai_session.cli.question_panel import QuestionPanel
from ai_session.cli.sessions import SessionName
from ai_session.client.connection import ControlClient, connect
from ai_session.errors import AiSessionError, DaemonUnavailable, InvalidArguments
from ai_session.terminal.filter import LEAVE, TerminalFilter

READ_BYTES = 1 << 14
INPUT, OUTPUT = 0, 1
BELL = b"\x07"

ALTERNATE = re.compile(rb"\x1b\[\?(?:[0-9]+;)*(?:1049|1047|47)(?:;[0-9]+)*([hl])")


def attach(
    session: SessionName,
    read_only: Annotated[bool, Option("--read-only", "-r", help="Only watch; ctrl-c leaves too.")] = False,
    detach_key: Annotated[str, Option("--detach-key", help="Like ctrl-] or ctrl-a; 'none' for none.")] = "ctrl-]",
    no_resize: Annotated[bool, Option("--no-resize", help="Leave the session's size as it is.")] = False,
) -> None:
    """Use a session in this terminal; ctrl-] leaves it.

    Agents and other people may use it at the same time; it keeps running when you leave. Returns the shell's exit code
    when it ends, 0 after the detach key.
    """
    keys = [] if detach_key.lower() == "none" else [parse_key(detach_key)]
    if read_only:
        keys.append(parse_key("ctrl-c"))
    if not (os.isatty(INPUT) and os.isatty(OUTPUT)):
        raise InvalidArguments(
            "attach needs a terminal on standard input and output",
            suggestion=f"use: ai-session exec, send, screen or logs -f {session}",
        )
    from ai_session.config import config

    with connect() as client:
        name = client.call("get_session_info", session_id=session).structured["name"]
        if config.environment().get("AI_SESSION_NAME") == name:
            raise InvalidArguments(
                f"this terminal is session {name!r} itself; what it shows would come back to it without end",
                suggestion="attach from another terminal",
            )
        window = Window(client, keys, read_only=read_only, resizes=not (read_only or no_resize))
        window.attach(name)
        with window.raw():
            outcome = window.run()
    leave(show_outcome(outcome, session))


def show_outcome(outcome: dict[str, Any] | AiSessionError | None, session: str) -> int:
    """Print on the next line why the window closed; return the exit code."""
    if outcome is None:
        remark(f"[detached from {session}; it keeps running: ai-session attach {session}]")
        return 0
    if isinstance(outcome, AiSessionError):
        report(outcome, as_json=False)
        return EXIT_UNAVAILABLE
    remark(f"[{session} ended: {outcome['text']}]")
    if outcome["lost"]:
        return EXIT_ERROR
    return 128 + outcome["signal"] if outcome["signal"] is not None else outcome["code"] or 0


def parse_key(text: str) -> re.Pattern[bytes]:
    """Return a pattern for what terminals send for ``ctrl-x``, ``C-x`` or ``^x``, in any encoding they may use."""
    match = re.fullmatch(r"(?:ctrl-|c-|\^)(.)", text, re.IGNORECASE)
    char = match[1].lower() if match else ""
    code = ord(char.upper()) if char else 0
    if not 0x40 <= code <= 0x5F:
        raise InvalidArguments(
            f"{text!r} is not a detach key", suggestion="use ctrl- and a letter or one of @ [ \\ ] ^ _"
        )
    plain = re.escape(bytes([code & 0x1F]))
    return re.compile(rb"%b|\x1b\[%d;5u|\x1b\[27;5;%d~" % (plain, ord(char), ord(char)))


class Window:
    """This process's terminal, which shows a session."""

    def __init__(self, client: ControlClient, keys: list[re.Pattern[bytes]], *, read_only: bool, resizes: bool) -> None:
        self._client = client
        self._keys = keys
        self._session = ""
        self._read_only = read_only
        self._resizes = resizes
        self._alternate = False
        self._filter = TerminalFilter(live=True)
        self._question: QuestionPanel | None = None
        self._wake_reader, self._wake_writer = os.pipe()
        for fd in (self._wake_reader, self._wake_writer):
            os.set_blocking(fd, False)

    def attach(self, session: str) -> None:
        """Make the daemon show the session here."""
        self._session = session
        rows, cols = self.size()
        shown = {"rows": rows, "cols": cols, "read_only": self._read_only}
        self._client.request("attach", session=session, **shown, asks=not self._read_only)

    def size(self) -> tuple[int, int]:
        """Return rows and columns for the session; 0 to leave its size unchanged."""
        if not self._resizes:
            return 0, 0
        size = os.get_terminal_size(OUTPUT)
        return size.lines, size.columns

    @contextmanager
    def raw(self) -> Generator[None]:
        """Send every key to the session during the block, and restore the terminal however the block ends."""
        before = termios.tcgetattr(INPUT)
        handlers = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGHUP)}
        handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, _ignore)
        wakeup = signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)
        try:
            tty.setraw(INPUT)
            write_bytes(b"\x1b[999;1H" + b"\n" * os.get_terminal_size(OUTPUT).lines)
            yield
        finally:
            # The terminal comes first: no later failure may leave it raw, not even if the terminal is closed.
            with suppress(termios.error, OSError):
                termios.tcsetattr(INPUT, termios.TCSANOW, before)
                typed_ahead.discard(INPUT)
            with suppress(OSError):
                write_bytes(LEAVE + (b"\x1b[?1049l" if self._alternate else b"") + b"\x1b[r\x1b[999;1H\r\n")
            signal.set_wakeup_fd(wakeup)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            os.close(self._wake_reader)
            os.close(self._wake_writer)

    def run(self) -> dict[str, Any] | AiSessionError | None:
        """Run until the shell ends (returns how), the detach key (None), or no daemon remains (its error)."""
        while True:
            try:
                return self._relay()
            except DaemonUnavailable:
                self._question = None
                try:
                    self._client.reconnect()
                    self.attach(self._session)
                except AiSessionError as error:
                    return error
            except OSError:
                _end(signal.SIGHUP, None)

    def _relay(self) -> dict[str, Any] | None:
        while True:
            for kind, payload in self._client.arrived():
                if kind == b"e":
                    return json.loads(payload)
                self._handle(kind, payload)
            arms_in = self._question.arms_in if self._question else None
            ready, _, _ = select.select((INPUT, self._client, self._wake_reader), (), (), arms_in)
            if arms_in is not None and self._question and self._question.arms_in is None:
                self._draw(self._question)
            if self._wake_reader in ready and os.read(self._wake_reader, READ_BYTES):
                self._resize()
            if self._client in ready:
                self._client.receive()  # first: input after a daemon's end is for the next one
            if INPUT in ready and not self._type():
                return None

    def _resize(self) -> None:
        rows, cols = self.size()
        if rows and cols:
            self._client.send_frame(b"r", json.dumps({"rows": rows, "cols": cols}).encode())
        if self._question:
            self._draw(self._question)

    def _type(self) -> bool:
        """Send typed keys; return False at the detach key, or if the terminal is closed."""
        data = os.read(INPUT, READ_BYTES)
        found = min((m.start() for key in self._keys if (m := key.search(data))), default=None)
        answer = self._question.handle_keys(data) if self._question and data and found is None else None
        if answer:
            self._client.send_frame(b"a", answer)
        elif answer is not None:
            write_bytes(BELL)
        elif data[:found] and not self._read_only:
            self._client.send_frame(b"i", data[:found])
        if found is not None or not data:
            self._client.send_frame(b"d")
            return False
        return True

    def _handle(self, kind: bytes, payload: bytes) -> None:
        """Handle output, or a question that appears or disappears; between those two the daemon sends no output."""
        if kind == b"q":
            self._question = QuestionPanel(json.loads(payload))
            self._draw(self._question)
        elif kind == b"w":
            self._question = None
            if note := json.loads(payload)["note"]:
                write_bytes(b"\x1b]2;ai-session: %s\x1b\\" % visible(note).encode(errors="replace") + BELL)
        else:
            self._show(payload)

    def _draw(self, question: QuestionPanel) -> None:
        size = os.get_terminal_size(OUTPUT)
        write_bytes(question.draw(size.lines, size.columns))

    def _show(self, payload: bytes) -> None:
        shown = self._filter.feed(payload)
        for switch in ALTERNATE.finditer(shown):
            self._alternate = switch[1] == b"h"
        write_bytes(shown)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing: the signal writes a byte to the wake-up pipe."""


def _end(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
