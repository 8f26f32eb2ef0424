"""The gate: the cost of checking, recording and masking a call, compared with the tool alone and records in memory."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

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
MOST_OF_RECORDS = {"execute_command": 2.2, "get_session_info": 1.6}
"""What the gate may add to a tool, relative to the call's two records by themselves, the first of them synced. Half of
the work for a command comes right after the wait for the shell, with other data in the processor's caches."""
MOST_OF_WRITE = 1.6
MOST_OF_PARTS = 1.4
"""What the gate may add, relative to a bare write and sync; or, if the disk is so fast that computing takes more than
that allows, relative to both: it computes right after the wait for the disk, with cold caches."""
MEMORY = Path("/dev/shm")
"""Where a sync costs nothing, so that a gate only takes its computing time."""
PLENTY = 1_000_000
FACTS = {
    "session": "ses_0123456789abcdefghijkl",
    "decision": {"verdict": "allow", "policy": "0123456789abcdef", "mode": "trusted"},
    "sandbox": {"level": "none"},
    "status": "finished",
    "exit_code": 0,
    "command_id": "cmd_0123456789abcdefghijkl",
}
"""The facts in the end record of a command."""
CALLS = {
    "execute_command": {"session_id": "bench", "command": ":"},
    "get_session_info": {"session_id": "bench"},
}

Samples = dict[tuple[str, str], list[float]]


async def run(report: Report, directory: Path) -> None:
    """Interleave batches, so that the machine's drift affects all alike."""
    samples: Samples = {}
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(_open_measured(directory / "run"))
        memory: _Measured | None = None
        if os.access(MEMORY, os.W_OK):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="aisb-", dir=MEMORY))
            memory = await stack.enter_async_context(_open_measured(Path(folder) / "run"))
        bare = SyncedWrite(directory)
        stack.callback(bare.close)
        for _ in range(ROUNDS):
            for name in CALLS:
                for _ in range(BATCH):
                    samples.setdefault(("sync", name), []).append(bare.once())
                    await ours.call(name, samples)
                for _ in range(BATCH if memory else 0):
                    assert memory
                    await memory.call(name, samples, "memory ")
    report.title("The gate, around one call")
    for name in CALLS:
        _print_rows(report, name, {kind: median_ms(values) for (kind, of), values in samples.items() if of == name})


def _print_rows(report: Report, name: str, median: dict[str, float]) -> None:
    report.row(f"{name}, the tool alone", median["alone"], "ms")
    sync, records, gate, computing = median["sync"], median["records"], median["gate"], median.get("memory gate", 0.0)
    report.row("  write and sync 600 bytes, blocking", sync, "ms")
    report.row("  its two records by the log alone", records, "ms", floor=sync)
    report.row("  in the gate, both records included", gate, "ms", floor=records, most_ratio=MOST_OF_RECORDS[name])
    if computing:
        report.row("    the same with its records in memory: computing", computing, "ms", floor=sync)
        most = max(MOST_OF_WRITE * sync, MOST_OF_PARTS * (sync + computing))
        report.row("    against the write and the computing", gate, "ms", floor=sync + computing, most=most)
    report.row("    against the write", gate, "ms", floor=sync)
    # This is more than the gate itself: after the wait for the disk, the tool meets colder caches and a shell that
    # slept deeper.
    report.row("  more in all", median["more"] - median["alone"], "ms")


class _Measured:
    """A gate with one session, and its tools without the gate."""

    def __init__(self, app: App, me: Principal, context: Context) -> None:
        self._app = app
        self._me = me
        self._context = context
        self._within: list[float] = []
        self._tools = app.gate.parts.tools
        timed = {tool.name: _timed(tool, self._within) for tool in self._tools.values()}
        app.gate = Gate(replace(app.gate.parts, tools=timed))
        self._number = 0

    async def call(self, name: str, samples: Samples, prefix: str = "") -> None:
        """Measure the records, the tool and the call separately."""
        gate, given, tool = self._app.gate, CALLS[name], self._tools[name]
        await asyncio.sleep(0)  # reads pending output of the shell, as between two requests
        start = time.perf_counter()
        gate.parts.audit.end(await gate.parts.audit.begin("call_0", self._me, name, given), "ok", facts=FACTS)
        recorded = time.perf_counter()
        arguments, _ = validate(tool, given)
        await tool.run(replace(self._context, subject=tool.subject(self._context, arguments)), arguments)
        middle = time.perf_counter()
        self._number += 1
        result = await gate.call(ToolCall(self._me, name, given, f"call_{self._number}"))
        took = time.perf_counter() - middle
        assert not result.is_error, result.text
        found = {
            "records": recorded - start,
            "alone": middle - recorded,
            "more": took,
            "gate": took - self._within.pop(),
        }
        for kind, seconds in found.items():
            samples.setdefault((prefix + kind, name), []).append(seconds)


@asynccontextmanager
async def _open_measured(runtime: Path) -> AsyncGenerator[_Measured]:
    runtime.mkdir(mode=0o700)
    rates = dict.fromkeys(Settings().rates.model_dump(), PLENTY)
    settings = Settings.model_validate(
        {"sandbox": {"profile": "trusted"}, "policy": {"mode": "trusted"}, "rates": rates}
    )
    app = App(settings, runtime)
    me = Principal("mcp", os.getuid(), pid=os.getpid(), client="bench", env=dict(os.environ), working_directory="/")
    made = await app.gate.call(ToolCall(me, "create_session", {"name": "bench", "backend": "pty"}, "call_0"))
    assert not made.is_error, made.text
    workspaces = Workspaces((), str(runtime.parent))
    context = Context(me, VisibleSessions(app.sessions, Visibility()), workspaces, Limits())
    try:
        yield _Measured(app, me, context)
    finally:
        await app.stop(sessions=True)


def _timed(tool: Tool, within: list[float]) -> Tool:
    async def run(context: Context, arguments: Any) -> ToolResult:
        began = time.perf_counter()
        try:
            return await tool.run(context, arguments)
        finally:
            within.append(time.perf_counter() - began)

    return replace(tool, run=run)
