"""Notices to a person, sent by a real program that writes each as a line into a FIFO."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.bounds import BOUND_SECONDS


@dataclass
class NoticeReader:
    program: Path
    fd: int
    held: bytes = b""

    def next(self) -> dict[str, Any]:
        """Wait for the next notice and return it."""
        while b"\n" not in self.held:
            assert select.select([self.fd], [], [], BOUND_SECONDS)[0], "no notice was sent"
            self.held += os.read(self.fd, 1 << 16)
        line, _, self.held = self.held.partition(b"\n")
        return json.loads(line)


@contextmanager
def reading_notices(folder: Path) -> Iterator[NoticeReader]:
    """Create the program in ``folder`` and yield the notices it sends."""
    fifo, program = folder / "told", folder / "tell"
    os.mkfifo(fifo)
    program.write_text(f"#!/bin/sh\nline=$(cat)\nprintf '%s\\n' \"$line\" > {fifo}\n")
    program.chmod(0o755)
    fd = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    try:
        yield NoticeReader(program, fd)
    finally:
        os.close(fd)
