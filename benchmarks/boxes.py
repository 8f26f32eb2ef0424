"""The cost of a box for a session: its start, a keystroke, a trivial command, and processor time while idle."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from agentwire import plugins
from ai_session.models import TRUSTED, SandboxProfile
from ai_session.sandbox.boxes import Boxes, BoxSettings
from ai_session.sandbox.limits.watch import ResourceWatch
from ai_session.sandbox.sandbox import Sandbox
from ai_session.sessions import wait
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.session import Session
from ai_session.sessions.spec import NewSession, SessionDefaults
from benchmarks.report import Report, median_ms
from benchmarks.size import sized

STARTS, ROUNDS, BATCH = sized((15, 10, 50), (1, 1, 2))
AT_ONCE, IDLE = sized((20, 10), (2, 1))
IDLE_SECONDS = sized(5.0, 0.01)
START_MS, MOST_OF_BARE = 25.0, 2.0
"""What a box may add to the start of a session: so many milliseconds, or, on a slow machine, so many times the time of
the same box around a program that does nothing."""


async def run(report: Report, directory: Path) -> None:
    """Alternate between boxed and unboxed, so that the machine's drift affects both."""
    workspace = directory / "ws"
    workspace.mkdir()
    profile = SandboxProfile("workspace", str(workspace), str(directory))
    for backend in plugins.names("ai_session.backends"):
        runtime = directory / backend
        runtime.mkdir(mode=0o700)
        sandbox = Sandbox(runtime_directory=runtime)
        boxes = Boxes(BoxSettings(profile), sandbox, ResourceWatch())
        manager = SessionManager(runtime, SessionDefaults(backend=backend, user_rc=False), boxes)
        request = NewSession("bench", str(workspace), dict(os.environ), {}, shell="bash")
        unboxed = await manager.create(replace(request, name="unboxed"))
        boxed = await manager.create(replace(request, name="boxed", profile=profile))
        report.title(f"A session in a box ({boxed.spec.level}) on {backend}")
        await starts(report, manager, sandbox, [replace(request, profile=kind) for kind in (TRUSTED, profile)])
        await commands(report, unboxed, boxed)
        await keystrokes(report, unboxed, boxed)
        await idle(report, manager, replace(request, profile=profile))
        await manager.stop()


async def starts(report: Report, manager: SessionManager, sandbox: Sandbox, requests: Sequence[NewSession]) -> None:
    """Create sessions one after the other, and many at once."""
    taken: list[list[float]] = [[], []]
    bare: list[float] = []
    for _ in range(STARTS):
        for request, seconds in zip(requests, taken, strict=True):
            start = time.perf_counter()
            session = await manager.create(request)
            seconds.append(time.perf_counter() - start)
            await manager.close(session)
        bare.append(await empty_box_seconds(sandbox, requests[-1].profile, manager.runtime_directory / "bare"))
    floor, value, least = map(median_ms, (*taken, bare))
    report.row("created, unboxed (floor)", floor, "ms")
    report.row("created, boxed", value, "ms", floor=floor)
    report.row("  the same box around `true`, once it is planned", least, "ms")
    report.row("  more than unboxed", value - floor, "ms", floor=least, most=max(START_MS, MOST_OF_BARE * least))
    at_once: list[float] = []
    for request in requests:
        start = time.perf_counter()
        wanted = [replace(request, name=f"s{number}") for number in range(AT_ONCE)]
        sessions = await asyncio.gather(*map(manager.create, wanted))
        at_once.append(time.perf_counter() - start)
        await asyncio.gather(*map(manager.close, sessions))
    report.row(f"{AT_ONCE} created at once, boxed", at_once[1], "s", floor=at_once[0])


async def empty_box_seconds(sandbox: Sandbox, profile: SandboxProfile, directory: Path) -> float:
    """Return the seconds that such a box takes, from its first program to its end."""
    boxed = await sandbox.prepare(profile, directory, env={"PATH": os.defpath})
    try:
        return seconds_of((*boxed.argv, "true"), boxed.env)
    finally:
        boxed.release()


def seconds_of(argv: Sequence[str], env: Mapping[str, str]) -> float:
    """Return the seconds from a program's start to its end."""
    start = time.perf_counter()
    subprocess.run(argv, env=env, check=True)
    return time.perf_counter() - start


async def commands(report: Report, unboxed: Session, boxed: Session) -> None:
    taken: dict[Session, list[float]] = {unboxed: [], boxed: []}
    for _ in range(ROUNDS):
        for session, seconds in taken.items():
            for _ in range(BATCH):
                start = time.perf_counter()
                running = await session.begin(":", command_id="cmd")
                await wait.for_command(session, running, 20.0, until_input=False)
                seconds.append(time.perf_counter() - start)
    floor = median_ms(taken[unboxed])
    report.row("a trivial command, boxed", median_ms(taken[boxed]), "ms", floor=floor, most_ratio=1.1)


async def keystrokes(report: Report, unboxed: Session, boxed: Session) -> None:
    """Send a line to ``cat`` and wait for its output."""
    taken: dict[Session, list[float]] = {unboxed: [], boxed: []}
    for session in taken:
        running = await session.begin("stty -echo; cat", command_id="cmd")
        await wait.for_command(session, running, 20.0, until_input=True)
    for _ in range(ROUNDS):
        for session, seconds in taken.items():
            for _ in range(BATCH):
                end, start = session.log.end + len("x\r\n"), time.perf_counter()
                session.send(b"x\n")
                while session.log.end < end:
                    await session.changed(20.0)
                seconds.append(time.perf_counter() - start)
    for session in taken:
        session.send(b"\x04")
    floor = median_ms(taken[unboxed])
    report.row("a line typed and answered, boxed", median_ms(taken[boxed]), "ms", floor=floor, most_ratio=1.1)


async def idle(report: Report, manager: SessionManager, request: NewSession) -> None:
    """Measure the processor time of the resource watch, which polls once a second."""
    sessions = [await manager.create(replace(request, name=f"i{number}")) for number in range(IDLE)]
    start, busy = time.perf_counter(), time.process_time()
    await asyncio.wait((asyncio.get_running_loop().create_future(),), timeout=IDLE_SECONDS)
    busy = time.process_time() - busy
    share = busy / (time.perf_counter() - start) * 100
    report.row(f"processor time with {IDLE} idle boxes", share, "%", most=0.5)
    await asyncio.gather(*map(manager.close, sessions))
