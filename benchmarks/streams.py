"""The person protocol: what a flood in one of twenty streams costs the keys of another, and what a torn connection
costs its reader."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles

import ai_session
from ai_session.client.connection import connect
from ai_session.terminal.marks import strip_marks
from benchmarks.report import Report, median_ms
from benchmarks.size import sized
from benchmarks.wire import UNLIMITED
from tests.ai_session.contract.person_wire import Person
from tests.ai_session.contract.wire import runtime

STREAMS, ROUNDS, KEYS, GAP_SECONDS = sized((20, 4, 100, 0.01), (3, 1, 5, 0.001))
TEARS, LINES = sized((200, 2_000_000), (3, 20_000))
QUICK = {"AI_SESSION_SANDBOX_PROFILE": "trusted", "AI_SESSION_POLICY_MODE": "trusted"}
WINDOW_BYTES = 65536
FLOOD = "yes 'a line of a flood that goes on and on and on'"
LAST, LAST_BYTES = b"over\r\n", 2 * WINDOW_BYTES


async def run(report: Report, directory: Path) -> None:
    """One daemon for both."""
    os.environ.update(UNLIMITED | QUICK)
    try:
        await asyncio.to_thread(flooded, report, directory)
        await asyncio.to_thread(torn, report, directory)
    finally:
        with connect() as daemon:
            daemon.request("stop", sessions=True)
            daemon.wait_closed()


def flooded(report: Report, directory: Path) -> None:
    """The same keys without and with the flood, in turns."""
    report.title(f"{STREAMS} streams on one connection: key to echo in one, while another prints flat out")
    opened = [ai_session.open(f"s{number}", shell="bash", backend="pty") for number in range(STREAMS)]
    with Person(directory) as person:
        streams = [person.done("stream", session=session.id)["stream"] for session in opened]
        for stream in streams:
            person.event("screen", stream)
        typed, flood = opened[1], opened[0]
        person.done("take_over", session=typed.id, who="a benchmark")
        samples: dict[str, list[float]] = {"quiet": [], "as much work elsewhere": [], "flooded": []}
        printed = seconds = 0.0
        for _ in range(ROUNDS):
            samples["quiet"] += keys(person, typed.id, streams[1])
            with elsewhere():
                samples["as much work elsewhere"] += keys(person, typed.id, streams[1])
            begun, from_byte = time.perf_counter(), flood.info().facts["output_bytes"]
            running = flood.start(FLOOD)
            samples["flooded"] += keys(person, typed.id, streams[1])
            printed += flood.info().facts["output_bytes"] - from_byte
            seconds += time.perf_counter() - begun
            running.interrupt()
    for name, found in samples.items():
        report.row(f"{name}, median", median_ms(found), "ms")
    quiet, busy, value = (quantiles(found, n=20)[-1] * 1e3 for found in samples.values())
    report.row("quiet, p95", quiet, "ms")
    report.row("as much work elsewhere, p95", busy, "ms", floor=quiet)
    report.row("flooded, p95", value, "ms", floor=quiet, most_ratio=1.5, note=f"at {printed / seconds / 1e6:.0f} MB/s")
    for session in opened:
        session.close()


@contextmanager
def elsewhere() -> Generator[None]:
    """What the flood takes of the machine, away from the daemon: who prints, who reads, and who makes something of
    it."""
    with subprocess.Popen(["sh", "-c", f"{FLOOD} | cat | wc -l"], stdout=subprocess.DEVNULL, process_group=0) as busy:
        try:
            yield
        finally:
            os.killpg(busy.pid, signal.SIGKILL)


def keys(person: Person, session: str, stream: int) -> list[float]:
    """Each from when it is typed to when it is shown."""
    found: list[float] = []
    for number in range(KEYS):
        key = b"abcdefghij"[number % 10 : number % 10 + 1]
        begun = time.perf_counter()
        person.tell("type", key, session_id=session)
        person.output(stream, lambda shown, key=key: key in shown)
        found.append(time.perf_counter() - begun)
        person.events.clear()
        select.select((), (), (), GAP_SECONDS)
    person.tell("type", b"\x15", session_id=session)
    return found


def torn(report: Report, directory: Path) -> None:
    """The reader goes on from the last byte it has, as often as its connection is cut."""
    report.title(f"A reader whose connection is cut {TEARS} times while a session prints")
    with ai_session.open("torn", shell="bash", backend="pty") as session:
        first = session.info().facts["output_bytes"]
        running = session.start(f"seq 1 {LINES}; echo ov''er")
        at, taken, tears, begun = first, bytearray(), 0, time.perf_counter()
        while LAST not in taken[-LAST_BYTES:]:
            with Person(directory) as person:
                stream = person.done("stream", session="torn", offset=at, exact=True, window_bytes=WINDOW_BYTES)
                while LAST not in taken[-LAST_BYTES:]:
                    event = person.event("output", stream["stream"])
                    assert event.facts["offset"] == at, "neither a gap nor a piece twice"
                    at = event.facts["next"]
                    taken += event.data
                    if tears < TEARS:
                        break
            tears += 1
        seconds = time.perf_counter() - begun
        running.wait()
        folder = runtime(directory) / "sessions" / session.id
        nonce = json.loads((folder / "spec.json").read_text())["nonce"]
        kept = strip_marks((folder / "log").read_bytes()[first:at], nonce)
        report.row("connections", tears, "")
        report.row("bytes that differ from the log", float(kept != bytes(taken)), "", most=0)
        report.row("read", len(taken) / 1e6, "MB", note=f"{len(taken) / 1e6 / seconds:.1f} MB/s")
        session.close()
