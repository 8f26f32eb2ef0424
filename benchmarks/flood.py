"""Calls on one session while another prints as fast as it can, by what it prints; beside the same calls in quiet."""

from __future__ import annotations

import contextlib
import os
import select
import statistics
import time
from collections.abc import Generator
from pathlib import Path

from ai_session import plugins
from ai_session.config import runtime_directories
from ai_session.settings import SessionSettings
from benchmarks.report import Report
from benchmarks.size import sized
from benchmarks.wire import Client

SECONDS, QUIET_CALLS = sized((20.0, 200), (0.2, 2))
GAP_SECONDS = sized(0.02, 0.0)
"""Between two calls, as an agent has it: calls without any would themselves keep a processor busy."""

AT_ONCE_MS = 250
SPARE_MB = 16

KINDS = {
    "marks": r"for i in $(seq 2000); do printf '\033]%s;D;1;0;;;/x\007' $N; done",
    "osc": r"printf '\033]0;title %d\007' $(seq 3000)",
    "csi": r"printf '\033[%d;5H\033[1;31mx' $(seq 4000)",
    "sixel": r"for i in $(seq 500); do printf '\033Pq#0;2;0;0;0#0~~@@vv@@~~@@~~$-#0??}}GG}}??}}??-\033\\'; done",
    "plain": "seq 10000",
}
"""What makes a chunk of each kind in a shell that knows its own nonce as N; there is also LINE."""

LINE = "120 MB line"
ALL = (*KINDS, LINE)
_NONCE = "N=$(grep -o '7777;[0-9a-f]*' $__ais_d/integration | head -1)"


def flooding(kind: str) -> str:
    """A command that prints what is of this kind until it is interrupted."""
    if kind == LINE:
        return "while :; do head -c 120000000 /dev/zero | tr '\\0' x; echo; done"
    return f"{_NONCE}; X=$({KINDS[kind]}); while :; do printf '%s' \"$X\"; done"


def written(folder: Path) -> int:
    """Bytes that a session has printed so far, as far as they are in its log."""
    with contextlib.suppress(FileNotFoundError):
        return int.from_bytes((folder / "log.end").read_bytes()[:8], "little")
    return (folder / "log").stat().st_size


def on_disk(folder: Path) -> int:
    """Bytes that a session's log takes, holes not counted."""
    return (folder / "log").stat().st_blocks * 512


def session_folder(session_id: str) -> Path:
    """Where the daemon of this HOME keeps a session."""
    directories = runtime_directories(Path(os.environ["HOME"]), os.getuid())
    return next(path for one in directories if (path := one / "sessions" / session_id).exists())


async def run(report: Report, directory: Path) -> None:
    """Each backend, each kind; the victim is on the same backend."""
    for kind in ("READ", "EFFECT", "SESSIONS"):
        os.environ[f"AI_SESSION_RATES_{kind}_PER_MINUTE"] = "1000000"
    victim, flood = Client(), Client()
    try:
        for backend in plugins.names("backends"):
            report.title(f"A trivial command and a list of sessions, while a session on {backend} floods")
            victim.call_tool("create_session", {"name": "victim", "backend": backend})
            quiet = [call(victim)[0] for _ in range(QUIET_CALLS)]
            floor = statistics.median(quiet) * 1e3
            report.row("nobody prints (floor)", floor, "ms")
            for kind in sized(ALL, ALL[:1]):
                measure(report, victim, flood, backend, kind, floor)
            victim.call_tool("close_session", {"session_id": "victim"})
    finally:
        flood.close()
        victim.stop_daemon()


def measure(report: Report, victim: Client, flood: Client, backend: str, kind: str, floor: float) -> None:
    """One flood for SECONDS; its session is closed afterwards."""
    with flooded(flood, backend, kind) as folder:
        begun, before, disk = time.perf_counter(), written(folder), 0
        ran, listed = list[float](), list[float]()
        while time.perf_counter() - begun < SECONDS or not ran:
            one, other = call(victim)
            ran.append(one)
            listed.append(other)
            disk = max(disk, on_disk(folder))
        speed = (written(folder) - before) / (time.perf_counter() - begun) / 1e6
    most_disk = SessionSettings().retain_bytes / (1 << 20) + SPARE_MB
    note = f"worst {max(ran) * 1e3:.0f} ms, {len(ran)} calls"
    report.row(f"{kind}: execute_command, median", statistics.median(ran) * 1e3, "ms", floor=floor, note=note)
    report.row(f"{kind}: worst call of all", max(*ran, *listed) * 1e3, "ms", most=AT_ONCE_MS)
    report.row(f"{kind}: on disk at most", disk / (1 << 20), "MiB", most=most_disk, note=f"at {speed:.1f} MB/s")


@contextlib.contextmanager
def flooded(client: Client, backend: str, kind: str) -> Generator[Path]:
    """A session that prints meanwhile; gives its folder."""
    made = client.call_tool("create_session", {"name": "flood", "backend": backend})
    folder = session_folder(made["session_id"])
    command = {"session_id": "flood", "command": flooding(kind), "timeout_seconds": 0}
    client.call_tool("execute_command", command)
    try:
        yield folder
    finally:
        client.call_tool("close_session", {"session_id": "flood"})


def call(client: Client) -> tuple[float, float]:
    """Seconds that a trivial command took, and a list of the sessions after it."""
    select.select((), (), (), GAP_SECONDS)
    begun = time.perf_counter()
    client.call_tool("execute_command", {"session_id": "victim", "command": ":"})
    ran = time.perf_counter()
    client.call_tool("list_sessions", {})
    return ran - begun, time.perf_counter() - ran
