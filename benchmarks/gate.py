"""The gate: what a call pays to be judged, recorded on disk and masked, beside the tool alone."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ai_session.config import plugins
from ai_session.config.settings import Settings
from ai_session.daemon.app import App
from ai_session.gate.gate import Gate
from ai_session.gate.results import validate
from ai_session.models import Principal, ToolCall, ToolResult
from ai_session.sessions.ownership import Visibility
from ai_session.sessions.visible import VisibleSessions
from ai_session.sessions.workspaces import Workspaces
from ai_session.tools.base import Context, Limits, Tool
from benchmarks.floors import SyncedWrite
from benchmarks.report import Report, median_ms
from benchmarks.size import sized

ROUNDS, BATCH = sized((12, 100), (1, 2))
MOST = {"execute_command": 2.2, "get_session_info": 1.6}
"""What the gate may add to a tool, of what the call's two records take by themselves, the first of them synced. Half of
what it does for a command comes right after the wait for the shell, when the processor's caches hold something else."""
PLENTY = 1_000_000
FACTS = {
    "session": "ses_0123456789abcdefghijkl",
    "decision": {"verdict": "allow", "policy": "0123456789abcdef", "mode": "trusted"},
    "sandbox": {"level": "none"},
    "status": "finished",
    "exit_code": 0,
    "command_id": "cmd_0123456789abcdefghijkl",
}
"""What the end record of a command holds."""


async def run(report: Report, directory: Path) -> None:
    """Batches are interleaved, so that the machine's drift meets all alike."""
    runtime = directory / "run"
    runtime.mkdir(mode=0o700)
    rates = dict.fromkeys(Settings().rates.model_dump(), PLENTY)
    settings = Settings.model_validate(
        {"sandbox": {"profile": "trusted"}, "policy": {"mode": "trusted"}, "rates": rates}
    )
    app = App(settings, runtime)
    me = Principal("mcp", os.getuid(), pid=os.getpid(), client="bench", env=dict(os.environ), working_directory="/")
    made = await app.gate.call(ToolCall(me, "create_session", {"name": "bench", "backend": "pty"}, "call_0"))
    assert not made.is_error, made.text
    tools: list[Tool] = [tool for name in plugins.names("tools") for tool in plugins.load("tools", name)]
    samples: dict[tuple[str, str], list[float]] = {}
    within: list[float] = []
    app.gate = Gate(replace(app.gate.parts, tools={tool.name: _timed(tool, within) for tool in tools}))
    context = Context(me, VisibleSessions(app.sessions, Visibility()), Workspaces((), str(directory)), Limits())
    bare = SyncedWrite(directory)
    for _ in range(ROUNDS):
        for name, given in (
            ("execute_command", {"session_id": "bench", "command": ":"}),
            ("get_session_info", {"session_id": "bench"}),
        ):
            tool = next(tool for tool in tools if tool.name == name)
            for number in range(BATCH):
                samples.setdefault(("sync", name), []).append(bare.once())
                await asyncio.sleep(0)  # as between two requests, what the shell said is read
                start = time.perf_counter()
                app.gate.parts.audit.end(await app.gate.parts.audit.begin("call_0", me, name, given), "ok", facts=FACTS)
                samples.setdefault(("records", name), []).append(time.perf_counter() - start)
                start = time.perf_counter()
                arguments, _ = validate(tool, given)
                await tool.run(replace(context, subject=tool.subject(context, arguments)), arguments)
                middle = time.perf_counter()
                result = await app.gate.call(ToolCall(me, name, given, f"call_{number}"))
                samples.setdefault((name, "alone"), []).append(middle - start)
                took = time.perf_counter() - middle
                samples.setdefault((name, "more"), []).append(took)
                samples.setdefault((name, "gate"), []).append(took - within.pop())
                assert not result.is_error, result.text
    bare.close()
    await app.stop(sessions=True)
    median = {name: median_ms(values) for name, values in samples.items()}
    report.title("The gate, around one call")
    for name, most in MOST.items():
        report.row(f"{name}, the tool alone", median[name, "alone"], "ms")
        sync, records, gate = median["sync", name], median["records", name], median[name, "gate"]
        report.row("  write and sync 600 bytes, blocking", sync, "ms")
        report.row("  its two records by the log alone", records, "ms", floor=sync)
        report.row("  in the gate, both records included", gate, "ms", floor=records, most_ratio=most)
        report.row("    against the write", gate, "ms", floor=sync)
        # More than that: after the wait for the disk the tool itself meets colder caches and a shell that slept deeper.
        report.row("  more in all", median[name, "more"] - median[name, "alone"], "ms")


def _timed(tool: Tool, within: list[float]) -> Tool:
    async def run(context: Context, arguments: Any) -> ToolResult:
        began = time.perf_counter()
        try:
            return await tool.run(context, arguments)
        finally:
            within.append(time.perf_counter() - began)

    return replace(tool, run=run)
