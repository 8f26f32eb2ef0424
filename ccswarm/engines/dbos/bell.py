"""Wakes the threads that look for queued work only when there may be some."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

QUIET_SECONDS = 2.0
"""Longest between two looks while something is queued, for what becomes possible without a change: a limit of starts
within a time."""

IDLE_SECONDS = 60.0
"""Longest between two looks anyway: nobody depends on it."""

LOOKING = "queue-worker-"
"""How the names of these threads begin."""

log = logging.getLogger(__name__)


class Changes(Protocol):
    """Where it is heard that something changed in the store. Used by one thread; ``wake`` by any."""

    def heard(self, seconds: float) -> bool:
        """Whether something changed since the last call, as soon as it does; False after the time at the latest."""
        ...

    def queued(self) -> bool:
        """Whether anything is queued now; True if that is unknown."""
        ...

    def wake(self) -> None:
        """``heard`` returns."""
        ...

    def close(self) -> None:
        """Nobody listens any more."""
        ...


class Doorbell:
    """What dbos waits at between two looks, in place of the event that says it is ``stopping``. It looks at once where
    something was queued, and no more often than every ``seconds``."""

    def __init__(self, stopping: threading.Event, seconds: float, changes: Callable[[], Changes]) -> None:
        self._stopping = stopping
        self._seconds = seconds
        self._open = changes
        self._ringing = threading.Condition()
        self._count = 0
        self._heard = threading.local()
        self._changes: Changes | None = None
        self._listening = threading.Thread(target=self._listen, name="ccswarm-bell", daemon=True)

    def is_set(self) -> bool:
        """Whether the event is set."""
        return self._stopping.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """As of the event. Who looks for work waits until there may be some, and who looks for queues waits for the
        end: there are no others than at the beginning."""
        if not threading.current_thread().name.startswith(LOOKING):
            self._stopping.wait()
            self.ring()  # it waits for those who look before it returns, and only then ``stop`` is called
            return True
        with self._ringing:
            self._ringing.wait_for(lambda: self._count != getattr(self._heard, "count", -1), IDLE_SECONDS)
            self._heard.count = self._count
        return self._stopping.is_set()

    def start(self) -> None:
        """It rings from now on, until it is stopped."""
        self._changes = self._open()
        self._listening.start()

    def stop(self) -> None:
        """After ``stopping`` was set; who waits returns."""
        if self._changes:
            self._changes.wake()
            self._listening.join()
            self._changes.close()

    def ring(self) -> None:
        """Whoever waits looks."""
        with self._ringing:
            self._count += 1
            self._ringing.notify_all()

    def _listen(self) -> None:
        changes, waiting = self._changes, True
        assert changes
        while not self._stopping.is_set():
            if changes.heard(QUIET_SECONDS if waiting else IDLE_SECONDS) or waiting:
                if waiting := changes.queued():
                    self.ring()
                self._stopping.wait(self._seconds)
        self.ring()
