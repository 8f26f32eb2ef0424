"""A client of ``ccswarm feed``."""

from __future__ import annotations

import json
import os
import selectors
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.ccswarm.support.verbs import ROOT
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS
from tests.support.forked import Forked


class Feed:
    """A running feed. ``hello`` is its first line."""

    def __init__(self, process: Forked) -> None:
        self._process = process
        self._held = b""
        self._number = 0
        self._changes = 0
        self.hello = self._next()

    def _next(self) -> dict[str, Any]:
        assert self._process.stdout
        deadline = time.monotonic() + BOUND_SECONDS
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._held:
                assert ready.select(deadline - time.monotonic()), "it is silent"
                data = os.read(self._process.stdout.fileno(), 1 << 16)
                assert data, "it has gone"
                self._held += data
        line, _, self._held = self._held.partition(b"\n")
        return json.loads(line)

    def write(self, line: bytes) -> dict[str, Any]:
        """Send a line and return the response."""
        assert self._process.stdin
        self._process.stdin.write(line + b"\n")
        while (message := self._next()).get("event") == "changed":
            self._changes += 1
        return message

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and return its result, or its error as ``error``."""
        self._number += 1
        line = json.dumps({"id": self._number, "method": method, "params": params})
        response = self.write(line.encode())
        assert response["id"] == self._number
        return response.get("result") or {"error": response["error"]}

    def changed(self) -> None:
        """Wait for a notice of a change since the last call."""
        if not self._changes:
            assert self._next() == {"event": "changed"}
        self._changes = 0

    def end(self) -> int:
        """Close its input and return its exit code."""
        assert self._process.stdin
        self._process.stdin.close()
        return self._process.wait(BOUND_SECONDS)


@contextmanager
def feed(directory: Path, **more: str) -> Iterator[Feed]:
    """Yield a feed started in a directory, with ``more`` in its environment."""
    env: Mapping[str, str] = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    process = forked.piped("ccswarm", ["feed"], cwd=directory, env=env, reads=True)
    try:
        yield Feed(process)
    finally:
        process.close()
