"""The trivial command: raw readline, a session on each backend, and the whole way through relay and MCP."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ai_session import plugins, waiting
from ai_session.session_manager import SessionManager
from ai_session.session_spec import NewSession, SessionDefaults
from benchmarks.floors import RawReadline
from benchmarks.gate import MOST_MS
from benchmarks.report import Report, median_ms
from benchmarks.size import sized
from benchmarks.wire import Client

ROUNDS, BATCH = sized((12, 100), (1, 2))
WAY_MS = 1.1
"""From client to shell and back; what the gate may add for its record on the disk is ``MOST_MS``."""


async def run(report: Report, directory: Path) -> None:
    """Batches are interleaved, so that the machine's drift meets all alike."""
    report.title("A trivial command (`:`), from call to result")
    managers = {}
    for backend in plugins.names("backends"):
        (directory / backend).mkdir(mode=0o700)
        managers[backend] = SessionManager(directory / backend, SessionDefaults(backend=backend, user_rc=False))
    request = NewSession(name="bench", working_directory="/", client_env=dict(os.environ), env={})
    sessions = {b: await m.create(request) for b, m in managers.items()}
    floor, client = RawReadline(directory), Client()
    client.call_tool("create_session", {"name": "bench", "backend": "pty"})
    samples: dict[str, list[float]] = {"floor": [], "relay + MCP": [], "no-op over relay + MCP": []}
    samples |= {b: [] for b in sessions}
    for _ in range(ROUNDS):
        samples["floor"] += [floor.once() for _ in range(BATCH)]
        for backend, session in sessions.items():
            for _ in range(BATCH):
                start = time.perf_counter()
                running = await session.begin(":", command_id="cmd")
                await waiting.for_command(session, running, 20.0, until_input=True)
                samples[backend].append(time.perf_counter() - start)
        for name, tool, arguments in (
            ("relay + MCP", "execute_command", {"session_id": "bench", "command": ":"}),
            ("no-op over relay + MCP", "list_sessions", {}),
        ):
            for _ in range(BATCH):
                start = time.perf_counter()
                client.call_tool(tool, arguments)
                samples[name].append(time.perf_counter() - start)
    medians = {name: median_ms(values) for name, values in samples.items()}
    report.row("raw readline, blocking reads (floor)", medians["floor"], "ms")
    report.row("session on pty", medians["pty"], "ms", floor=medians["floor"], most_ratio=3, most=0.6)
    report.row("session on tmux, against pty", medians["tmux"], "ms", floor=medians["pty"], most_ratio=2)
    whole = "execute_command over relay, MCP and gate (pty)"
    report.row(whole, medians["relay + MCP"], "ms", floor=medians["pty"], most=WAY_MS + MOST_MS)
    report.row("list_sessions over relay and MCP", medians["no-op over relay + MCP"], "ms")
    floor.close()
    client.stop_daemon()
    for manager in managers.values():
        await manager.stop()
