"""The trivial command: in raw readline, in a session on each backend, without ai-session, and all the way through
relay, MCP and gate, compared with servers of the official SDK that do nothing, with the same client."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from agentwire import plugins
from ai_session.sessions import wait
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.spec import NewSession, SessionDefaults
from benchmarks.floors import RawReadline, SyncedWrite
from benchmarks.report import Report, median_ms
from benchmarks.sdk_server import BARE, KINDS
from benchmarks.size import sized
from benchmarks.used_today import UsedToday
from benchmarks.wire import UNLIMITED, Client

ROUNDS, BATCH, OTHERS, UNCOUNTED = sized((12, 100, 5, 20), (1, 2, 1, 0))
MOST_OF_ALL = 1.6
"""The limit of a command by MCP, relative to the SDK's usual server that runs it in a bare shell after writing and
syncing as much as a record: nobody can do it with less, and that server waits for the processor too."""
LATE = 2.0
"""The same limit for 19 of 20 calls."""


async def run(report: Report, directory: Path) -> None:
    """Interleave batches, so that the machine's drift affects all alike."""
    floor = RawReadline(directory)
    await sessions(report, directory, floor)
    calls(report, directory, floor)
    floor.close()


async def sessions(report: Report, directory: Path, floor: RawReadline) -> None:
    """Measure sessions without the layers around them."""
    report.title("A trivial command (`:`), from call to result")
    managers: dict[str, SessionManager] = {}
    for backend in plugins.names("ai_session.backends"):
        (directory / backend).mkdir(mode=0o700)
        managers[backend] = SessionManager(directory / backend, SessionDefaults(backend=backend, user_rc=False))
    request = NewSession(name="bench", working_directory="/", client_env=dict(os.environ), env={})
    opened = {backend: await manager.create(request) for backend, manager in managers.items()}
    others = UsedToday(directory)
    samples: dict[str, list[float]] = {name: [] for name in ("floor", *opened, *others.ways)}
    for _ in range(ROUNDS):
        for way in others.ways:
            samples[way] += [others.seconds(way) for _ in range(OTHERS)]
        samples["floor"] += [floor.once() for _ in range(BATCH)]
        for backend, session in opened.items():
            for _ in range(BATCH):
                start = time.perf_counter()
                running = await session.begin(":", command_id="cmd")
                await wait.for_command(session, running, 20.0, until_input=True)
                samples[backend].append(time.perf_counter() - start)
    medians = {name: median_ms(values) for name, values in samples.items()}
    report.row("raw readline, blocking reads (floor)", medians["floor"], "ms")
    report.row("session on pty", medians["pty"], "ms", floor=medians["floor"], most_ratio=4, most=0.6)
    report.row("session on tmux, against pty", medians["tmux"], "ms", floor=medians["pty"], most_ratio=1.3)
    for way in others.ways:
        report.row(f"{way}, against pty", medians[way], "ms", floor=medians["pty"])
    others.close()
    for manager in managers.values():
        await manager.stop()


def calls(report: Report, directory: Path, floor: RawReadline) -> None:
    """Measure calls by MCP; ours include a box, the policy and a synced record."""
    report.title("A call by MCP on standard input and output, the same client with every server")
    workspace = directory / "project"
    workspace.mkdir()
    os.environ.update(UNLIMITED)
    ours = Client(directory=workspace)
    theirs = {kind: Client([sys.executable, "-m", "benchmarks.sdk_server", kind]) for kind in (*KINDS, BARE)}
    for backend in ("pty", "tmux"):
        ours.call_tool("create_session", {"name": backend, "backend": backend})
    synced = SyncedWrite(directory)

    def command(session: str) -> Callable[[], object]:
        return lambda: ours.call_tool("execute_command", {"session_id": session, "command": ":"})

    def tool(client: Client, name: str) -> Callable[[], object]:
        return lambda: client.call_tool(name, {})

    ways = {kind: (tool(client, "noop"), client.process.pid) for kind, client in theirs.items()}
    usual_server = theirs[KINDS[0]]
    ways |= {name: (tool(usual_server, name), usual_server.process.pid) for name in ("record", "shell")}
    daemon = ours.daemon()
    ways |= {session: (command(session), daemon) for session in ("pty", "tmux")}
    ways["list"] = (lambda: ours.call_tool("list_sessions", {})), daemon
    samples: dict[str, list[float]] = {name: [] for name in ("bare", "sync", *ways)}
    used: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        samples["bare"] += [floor.once() for _ in range(BATCH)]
        samples["sync"] += [synced.once() for _ in range(BATCH)]
        for name, (call, pid) in ways.items():
            for _ in range(UNCOUNTED):
                call()
            busy = processor_ms(pid)
            for _ in range(BATCH):
                start = time.perf_counter()
                call()
                samples[name].append(time.perf_counter() - start)
            used[name].append((processor_ms(pid) - busy) / BATCH)
    median = {name: median_ms(values) for name, values in samples.items()}
    busy = {name: statistics.median(values) for name, values in used.items()}
    slow = {name: late_ms(values) for name, values in samples.items()}
    usual, low = (median[kind] for kind in KINDS)
    report.row("SDK's usual server, a tool that does nothing", usual, "ms")
    report.row("  19 of 20 within", slow["usual"], "ms")
    report.row("  its processor time", busy["usual"], "ms")
    report.row("SDK's low-level server, the same", low, "ms", floor=usual)
    report.row("a command in a bare shell", median["bare"], "ms", floor=usual)
    report.row("write and sync 600 bytes", median["sync"], "ms", floor=usual)
    report.row("both in a tool of the SDK's usual server", median["shell"], "ms", floor=usual)
    report.row("  19 of 20 within", slow["shell"], "ms", floor=slow["usual"])
    report.row("both in a loop that is no server", median[BARE], "ms", floor=usual)
    report.row("  19 of 20 within", slow[BARE], "ms", floor=slow["usual"])
    report.row("execute_command on pty", median["pty"], "ms", floor=median["shell"], most_ratio=MOST_OF_ALL)
    report.row("  against the SDK's usual server", median["pty"], "ms", floor=usual)
    report.row("  against the loop that is no server", median["pty"], "ms", floor=median[BARE])
    report.row("  19 of 20 within", slow["pty"], "ms", floor=slow["shell"], most_ratio=LATE)
    report.row("  against the SDK's usual server", slow["pty"], "ms", floor=slow["usual"])
    report.row("  processor time of the daemon", busy["pty"], "ms", floor=busy["usual"], most_ratio=2)
    report.row("execute_command on tmux, against pty", median["tmux"], "ms", floor=median["pty"], most_ratio=1.3)
    report.row("a record in a tool of the SDK's usual server", median["record"], "ms", floor=usual)
    report.row("list_sessions", median["list"], "ms", floor=median["record"], most_ratio=1.3)
    report.row("  against the tool that does nothing", median["list"], "ms", floor=usual, most_ratio=2)
    for client in theirs.values():
        client.close()
    ours.stop_daemon()


def late_ms(seconds: list[float]) -> float:
    """Return the time below which 19 of 20 are."""
    return sorted(seconds)[len(seconds) * 19 // 20] * 1e3


def processor_ms(pid: int) -> float:
    """Return the processor time of a process until now, including threads that have ended."""
    clock = ~pid << 3 | 2  # as clock_getcpuclockid(3) computes it
    return time.clock_gettime(clock) * 1e3
