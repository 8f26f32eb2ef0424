"""What goes over the wire, on standard error, where ORCHESTRE_DEBUG asks for it: without secrets."""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

from ccswarm.config import config
from ccswarm.servers.mcp.toolsets.orchestre.redaction import Redaction

MOST_WAITING = 1000
"""Most lines that may wait to be read from standard error; further ones are dropped."""


def _print(line: str) -> None:
    sys.stderr.write(line)
    sys.stderr.flush()


class Trace:
    """One line for each message, in a thread of its own: whoever does not read them holds nothing up."""

    def __init__(self, write: Callable[[str], None] = _print) -> None:
        self._redaction = Redaction(config.server_environment())
        self._write = write
        self._lines: queue.Queue[str] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._keep_writing, daemon=True)
        self._thread.start()

    def received(self, line: bytes) -> None:
        """A line as it came."""
        try:
            self._tell("<-", json.loads(line))
        except (ValueError, RecursionError):
            self._tell("<-", line.decode(errors="replace").rstrip("\r\n"))

    def sent(self, message: dict[str, Any]) -> None:
        """A message as it goes."""
        self._tell("->", message)

    def close(self, seconds: float) -> None:
        """Returns when all is written, and after that time."""
        try:
            self._lines.put("", timeout=seconds)
            self._thread.join(seconds)
        except queue.Full:
            pass

    def _tell(self, way: str, value: Any) -> None:
        shown = self._redaction(value)
        text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, separators=(",", ":"))
        try:
            self._lines.put_nowait(f"[MCP] {way} {text.encode(errors='replace').decode()}\n")
        except queue.Full:
            pass

    def _keep_writing(self) -> None:
        while line := self._lines.get():
            try:
                self._write(line)
            except (OSError, ValueError):
                return
