"""Stops processes, so that they do nothing more until they are continued."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.support.bounds import BOUND_SECONDS


def stop(pid: int) -> None:
    """Send SIGSTOP and wait until the process has stopped: until then it may still return from the call it is in."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + BOUND_SECONDS
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < end, f"{pid} does not stop"
