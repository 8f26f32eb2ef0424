"""The Python API: a command by it, by the bare socket and by the command line; many at once; memory of sessions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ai_session
from ai_session.client.connection import connect
from ai_session.system.membership import members
from benchmarks.report import Report, median_ms
from benchmarks.size import sized
from benchmarks.startup import resident_mb
from benchmarks.wire import UNLIMITED

ROUNDS, BATCH, VERBS, SESSIONS, AT_ONCE, OPEN = sized((8, 50, 5, 20, 1000, 100), (1, 2, 1, 2, 4, 3))
QUICK = {
    "AI_SESSION_SANDBOX_PROFILE": "trusted",
    "AI_SESSION_POLICY_MODE": "trusted",
    "AI_SESSION_SESSION_MAX_SESSIONS": "200",
    "AI_SESSION_SESSION_MAX_SESSIONS_PER_OWNER": "150",
}


async def run(report: Report, directory: Path) -> None:
    os.environ.update(UNLIMITED | QUICK)
    try:
        await asyncio.to_thread(round_trip, report, directory)
        await many(report)
        await asyncio.to_thread(memory, report)
    finally:
        with connect() as daemon:
            daemon.request("stop", sessions=True)
            daemon.wait_closed()


def round_trip(report: Report, directory: Path) -> None:
    """Run ``:`` in all three ways in one session, interleaved."""
    report.title(
        "A trivial command (`:`) in one session: bare socket, also with a key for the call, Python API, command line"
    )
    with ai_session.open("bench", shell="bash", backend="pty", directory=directory) as session, connect() as link:
        what = {"session_id": session.id, "command": ":"}
        verb = [sys.executable, "-m", "ai_session", "exec", "bench", ":"]
        ways: dict[str, tuple[int, Callable[[], Any]]] = {
            "bare socket": (BATCH, lambda: link.call("execute_command", **what)),
            "with a key": (BATCH, lambda: link.call("execute_command", **what, call_key=os.urandom(12).hex())),
            "Session.run": (BATCH, lambda: session.run(":")),
            "verb": (VERBS, lambda: subprocess.run(verb, check=True, capture_output=True)),
        }
        samples: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, (count, once) in ways.items():
                for _ in range(count):
                    begun = time.perf_counter()
                    once()
                    samples[name].append(time.perf_counter() - begun)
        report.row("bare socket", median_ms(samples["bare socket"]), "ms")
        floor = median_ms(samples["with a key"])
        report.row("with a key, which is recorded before it runs (floor)", floor, "ms")
        report.row("Session.run", median_ms(samples["Session.run"]), "ms", floor=floor, most_ratio=1.5)
        report.row("ai-session exec", median_ms(samples["verb"]), "ms", floor=floor)
        session.close()


async def many(report: Report) -> None:
    """Await many commands; each session runs one at a time, so a lock keeps those of one session in line."""
    report.title(f"{AT_ONCE} awaited commands at once, in {SESSIONS} sessions")
    sessions = await asyncio.gather(*(ai_session.aio.open(f"many-{number}") for number in range(SESSIONS)))
    turns = [asyncio.Lock() for _ in sessions]

    async def one(number: int) -> str:
        which = number % SESSIONS
        async with turns[which]:
            return (await sessions[which].run(f"echo {number}")).output

    begun = time.perf_counter()
    outputs = await asyncio.gather(*map(one, range(AT_ONCE)))
    seconds = time.perf_counter() - begun
    assert outputs == [f"{number}\n" for number in range(AT_ONCE)]
    report.row("all of them", seconds, "s")
    report.row("  each", seconds / AT_ONCE * 1e3, "ms")
    await asyncio.gather(*(session.close() for session in sessions))


def memory(report: Report) -> None:
    """Measure the memory that a session adds to the daemon, and that of its holder and shell."""
    report.title(f"{OPEN} open sessions on pty")
    with connect() as link:
        pid = int(link.hello["pid"])
    before = resident_mb(pid)
    opened = [ai_session.open(f"open-{number}", shell="bash", backend="pty") for number in range(OPEN)]
    report.row("memory of the daemon, a session", (resident_mb(pid) - before) / OPEN, "MB", most=0.5)
    cookies = [session.run("echo $AI_SESSION_ID").output.strip() for session in opened[:3]]
    own = sum(resident_mb(member) for cookie in cookies for member in members(cookie))
    report.row("memory of its holder and shell, shared pages with them", own / len(cookies), "MB")
    mine = resident_mb(os.getpid())
    report.row("memory of this program", mine, "MB")
    for session in opened:
        session.close()
