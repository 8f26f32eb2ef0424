"""Wakes the threads that look for queued work only when there may be some."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

QUIET_SECONDS = 2.0
"""The longest wait while something is queued that may become possible without a change, as by a limit of starts."""

IDLE_SECONDS = 60.0
"""The longest wait in any case. Nothing depends on it."""

POLLING_THREADS = "queue-worker-"
"""The beginning of these threads' names."""

log = logging.getLogger(__name__)


class Changes(Protocol):
    """A source of notifications that the store changed. One thread uses it; any may call ``wake``."""

    def wait_for_change(self, seconds: float) -> bool:
        """Wait until something changes, or that long. Report whether it changed since the last call."""
        ...

    def queued(self) -> bool:
        """Report whether anything is queued now; true if unknown."""
        ...

    def wake(self) -> None:
        """End the current wait."""
        ...

    def close(self) -> None:
        """Stop listening."""
        ...


class Doorbell:
    """A replacement for the event on which dbos waits between two polls until ``stopping`` is set. It lets dbos poll at
    once when something was queued, and at most every ``seconds``."""

    def __init__(self, stopping: threading.Event, seconds: float, changes: Callable[[], Changes]) -> None:
        self._stopping = stopping
        self._seconds = seconds
        self._open = changes
        self._ringing = threading.Condition()
        self._count = 0
        self._seen = threading.local()
        self._changes: Changes | None = None
        self._listening = threading.Thread(target=self._listen, name="ccswarm-bell", daemon=True)

    def is_set(self) -> bool:
        """Report whether ``stopping`` is set."""
        return self._stopping.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait as on the event. Threads that poll wait until there may be work. The thread that manages queues waits
        for the end, since no queues are added later."""
        if not threading.current_thread().name.startswith(POLLING_THREADS):
            self._stopping.wait()
            self.ring()  # it joins the polling threads before it returns, and only then ``stop`` is called
            return True
        with self._ringing:
            self._ringing.wait_for(lambda: self._count != getattr(self._seen, "count", -1), IDLE_SECONDS)
            self._seen.count = self._count
        return self._stopping.is_set()

    def start(self) -> None:
        """Start to listen for changes."""
        self._changes = self._open()
        self._listening.start()

    def stop(self) -> None:
        """Stop listening, after ``stopping`` was set. Waiting threads return."""
        if self._changes:
            self._changes.wake()
            self._listening.join()
            self._changes.close()

    def ring(self) -> None:
        """Wake all waiting threads."""
        with self._ringing:
            self._count += 1
            self._ringing.notify_all()

    def _listen(self) -> None:
        changes, waiting = self._changes, True
        assert changes
        while not self._stopping.is_set():
            if changes.wait_for_change(QUIET_SECONDS if waiting else IDLE_SECONDS) or waiting:
                if waiting := changes.queued():
                    self.ring()
                self._stopping.wait(self._seconds)
        self.ring()
