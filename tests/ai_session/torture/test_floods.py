"""One session prints as fast as it can, whatever it prints: others are answered, and the disk does not fill."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import pytest

from agentwire import plugins
from ai_session.client.connection import ControlClient, connect
from benchmarks.flood import ALL, flooding, on_disk, session_folder, written
from tests.ai_session.torture.kills import daemon, spin
from tests.support.processor_time import once_within

MEGABYTE = 1 << 20
RETAIN_BYTES, SPARE_BYTES = 4 * MEGABYTE, 16 * MEGABYTE
AT_ONCE_SECONDS = 0.25
LONG_SECONDS = 20.0

EVERY = [(backend, kind) for backend in plugins.names("ai_session.backends") for kind in ALL]
DAILY = ("pty", "marks")
MORE = [("tmux", "120 MB line"), ("pty", "csi"), ("tmux", "marks")]


@pytest.fixture(autouse=True)
def little_is_kept(home: object) -> None:
    del home
    os.environ["AI_SESSION_SESSION_RETAIN_BYTES"] = str(RETAIN_BYTES)
    for kind in ("READ", "EFFECT"):
        os.environ[f"AI_SESSION_RATES_{kind}_PER_MINUTE"] = "1000000"


class Flood:
    """A session that floods, and one beside it on the same backend."""

    def __init__(self, client: ControlClient, backend: str, kind: str) -> None:
        self._client = client
        client.call("create_session", name="victim", backend=backend)
        made = client.call("create_session", name="flood", backend=backend).structured
        self.folder = session_folder(made["session_id"])
        self.before = written(self.folder)
        client.call("execute_command", session_id="flood", command=flooding(kind), timeout_seconds=0)

    @property
    def printed(self) -> int:
        return written(self.folder) - self.before

    def attempt(self, call: Callable[[], None]) -> float:
        """How long a call takes; the flood keeps to the disk it may have, before and after."""
        begun = time.perf_counter()
        call()
        seconds = time.perf_counter() - begun
        assert on_disk(self.folder) <= RETAIN_BYTES + SPARE_BYTES
        return seconds

    def run(self) -> None:
        ran = self._client.call("execute_command", session_id="victim", command="echo here").structured
        assert (ran["output"], ran["exit_code"]) == ("here\n", 0)

    def look(self) -> None:
        assert len(self._client.call("list_sessions").structured["sessions"]) == 2

    def read(self) -> None:
        """Of the flood itself, which takes as long as it takes."""
        self._client.call("read_output", session_id="flood", tail_lines=5)

    def stop(self) -> None:
        """Whatever it prints, it can be ended, and its session used again."""
        self._client.call("close_session", session_id="flood")
        made = self._client.call("create_session", name="flood").structured
        assert made["state"] == "ready"


@pytest.mark.parametrize(
    ("backend", "kind"), [DAILY, *(pytest.param(*case, marks=pytest.mark.torture) for case in MORE)]
)
def test_others_are_answered_during_a_flood(backend: str, kind: str) -> None:
    with daemon(), connect() as client:
        flood = Flood(client, backend, kind)
        spin(lambda: flood.printed > RETAIN_BYTES + SPARE_BYTES, "it does not flood")
        for call in (flood.run, flood.look):
            once_within(AT_ONCE_SECONDS, lambda call=call: flood.attempt(call))
        flood.read()
        flood.stop()


@pytest.mark.torture
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("backend", "kind"), EVERY)
def test_others_are_answered_for_as_long_as_a_flood_lasts(backend: str, kind: str) -> None:
    with daemon(), connect() as client:
        flood = Flood(client, backend, kind)
        took, end = list[float](), time.monotonic() + LONG_SECONDS
        while time.monotonic() < end:
            took += [flood.attempt(call) for call in (flood.run, flood.look)]
        assert statistics.median(took) <= AT_ONCE_SECONDS
        flood.read()
        flood.stop()
