"""Many sessions, and one long-used session: creation, idle processor time, memory and descriptors."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from agentwire import plugins
from ai_session.sessions import wait
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.session import Session
from ai_session.sessions.spec import NewSession, SessionDefaults
from benchmarks.report import Report, median_ms
from benchmarks.size import sized
from benchmarks.startup import resident_mb

SESSIONS, COMMANDS, EACH, BEFORE = sized((50, 10_000, 40, 500), (2, 5, 2, 2))
EXTRAS = sized(10, 1)
IDLE_SECONDS = sized(3.0, 0.01)


async def run(report: Report, directory: Path) -> None:
    for backend in plugins.names("ai_session.backends"):
        report.title(f"{SESSIONS} sessions and {COMMANDS} commands on {backend}")
        (directory / backend).mkdir(mode=0o700)
        manager = SessionManager(directory / backend, SessionDefaults(backend=backend, user_rc=False, max_sessions=99))
        first = await manager.create(request("first"))
        start = time.perf_counter()
        sessions = await asyncio.gather(*(manager.create(request(f"s{n}")) for n in range(SESSIONS)))
        report.row(f"{SESSIONS} created at once", time.perf_counter() - start, "s", most=0.5)
        one: list[float] = []
        for number in range(EXTRAS):
            start = time.perf_counter()
            extra = await manager.create(request(f"x{number}"))
            one.append(time.perf_counter() - start)
            await manager.close(extra)
        report.row("one created", median_ms(one), "ms")
        start, busy = time.perf_counter(), time.process_time()
        await asyncio.wait((asyncio.get_running_loop().create_future(),), timeout=IDLE_SECONDS)
        busy = time.process_time() - busy
        report.row("processor time while idle", busy / (time.perf_counter() - start) * 100, "%", most=0.5)
        start = time.perf_counter()
        await asyncio.gather(*(repeat(s, EACH) for s in sessions))
        report.row("commands a second over all sessions", SESSIONS * EACH / (time.perf_counter() - start), "/s")
        await asyncio.gather(*(manager.close(s) for s in sessions))
        await repeat(first, BEFORE)
        memory, descriptors = resident_mb(os.getpid()), len(os.listdir("/proc/self/fd"))
        start = time.perf_counter()
        await repeat(first, COMMANDS)
        report.row(f"{COMMANDS} commands in a row", COMMANDS / (time.perf_counter() - start), "/s")
        report.row("  memory grown", resident_mb(os.getpid()) - memory, "MB", most=5)
        report.row("  descriptors grown", len(os.listdir("/proc/self/fd")) - descriptors, "", most=0)
        await manager.stop()


def request(name: str) -> NewSession:
    return NewSession(name=name, working_directory="/", client_env=dict(os.environ), env={}, person=True)


async def repeat(session: Session, times: int) -> None:
    """Run an echo many times, and check each output."""
    for number in range(times):
        running = await session.begin(f"echo {number}", command_id="cmd")
        await wait.for_command(session, running, 20.0, until_input=False)
        record = running.record
        assert record.end_offset is not None
        assert session.log.read(record.start_offset, record.end_offset) == b"%d\r\n" % number
