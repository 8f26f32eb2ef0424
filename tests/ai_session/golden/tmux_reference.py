"""What tmux makes of the same bytes: the second opinion on every screen."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.bounds import BOUND_SECONDS, pause

DRAWN = "all bytes drawn"
FACTS = "#{pane_title}|#{cursor_y}|#{cursor_x}|#{alternate_on}|#{cursor_flag}"
STYLE = re.compile(r"\x1b\[[0-9;:]*m|\x1b\]8;[^\x1b]*\x1b\\")
LINE_DRAWING = str.maketrans("`afgijklmnopqrstuvwxyz{|}~", "◆▒°±␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")


@dataclass(frozen=True)
class Drawn:
    """``lines`` without trailing blanks."""

    lines: tuple[str, ...]
    cursor_row: int
    cursor_col: int
    alternate_screen: bool
    cursor_visible: bool


class TmuxReference:
    """A private tmux server. A title set behind the stream tells that all of it was drawn."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._streams = 0
        self._socket = directory / "t"
        configuration = directory / "tmux.conf"
        configuration.write_text("set -g status off\nset -g default-command 'exec cat'\nset -g exit-empty off\n")
        self._client = subprocess.Popen(
            ["tmux", "-u", "-S", str(self._socket), "-f", str(configuration), "-C", "new-session"],
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._answer()

    def ask(self, *words: str) -> str:
        """What a command prints. One client asks all of them, so that none needs a process."""
        assert self._client.stdin
        self._client.stdin.write(shlex.join(words).encode() + b"\n")
        self._client.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._client.stdout
        lines = iter(self._client.stdout.readline, b"")
        assert any(line.startswith(b"%begin ") for line in lines), "tmux has ended"
        said: list[bytes] = []
        for line in lines:
            if line.startswith((b"%end ", b"%error ")):
                assert line.startswith(b"%end "), said
                break
            said.append(line)
        return b"".join(said).decode()

    def draw(self, data: bytes, rows: int, cols: int) -> Drawn:
        self._streams += 1
        name = f"s{self._streams}"
        stream = self._directory / name
        stream.write_bytes(data + f"\x1b]2;{DRAWN}\x07".encode())
        shell = f"stty raw -echo; cat {stream}; exec cat"
        self.ask("new-session", "-d", "-s", name, "-x", str(cols), "-y", str(rows), shell)
        deadline = time.monotonic() + BOUND_SECONDS
        while not (facts := self.ask("display-message", "-p", "-t", name, FACTS).strip()).startswith(DRAWN):
            assert time.monotonic() < deadline, facts
            pause()
        lines = as_shown(self.ask("capture-pane", "-pe", "-t", name))[:rows]
        self.ask("kill-session", "-t", name)
        row, col, alternate, shown = (int(fact) for fact in facts.split("|")[1:])
        # With a wrap pending tmux counts one column more than there is.
        return Drawn((*lines, *[""] * (rows - len(lines))), row, min(col, cols - 1), bool(alternate), bool(shown))

    def close(self) -> None:
        self.ask("kill-server")
        self._client.communicate(timeout=BOUND_SECONDS)


def as_shown(captured: str) -> list[str]:
    """tmux gives line drawing as the letters it was sent as, between shift-out and shift-in."""
    plain, *drawn = STYLE.sub("", captured).split("\x0e")
    for part in drawn:
        letters, _, rest = part.partition("\x0f")
        plain += letters.translate(LINE_DRAWING) + rest
    return [line.rstrip(" ") for line in plain.split("\n")]


@contextmanager
def tmux_reference(directory: Path) -> Iterator[TmuxReference]:
    opened = TmuxReference(directory)
    try:
        yield opened
    finally:
        opened.close()
