"""Ways to run a command without ai-session: a shell for each command, pexpect's replwrap, tmux polled or signalled."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

Once = Callable[[], None]
REPLWRAP: Any = import_module("pexpect.replwrap")  # without types


class UsedToday:
    """Ways to run ``:`` and to detect its end, by name."""

    def __init__(self, directory: Path) -> None:
        self._tmux = ["tmux", "-S", str(directory / "others"), "-f", "/dev/null"]
        self._repl = REPLWRAP.bash()
        self._number = 0
        subprocess.run([*self._tmux, "new-session", "-d", "-x", "80", "-y", "24", "bash --norc"], check=True)
        self.ways: dict[str, Once] = {
            "a new `bash -c` each time": self._new_shell,
            "pexpect's replwrap": self._replwrap,
            "tmux, its screen polled": self._polled,
            "tmux wait-for": self._signalled,
        }

    def seconds(self, way: str) -> float:
        """Return the seconds of one command."""
        start = time.perf_counter()
        self.ways[way]()
        return time.perf_counter() - start

    def _new_shell(self) -> None:
        subprocess.run(["bash", "-c", ":"], check=True)

    def _replwrap(self) -> None:
        self._repl.run_command(":")

    def _type(self, line: str) -> None:
        subprocess.run([*self._tmux, "send-keys", line, "Enter"], check=True)

    def _polled(self) -> None:
        """Wait for a line of its own: the screen shows no other sign of the end."""
        self._number += 1
        self._type(f":; echo end-$(({self._number}))")
        while f"\nend-{self._number}\n" not in self._screen():
            pass

    def _screen(self) -> str:
        return subprocess.run([*self._tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True).stdout

    def _signalled(self) -> None:
        self._type(f":; {' '.join(self._tmux)} wait-for -S end")
        subprocess.run([*self._tmux, "wait-for", "end"], check=True)

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=True)
        self._repl.child.close(force=True)
