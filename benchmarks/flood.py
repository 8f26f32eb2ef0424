"""Calls on one session while another prints as fast as it can, by kind of output; compared with an idle one."""

from __future__ import annotations

import contextlib
import os
import select
import statistics
import subprocess
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path

from agentwire import plugins
from ai_session.config.config import runtime_directories
from ai_session.config.settings import SessionSettings
from benchmarks.report import Report
from benchmarks.size import sized
from benchmarks.wire import Client

SECONDS = sized(20.0, 0.2)
GAP_SECONDS = sized(0.02, 0.0)
"""The pause between two calls, as with an agent: calls without pauses would themselves keep a processor busy."""

AT_ONCE_MS = 250
SPARE_MB = 16

KINDS = {
    "marks": r"for i in $(seq 2000); do printf '\033]%s;D;1;0;;;/x\007' $N; done",
    "osc": r"printf '\033]0;title %d\007' $(seq 3000)",
    "csi": r"printf '\033[%d;5H\033[1;31mx' $(seq 4000)",
    "sixel": r"for i in $(seq 500); do printf '\033Pq#0;2;0;0;0#0~~@@vv@@~~@@~~$-#0??}}GG}}??}}??-\033\\'; done",
    "plain": "seq 10000",
}
"""A command for a chunk of each kind, in a shell that has its own nonce in N; LINE is another kind."""

LINE = "120 MB line"
ALL = (*KINDS, LINE)
_NONCE = "N=$(grep -o '7777;[0-9a-f]*' $__ais_d/integration | head -1)"


def flooding(kind: str) -> str:
    """Return a command that prints output of this kind until it is interrupted."""
    if kind == LINE:
        return "while :; do head -c 120000000 /dev/zero | tr '\\0' x; echo; done"
    return f"{_NONCE}; X=$({KINDS[kind]}); while :; do printf '%s' \"$X\"; done"


def written(folder: Path) -> int:
    """Return how many bytes of a session's output are in its log."""
    with contextlib.suppress(FileNotFoundError):
        return int.from_bytes((folder / "log.end").read_bytes()[:8], "little")
    return (folder / "log").stat().st_size


def on_disk(folder: Path) -> int:
    """Return how many bytes a session's log occupies, without holes."""
    return (folder / "log").stat().st_blocks * 512


def session_folder(session_id: str) -> Path:
    """Return where the daemon of this HOME stores a session."""
    directories = runtime_directories(Path(os.environ["HOME"]), os.getuid())
    return next(path for one in directories if (path := one / "sessions" / session_id).exists())


async def run(report: Report, directory: Path) -> None:
    """Measure each backend and kind; the victim is on the same backend."""
    for kind in ("READ", "EFFECT", "SESSIONS"):
        os.environ[f"AI_SESSION_RATES_{kind}_PER_MINUTE"] = "1000000"
    victim, flood = Client(), Client()
    try:
        for backend in plugins.names("ai_session.backends"):
            report.title(f"A trivial command, and a list of sessions, while a session on {backend} floods")
            victim.call_tool("create_session", {"name": "victim", "backend": backend})
            quiet = calls(victim)
            report.row("nobody prints: execute_command, median", quiet.median_ms, "ms", note=quiet.note)
            with busy_elsewhere():
                floor = calls(victim)
            report.row("as much work elsewhere (floor)", floor.median_ms, "ms", note=floor.note)
            report.row("as much work elsewhere: worst call of all (floor)", floor.worst_ms, "ms")
            for kind in sized(ALL, ALL[:1]):
                measure(report, victim, flood, backend, kind, floor)
            victim.call_tool("close_session", {"session_id": "victim"})
    finally:
        flood.close()
        victim.stop_daemon()


@dataclass(frozen=True, slots=True)
class Calls:
    """The seconds of commands and of lists; and the largest size on disk of a flood in the meantime."""

    ran: list[float]
    listed: list[float]
    disk: int

    @property
    def median_ms(self) -> float:
        """The median of the commands."""
        return statistics.median(self.ran) * 1e3

    @property
    def worst_ms(self) -> float:
        """The longest time of all calls."""
        return max(*self.ran, *self.listed) * 1e3

    @property
    def note(self) -> str:
        """The longest command, and the number of commands."""
        return f"worst {max(self.ran) * 1e3:.0f} ms, {len(self.ran)} calls"


def calls(victim: Client, folder: Path | None = None) -> Calls:
    """Make the victim's calls for SECONDS; ``folder`` is that of the flood."""
    begun, found = time.perf_counter(), Calls([], [], 0)
    while time.perf_counter() - begun < SECONDS or not found.ran:
        select.select((), (), (), GAP_SECONDS)
        start = time.perf_counter()
        victim.call_tool("execute_command", {"session_id": "victim", "command": ":"})
        middle = time.perf_counter()
        victim.call_tool("list_sessions", {})
        found.ran.append(middle - start)
        found.listed.append(time.perf_counter() - middle)
        if folder is not None:
            found = replace(found, disk=max(found.disk, on_disk(folder)))
    return found


def measure(report: Report, victim: Client, flood: Client, backend: str, kind: str, floor: Calls) -> None:
    """Measure one flood for SECONDS, and close its session."""
    with flooded(flood, backend, kind) as folder:
        begun, before = time.perf_counter(), written(folder)
        found = calls(victim, folder)
        speed = (written(folder) - before) / (time.perf_counter() - begun) / 1e6
    most_disk = SessionSettings().retain_bytes / (1 << 20) + SPARE_MB
    report.row(f"{kind}: execute_command, median", found.median_ms, "ms", floor=floor.median_ms, note=found.note)
    report.row(f"{kind}: worst call of all", found.worst_ms, "ms", floor=floor.worst_ms, most=AT_ONCE_MS)
    report.row(f"{kind}: on disk at most", found.disk / (1 << 20), "MiB", most=most_disk, note=f"at {speed:.1f} MB/s")


@contextlib.contextmanager
def busy_elsewhere() -> Generator[None]:
    """Run a shell that keeps a processor busy like the flood, but prints to nowhere."""
    shell = subprocess.Popen(
        ["bash", "-c", "while :; do printf '%s' \"$BASH_VERSION\"; done"], stdout=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        shell.kill()
        shell.wait()


@contextlib.contextmanager
def flooded(client: Client, backend: str, kind: str) -> Generator[Path]:
    """Run a session that floods, and yield its folder."""
    made = client.call_tool("create_session", {"name": "flood", "backend": backend})
    folder = session_folder(made["session_id"])
    command = {"session_id": "flood", "command": flooding(kind), "timeout_seconds": 0}
    client.call_tool("execute_command", command)
    try:
        yield folder
    finally:
        client.call_tool("close_session", {"session_id": "flood"})
