"""From spawning the server to its first responses, with and without a running daemon; processor time of verbs."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.report import Report, median_ms
from benchmarks.size import sized
from benchmarks.wire import Client

ROUNDS, COLD_ROUNDS, VERB_ROUNDS = sized((15, 5, 11), (1, 1, 1))

VERBS = (
    "--version",
    "ls",
    "info verbs",
    "exec verbs true",
    "send verbs -k Enter",
    "screen verbs",
    "logs verbs",
    "interrupt verbs",
    "kill none",
)
"""Verbs that people and scripts often use."""


async def run(report: Report, _directory: Path) -> None:
    measure(report)


def measure(report: Report) -> None:
    """Measure with blocking calls: only processes are timed."""
    report.title("Start of `ai-session mcp-server --stdio`")
    cold: list[float] = []
    cold_tools: list[float] = []
    for _ in range(COLD_ROUNDS):
        start = time.perf_counter()
        client = Client()
        cold.append(time.perf_counter() - start)
        client.request("tools/list", {})
        cold_tools.append(time.perf_counter() - start)
        client.stop_daemon()
    keep = Client()
    keep.call_tool("list_sessions", {})
    python: list[float] = []
    warm: list[float] = []
    memory = 0.0
    for _ in range(ROUNDS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        python.append(time.perf_counter() - start)
        start = time.perf_counter()
        client = Client()
        warm.append(time.perf_counter() - start)
        memory = max(memory, resident_mb(client.process.pid))
        client.close()
    floor = median_ms(python)
    report.row("python -c pass (floor)", floor, "ms")
    report.row("spawn → initialize, warm daemon", median_ms(warm), "ms", floor=floor, most_ratio=3)
    report.row("memory of the server process", memory, "MB", most=15)
    report.row("spawn → initialize, no daemon yet", median_ms(cold), "ms", floor=floor, most=800)
    report.row("spawn → tools/list, no daemon yet", median_ms(cold_tools), "ms", floor=floor, most=800)
    help_times: list[float] = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "ai_session", "--help"], check=True, capture_output=True)
        help_times.append(time.perf_counter() - start)
    report.row("ai-session --help", median_ms(help_times), "ms", floor=floor, most=150)
    measure_verbs(report)
    keep.stop_daemon()


def measure_verbs(report: Report) -> None:
    """Measure the processor time of a verb's own processes, interleaved with the bare interpreter's."""
    python = [sys.executable, "-c", "pass"]
    program = [sys.executable, "-m", "ai_session"]
    processor_seconds([*program, "new", "verbs"])
    used: dict[str, list[float]] = {}
    for _ in range(VERB_ROUNDS):
        used.setdefault("", []).append(processor_seconds(python))
        for line in VERBS:
            used.setdefault(line, []).append(processor_seconds([*program, *line.split()]))
    processor_seconds([*program, "kill", "verbs"])
    floor = median_ms(used.pop(""))
    report.row("python -c pass (floor), processor", floor, "ms")
    for line, seconds in used.items():
        report.row(f"ai-session {line}, processor", median_ms(seconds), "ms", floor=floor, most_ratio=5)


def processor_seconds(line: list[str]) -> float:
    """Return the processor time of one run, including its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(line, check=False, stdin=subprocess.DEVNULL, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0
