"""Opening and closing sessions on a machine with many processes, in one process and by MCP; a boxed command."""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from ai_session.client.relay import ADDED
from ai_session.models import TRUSTED, SandboxProfile
from ai_session.sandbox.boxes import Boxes, BoxSettings
from ai_session.sandbox.limits.watch import ResourceWatch
from ai_session.sandbox.sandbox import Sandbox
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.spec import NewSession, SessionDefaults
from benchmarks.floors import files_seconds
from benchmarks.latency import processor_ms
from benchmarks.report import Report, median_ms
from benchmarks.size import sized
from benchmarks.wire import UNLIMITED, Client

CROWD, ROUNDS, AT_ONCE, MANY, VERBS, FIRST = sized((1100, 9, 20, 60, 9, 7), (5, 1, 2, 3, 1, 1))
BARE = (
    *("/usr/bin/bwrap", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net", "true"),
)
MOST_OF_FLOOR = 3.0
"""Applies if the machine itself takes more than the target allows: see docs/explanation/decisions/09."""
LIBRARIES = "import asyncio, pydantic"
DAEMON = """
import gc; gc.disable()
from ai_session.daemon import host
from ai_session.servers.mcp import plugin
from ai_session.daemon import app
app.installed_tools()
"""
"""What a daemon imports before it can open a session."""
LEAVE = "\nimport os; os._exit(0)"
"""Skips the end of the interpreter, 40 ms, which a daemon does not reach."""
MOST_OF_FIRST = 1.7
"""The limit of the first session, relative to an interpreter's start, one with the imports, and a later session."""
MOST_OF_VERB = 14.0
"""The limit relative to the bare interpreter's processor time: the verb creates a box, for which it imports half of
what the daemon does."""
SLEEPERS = """
import os, sys
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        os.close(1)
        os.read(0, 1)
        os._exit(0)
print("up", flush=True)
os.read(0, 1)
"""


async def run(report: Report, directory: Path) -> None:
    """Measure the daemon's own processor time; what runs inside a box belongs to the kernel and the shell."""
    with crowd():
        floor = statistics.median(bare(directory / f"floor-{number}") for number in range(ROUNDS))
        for boxed in (True, False):
            await sessions(report, directory, boxed=boxed, floor=floor)
    verb(report, directory)
    with crowd():
        first(report, directory)
        by_mcp(report, directory, floor)


@contextmanager
def crowd() -> Generator[None]:
    """Run many other processes, which sleep."""
    argv = [sys.executable, "-c", SLEEPERS, str(CROWD)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as others:
        assert others.stdout is not None
        others.stdout.readline()
        yield


def bare(directory: Path) -> float:
    """Return the seconds for creating as many boxes at once without our code, and as many files as they need."""
    start = time.perf_counter()
    for box in [subprocess.Popen(BARE) for _ in range(AT_ONCE)]:
        box.wait()
    return time.perf_counter() - start + files_seconds(directory, AT_ONCE)


async def sessions(report: Report, directory: Path, *, boxed: bool, floor: float) -> None:
    """Open and close many sessions at once."""
    what = "boxed" if boxed else "unboxed"
    report.title(f"Sessions beside {CROWD} other processes, {what}")
    (workspace := directory / f"ws-{what}").mkdir()
    (runtime := directory / what).mkdir(mode=0o700)
    profile = SandboxProfile("workspace", str(workspace), str(directory)) if boxed else TRUSTED
    boxes = Boxes(BoxSettings(profile), Sandbox(runtime_directory=runtime), ResourceWatch())
    defaults = SessionDefaults(user_rc=False, backend="auto", max_sessions=99)
    manager = SessionManager(runtime, defaults, boxes)
    request = NewSession("first", str(workspace), dict(os.environ), {}, shell="bash", profile=profile, person=True)
    await manager.make_ready()
    start = time.perf_counter()
    await manager.create(request)
    report.row("the first opened", (time.perf_counter() - start) * 1e3, "ms", most=250)
    opened: list[float] = []
    closed: list[float] = []
    opening: list[float] = []
    closing: list[float] = []
    for count in (*[AT_ONCE] * ROUNDS, MANY):
        busy, start = time.process_time(), time.perf_counter()
        made = await asyncio.gather(*(manager.create(replace(request, name=f"s{n}")) for n in range(count)))
        opened.append(time.perf_counter() - start)
        opening.append((time.process_time() - busy) / count)
        busy, start = time.process_time(), time.perf_counter()
        await asyncio.gather(*map(manager.close, made))
        closed.append(time.perf_counter() - start)
        closing.append((time.process_time() - busy) / count)
    most = max(0.4, MOST_OF_FLOOR * floor)
    report.row(f"{AT_ONCE} opened at once", statistics.median(opened[:-1]), "s", floor=floor, most=most)
    report.row("  processor time of the daemon for each", median_ms(opening), "ms")
    report.row(f"{AT_ONCE} closed at once", statistics.median(closed[:-1]), "s", floor=floor, most=most)
    report.row("  processor time of the daemon for each", median_ms(closing), "ms", most=20 if boxed else 60)
    report.row(f"{MANY} closed at once", closed[-1], "s", most=2)
    await manager.stop()


def first(report: Report, directory: Path) -> None:
    """Measure in a new HOME each time, alternating with the parts."""
    report.title("The first session in a box by MCP, with the start of its daemon")
    floors: dict[str, list[float]] = {}
    opened: list[float] = []
    later: list[float] = []
    home = os.environ["HOME"]
    for number in range(FIRST):
        for script in ("pass", LIBRARIES, DAEMON):
            floors.setdefault(script, []).append(seconds_of(partial(python, script + LEAVE)))
        os.environ["HOME"] = str(new := directory / f"home-{number}")
        (workspace := new / "ws").mkdir(parents=True)
        start = time.perf_counter()
        client = Client(directory=workspace)
        client.call_tool("create_session", {"name": "first"})
        opened.append(time.perf_counter() - start)
        client.request("ping", {})  # the SDK answers this once it is imported
        later.append(seconds_of(partial(client.call_tool, "create_session", {"name": "later"})))
        client.stop_daemon()
    os.environ["HOME"] = home
    interpreter, libraries, daemon = (median_ms(column) for column in floors.values())
    value, floor = median_ms(opened), interpreter + daemon + median_ms(later)
    report.row("python -c pass", interpreter, "ms")
    report.row("python that imports what a daemon needs", daemon, "ms")
    report.row(f"  with no more than {LIBRARIES}", libraries, "ms")
    report.row("a later session", median_ms(later), "ms")
    report.row("the first, against three of these", value, "ms", floor=floor, most_ratio=MOST_OF_FIRST)


def python(script: str) -> None:
    """Run a script in an interpreter that is started like the daemon's."""
    subprocess.run([sys.executable, "-P", "-c", script], check=True, env=os.environ | ADDED)


def by_mcp(report: Report, directory: Path, floor: float) -> None:
    """Measure as a client does, with a box for each session."""
    report.title("Sessions in boxes by MCP, from one client")
    (workspace := directory / "ws-mcp").mkdir()
    os.environ.update(UNLIMITED)
    client = Client(directory=workspace)
    client.call_tool("create_session", {"name": "first"})
    second = seconds_of(partial(client.call_tool, "create_session", {"name": "second"}))
    report.row("the second, while the SDK is imported", second * 1e3, "ms")
    client.request("ping", {})  # the SDK answers this once it is imported
    opened = [seconds_of(partial(client.call_tool, "create_session", {"name": f"o{n}"})) for n in range(ROUNDS)]
    report.row("one more", median_ms(opened), "ms")
    names = [f"s{number}" for number in range(AT_ONCE)]
    daemon = client.daemon()
    columns: list[tuple[float, float, float, float]] = []
    for _ in range(ROUNDS):
        before = processor_ms(daemon)
        at_once = seconds_of(lambda: client.call_tools("create_session", [{"name": name} for name in names]))
        between = processor_ms(daemon)
        closed = sum(seconds_of(partial(client.call_tool, "close_session", {"session_id": name})) for name in names)
        used = (between - before) / AT_ONCE, (processor_ms(daemon) - between) / AT_ONCE
        columns.append((at_once, used[0], closed, used[1]))
    at_once, opening, closed, closing = map(statistics.median, zip(*columns, strict=True))
    most = max(0.4, MOST_OF_FLOOR * floor)
    report.row(f"{AT_ONCE} opened at once", at_once, "s", floor=floor, most=most)
    report.row("  processor time of the daemon for each", opening, "ms")
    report.row(f"{AT_ONCE} closed in a row", closed, "s", most=0.4)
    report.row("  processor time of the daemon for each", closing, "ms", most=20)
    client.stop_daemon()


def seconds_of(work: Callable[[], object]) -> float:
    """Return the seconds that ``work`` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def verb(report: Report, directory: Path) -> None:
    """Measure the processor time of the whole process tree, with a running daemon."""
    report.title("ai-session sandbox -- true")
    (workspace := directory / "ws-verb").mkdir()
    ours = [sys.executable, "-m", "ai_session"]
    subprocess.run([*ours, "sandbox", "--", "true"], check=True, cwd=workspace)
    pairs = [
        (processor([sys.executable, "-c", "pass"], workspace), processor([*ours, "sandbox", "--", "true"], workspace))
        for _ in range(VERBS)
    ]
    floor, value = (median_ms(column) for column in zip(*pairs, strict=True))
    report.row("processor time", value, "ms", floor=floor, most=max(150, MOST_OF_VERB * floor))
    subprocess.run([*ours, "daemon", "stop", "--yes"], check=True, capture_output=True)


def processor(argv: list[str], directory: Path) -> float:
    """Return the processor seconds of a program and all children it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, cwd=directory)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
