"""The person protocol: the effect of a flood in one of twenty streams on another's keys, and of a torn connection."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles

import ai_session
from ai_session.client.connection import connect
from ai_session.terminal.marks import strip_marks
from benchmarks import plain_relay
from benchmarks.report import Report, median_ms
from benchmarks.size import sized
from benchmarks.wire import UNLIMITED
from tests.ai_session.support.mcp_client import runtime
from tests.ai_session.support.person_client import Person

STREAMS, ROUNDS, KEYS, GAP_SECONDS = sized((20, 4, 100, 0.01), (3, 1, 5, 0.001))
TEARS, LINES = sized((200, 2_000_000), (3, 20_000))
QUICK = {"AI_SESSION_SANDBOX_PROFILE": "trusted", "AI_SESSION_POLICY_MODE": "trusted"}
WINDOW_BYTES = 65536
FLOOD = "yes 'a line of a flood that goes on and on and on'"
PLAIN = {"a plain relay": (), "a plain relay, flooded": (FLOOD,)}
LAST, LAST_BYTES = b"over\r\n", 2 * WINDOW_BYTES


async def run(report: Report, directory: Path) -> None:
    os.environ.update(UNLIMITED | QUICK)
    try:
        await asyncio.to_thread(measure_flood, report, directory)
        await asyncio.to_thread(measure_reconnections, report, directory)
    finally:
        with connect() as daemon:
            daemon.request("stop", sessions=True)
            daemon.wait_closed()


def measure_flood(report: Report, directory: Path) -> None:
    """Measure the same keys without and with the flood, alternating; and the effect of a flood on a relay without our
    code, which is the least for any relay of terminals."""
    report.title(f"{STREAMS} streams on one connection: key to echo in one, while another prints flat out")
    opened = [ai_session.open(f"s{number}", shell="bash", backend="pty") for number in range(STREAMS)]
    with Person(directory) as person:
        streams = [person.done("stream", session=session.id)["stream"] for session in opened]
        for stream in streams:
            person.event("screen", stream)
        typed, flood = opened[1], opened[0]
        person.done("take_over", session=typed.id, who="a benchmark")
        samples: dict[str, list[float]] = {name: [] for name in (*PLAIN, "quiet", "as much work elsewhere", "flooded")}
        printed = seconds = 0.0
        for _ in range(ROUNDS):
            for name, commands in PLAIN.items():
                samples[name] += plain_keys(directory, *commands)
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
    p95 = {name: quantiles(found, n=20)[-1] * 1e3 for name, found in samples.items()}
    plain, plain_flooded = (p95[name] for name in PLAIN)
    report.row("a plain relay, p95", plain, "ms")
    report.row("a plain relay, flooded, p95", plain_flooded, "ms", floor=plain)
    report.row("quiet, p95", p95["quiet"], "ms")
    report.row("as much work elsewhere, p95", p95["as much work elsewhere"], "ms", floor=p95["quiet"])
    report.row("flooded, p95", p95["flooded"], "ms", floor=p95["quiet"], note=f"at {printed / seconds / 1e6:.0f} MB/s")
    alike = p95["quiet"] * max(1.0, plain_flooded / plain)
    report.row("beside quiet, slowed as the plain relay was", p95["flooded"], "ms", floor=alike, most_ratio=1.5)
    for session in opened:
        session.close()


def plain_keys(directory: Path, *commands: str) -> list[float]:
    """Measure the same keys through the minimal relay between a terminal and a socket."""
    ours, theirs = socket.socketpair()
    relay = [sys.executable, "-I", "-S", plain_relay.__file__, str(directory / "plain"), *commands]
    with ours, subprocess.Popen(relay, stdin=theirs.fileno()) as running:
        theirs.close()
        ours.sendall(b"echo rea''dy\r")

        def shown(key: bytes) -> None:
            seen = b""
            while key not in seen:
                seen += ours.recv(1 << 16)

        shown(b"ready\r\n")
        found = timed_keys(ours.sendall, shown)
        ours.shutdown(socket.SHUT_RDWR)
        running.wait()
    return found


@contextmanager
def elsewhere() -> Generator[None]:
    """Take as much of the machine as the flood, away from the daemon: a writer, a reader, and a user of the output."""
    with subprocess.Popen(["sh", "-c", f"{FLOOD} | cat | wc -l"], stdout=subprocess.DEVNULL, process_group=0) as busy:
        try:
            yield
        finally:
            os.killpg(busy.pid, signal.SIGKILL)


def keys(person: Person, session: str, stream: int) -> list[float]:
    """Measure each key from when it is typed to when its echo arrives."""

    def shown(key: bytes) -> None:
        person.output(stream, lambda output: key in output)
        person.events.clear()

    found = timed_keys(lambda key: person.tell("type", key, session_id=session), shown)
    person.tell("type", b"\x15", session_id=session)
    return found


def timed_keys(send: Callable[[bytes], object], shown: Callable[[bytes], None]) -> list[float]:
    """Return the seconds of each key."""
    found: list[float] = []
    for number in range(KEYS):
        key = b"abcdefghij"[number % 10 : number % 10 + 1]
        begun = time.perf_counter()
        send(key)
        shown(key)
        found.append(time.perf_counter() - begun)
        select.select((), (), (), GAP_SECONDS)
    return found


def measure_reconnections(report: Report, directory: Path) -> None:
    """Read on from the last received byte, whenever the connection is cut."""
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
