"""Verbs about recordings: record export, replay."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Annotated

from agentwire.cli.options import Argument, Group, Option
from agentwire.cli.output import leave, remark, say, to_person, write_bytes
from ai_session.cli.output import write_text
from ai_session.cli.sessions import SessionName
from ai_session.client.connection import connect
from ai_session.errors import InvalidArguments
from ai_session.terminal.filter import LEAVE, TerminalFilter

app = Group("Recordings of sessions.")

RESET = LEAVE + b"\x1b[?1049l\x1b7\x1b[r\x1b8"
"""Undoes modes that a program may have left switched on in a recording."""

SIZE = re.compile(r"([0-9]{1,5})x([0-9]{1,5})")
_FASTER = {b"+": 2.0, b"-": 0.5}


@app.command()
def export(
    session: SessionName,
    output: Annotated[Path | None, Option("--output", "-o", help="Output file; default: standard output.")] = None,
) -> None:
    """Write a session as asciicast v3, with secrets masked, as far back as its output is stored."""
    if output is None and to_person():
        raise InvalidArguments("a recording is not written to a terminal", suggestion="add -o FILE, or use a pipe")
    with recording(session) as source:
        if output is None:
            with source.open("rb") as file:
                while data := file.read(1 << 20):
                    write_bytes(data)
        else:
            shutil.copyfile(source, output)
            say(f"{output}: {output.stat().st_size} bytes; ai-session replay {output} plays it, so does asciinema")


def replay(
    what: Annotated[str, Argument(metavar="SESSION|FILE", help="A session, or a recording in a file.")],
    speed: Annotated[float, Option("--speed", least=0.01, help="2 is twice as fast.")] = 1.0,
    idle: Annotated[float, Option("--idle", least=0.0, help="Longest pause shown, in seconds.")] = 2.0,
) -> None:
    """Play a session as it was seen. Space pauses and resumes, + and - change the speed, q ends.

    On a terminal only sequences that draw are played; in a pipe all output is written at once and unchanged.
    """
    with contextlib.ExitStack() as stack:
        path = Path(what) if os.path.sep in what or os.path.isfile(what) else stack.enter_context(recording(what))
        try:
            file = stack.enter_context(path.open(encoding="utf-8", errors="replace"))
        except OSError as error:
            raise InvalidArguments(f"{what}: {error.strerror}", suggestion="name a session or a file") from None
        events = read_cast(file)
        if to_person() and sys.stdin.isatty():
            leave(Player(speed, idle).play(events))
        printed = (text for _, code, text in events if code == "o")
        if not to_person():
            for text in printed:
                write_text(text)
            return
        shown = TerminalFilter(live=False)
        try:
            for text in printed:
                write_bytes(shown.feed_text(text).encode("utf-8", "replace"))
        finally:
            write_bytes(RESET)


@contextlib.contextmanager
def recording(session: str) -> Generator[Path]:
    """Yield the path of a new recording of the session, which is removed afterwards."""
    with connect() as client:
        path = Path(client.request("record", session=session)["path"])
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def read_cast(lines: Iterable[str]) -> Iterator[tuple[float, str, str]]:
    """Yield events as (seconds since the previous one, code, data). Raises InvalidArguments for another format."""
    rows = iter(lines)
    try:
        header = json.loads(next(rows, ""))
        if header["version"] not in (2, 3):
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise InvalidArguments(
            "this is not a recording (asciicast 2 or 3)", suggestion="ai-session record export"
        ) from None
    then = 0.0
    for row in rows:
        if not row.strip() or row.startswith("#"):
            continue
        try:
            at, code, text = json.loads(row)
            gap = float(at) - then if header["version"] == 2 else float(at)
        except (ValueError, TypeError):
            return  # incomplete
        then = float(at)
        yield max(0.0, gap), str(code), str(text)


class Player:
    """Plays events on this terminal, controlled by its keys."""

    def __init__(self, speed: float, idle_seconds: float) -> None:
        self._speed = speed
        self._idle = idle_seconds

    def play(self, events: Iterator[tuple[float, str, str]]) -> int:
        """Play until the end or ``q``, then restore the terminal; return the exit code."""
        before = termios.tcgetattr(sys.stdin)
        tty.setcbreak(sys.stdin)
        size = shutil.get_terminal_size()
        shown = TerminalFilter(live=False)
        try:
            for gap, code, text in events:
                if not self._wait(min(gap, self._idle) / self._speed):
                    return 0
                if code == "o":
                    write_bytes(shown.feed_text(text).encode("utf-8", "replace"))
                elif code == "r" and (recorded := SIZE.fullmatch(text)):
                    cols, rows = int(recorded[1]), int(recorded[2])
                    if cols > size.columns or rows > size.lines:
                        write_bytes(f"\x1b]2;recorded at {cols}x{rows}, this terminal is smaller\x07".encode())
            return 0
        finally:
            write_bytes(RESET)
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
            remark("")

    def _wait(self, seconds: float) -> bool:
        """Wait that long and handle keys; return False if the person ends the playback."""
        until = time.monotonic() + seconds
        paused = False
        while paused or time.monotonic() < until:
            left = None if paused else max(0.0, until - time.monotonic())
            if not select.select([sys.stdin], [], [], left)[0]:
                return True
            key = os.read(sys.stdin.fileno(), 1)
            if key in (b"q", b"\x03", b"\x04", b""):
                return False
            if key == b" ":
                paused = not paused
            elif key in _FASTER:
                self._speed = min(100.0, max(0.1, self._speed * _FASTER[key]))
        return True
