"""The audit log: the cost of a call's two records, compared with a bare write and sync of that size; verification."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from ai_session.audit.files import segments, verify
from ai_session.audit.keys import check, public_key
from ai_session.audit.log import AuditLog
from ai_session.models import Principal
from benchmarks.report import Report, median_ms
from benchmarks.size import sized

ROUNDS = sized(1500, 5)
CALLERS, TURNS = sized((32, 40), (2, 2))
RECORD_BYTES = 600
ME = Principal("mcp", uid=1000, pid=4711, client="claude-code 2.0")
ARGUMENTS = {"session_id": "build", "command": "make -j8 test 2>&1 | tail -n 40", "timeout_seconds": 30.0}
FACTS = {
    "session": "s_1",
    "profile": "workspace",
    "level": "bwrap",
    "cwd": "/home/me/project",
    "exit_code": 0,
    "decision": {"verdict": "allow", "rule": "default:workspace", "policy_sha256": "b" * 64, "mode": "workspace"},
}


async def call(log: AuditLog, name: str) -> None:
    """Write the two records that the gate writes around a call."""
    entry = await log.begin(name, ME, "execute_command", ARGUMENTS, agent="agent-1", client_call_id="17")
    log.end(entry, "ok", rule="default:workspace", facts=FACTS)


async def run(report: Report, directory: Path) -> None:
    """Alternate with the floor, so that other disk traffic affects both."""
    report.title("audit log")
    log = AuditLog(directory / "audit")
    bare = os.open(directory / "bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    floor: list[float] = []
    calls: list[float] = []
    for turn in range(ROUNDS):
        start = time.perf_counter()
        os.write(bare, b"x" * RECORD_BYTES)
        os.fsync(bare) if not hasattr(os, "fdatasync") else os.fdatasync(bare)
        middle = time.perf_counter()
        await call(log, f"call_{turn}")
        floor.append(middle - start)
        calls.append(time.perf_counter() - middle)
    report.row("write and sync, blocking", median_ms(floor), "ms")
    report.row("begin and end, one caller", median_ms(calls), "ms", floor=median_ms(floor), most_ratio=1.6)

    async def caller(number: int) -> None:
        for turn in range(TURNS):
            await call(log, f"call_{number}_{turn}")

    start = time.perf_counter()
    await asyncio.gather(*(caller(number) for number in range(CALLERS)))
    each = (time.perf_counter() - start) / (CALLERS * TURNS) * 1e3
    report.row(f"begin and end, each of {CALLERS} at once", each, "ms", floor=median_ms(floor), most_ratio=1)
    log.close()
    size = sum(path.stat().st_size for path in segments(directory / "audit")) / 1e6
    start = time.perf_counter()
    found = verify(directory / "audit", check, key=public_key(directory / "audit.key"))
    seconds = time.perf_counter() - start
    rate = f"{found.records / seconds:.0f} records/s, {found.broken} problems"
    report.row("verify", seconds / size * 1e3, "ms/MB", note=rate)
