"""What the threads of dbos wait at between two looks for work."""

from __future__ import annotations

import threading

from ccswarm.engines.dbos.bell import IDLE_SECONDS, POLLING_THREADS, Doorbell
from tests.support.bounds import BOUND_SECONDS


class Silence:
    """A store in which nothing changes; ``idle`` is set once nothing is expected either."""

    def __init__(self) -> None:
        self.idle = threading.Event()
        self._woken = threading.Event()

    def wait_for_change(self, seconds: float) -> bool:
        if seconds == IDLE_SECONDS:
            self.idle.set()
            self._woken.wait(BOUND_SECONDS)
        return False

    def queued(self) -> bool:
        return False

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        assert self._woken.is_set()


def test_whoever_looks_ends_before_it_is_waited_for() -> None:
    """As dbos has it: the thread that starts those who look joins them when all is to end, each ten seconds at most."""
    silence, stopping, looking = Silence(), threading.Event(), threading.Barrier(3)
    doorbell = Doorbell(stopping, 0.01, lambda: silence)

    def look() -> None:
        assert not doorbell.wait(1.0)  # the first look waits for nothing
        looking.wait(BOUND_SECONDS)
        while not doorbell.wait(1.0):
            pass

    def manage() -> None:
        doorbell.wait(1.0)
        for thread in lookers:
            thread.join(IDLE_SECONDS / 4)
        left.extend(thread for thread in lookers if thread.is_alive())

    lookers = [threading.Thread(target=look, name=f"{POLLING_THREADS}{name}", daemon=True) for name in "ab"]
    manager, left = threading.Thread(target=manage, daemon=True), list[threading.Thread]()
    doorbell.start()
    for thread in (*lookers, manager):
        thread.start()
    looking.wait(BOUND_SECONDS)
    assert silence.idle.wait(BOUND_SECONDS)
    stopping.set()
    manager.join(BOUND_SECONDS)
    assert not manager.is_alive()
    assert not left
    doorbell.stop()
