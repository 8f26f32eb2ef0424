"""100 MB printed by one command, compared with a blocking read loop over a pseudo-terminal; with memory."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

from agentwire import plugins
from ai_session.sessions import wait
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.spec import NewSession, SessionDefaults
from benchmarks.floors import read_loop_seconds
from benchmarks.report import Report
from benchmarks.size import sized

MEGABYTES = sized(100, 1)


async def run(report: Report, directory: Path) -> None:
    """Measure MB/s of raw log bytes; the log keeps 64 MB of them."""
    report.title(f"{MEGABYTES} MB of output")
    data = directory / "lines.txt"
    with open(data, "w") as file:
        file.writelines(f"{number:09d} {'x' * 89}\n" for number in range(MEGABYTES * 10_000))
    rates: list[float] = []
    for _ in range(3):
        seconds, size = read_loop_seconds(["cat", str(data)])
        rates.append(size / seconds / 1e6)
    floor = sorted(rates)[1]
    report.row("blocking read loop (floor)", floor, "MB/s")
    for backend in plugins.names("ai_session.backends"):
        (directory / backend).mkdir(mode=0o700)
        manager = SessionManager(directory / backend, SessionDefaults(backend=backend, user_rc=False))
        request = NewSession(name="bench", working_directory="/", client_env=dict(os.environ), env={})
        session = await manager.create(request)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        measured: list[float] = []
        for _ in range(3):
            start = time.perf_counter()
            running = await session.begin(f"cat {data}", command_id="cmd")
            await wait.for_command(session, running, 300.0, until_input=False)
            record = running.record
            assert record.end_offset is not None
            measured.append((record.end_offset - record.start_offset) / (time.perf_counter() - start) / 1e6)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        least = 0.6 if backend == "pty" else None
        report.row(f"session on {backend}", sorted(measured)[1], "MB/s", floor=floor, least_ratio=least)
        report.row(f"  memory grown by 3 x {MEGABYTES} MB", grown, "MB", most=16)
        await manager.stop()
    data.unlink()
