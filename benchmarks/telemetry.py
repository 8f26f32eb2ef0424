"""Telemetry: the cost for a call if none is configured, and if a collector is."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ai_session.config.settings import Settings
from ai_session.daemon.app import App
from ai_session.gate.telemetry.base import Telemetry
from ai_session.gate.trace import Trace
from ai_session.models import Principal, ToolCall, ToolResult
from benchmarks.report import Report, median_ms
from benchmarks.size import sized

ROUNDS, BATCH = sized((20, 100), (1, 2))
NOTHINGS = sized(20_000, 10)
PLENTY = 1_000_000
PARENT = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "mcp.method.name": "tools/call"}


async def run(report: Report, directory: Path) -> None:
    """Interleave batches of calls by two apps, one of which exports to a collector on loopback."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
        threading.Thread(target=collector.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{collector.server_port}"
        apps = {name: await open_app(directory / name, endpoint if name == "on" else "") for name in ("off", "on")}
        samples: dict[str, list[float]] = {name: [] for name in apps}
        me = caller()
        for _ in range(ROUNDS):
            for name, app in apps.items():
                for number in range(BATCH):
                    await asyncio.sleep(0)
                    call = ToolCall(me, "get_session_info", {"session_id": "bench"}, f"call_{number}", trace=PARENT)
                    start = time.perf_counter()
                    result = await app.gate.call(call)
                    samples[name].append(time.perf_counter() - start)
                    assert not result.is_error, result.text
        for app in apps.values():
            await app.stop(sessions=True)
        collector.shutdown()
    median = {name: median_ms(values) for name, values in samples.items()}
    report.title("Telemetry, around one call (get_session_info)")
    report.row("off: four managers that do nothing", nothing_ms(), "ms")
    report.row("off, the whole call", median["off"], "ms")
    report.row("on, sent to a collector on loopback", median["on"], "ms")
    report.row("  on to off", median["on"] / median["off"], "times")


class Collector(BaseHTTPRequestHandler):
    """A collector that accepts everything."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def caller() -> Principal:
    return Principal("mcp", os.getuid(), pid=os.getpid(), client="bench", env=dict(os.environ), working_directory="/")


async def open_app(runtime: Path, endpoint: str) -> App:
    """Return an app with a session."""
    runtime.mkdir(mode=0o700)
    given: dict[str, Any] = {"sandbox": {"profile": "trusted"}, "policy": {"mode": "trusted"}}
    rates = dict.fromkeys(Settings().rates.model_dump(), PLENTY)
    settings = Settings.model_validate({**given, "rates": rates, "telemetry": {"endpoint": endpoint}})
    app = await asyncio.to_thread(App, settings, runtime)
    await app.start()
    session = ToolCall(caller(), "create_session", {"name": "bench", "backend": "pty"}, "call_0")
    created = await app.gate.call(session)
    assert not created.is_error, created.text
    return app


def nothing_ms() -> float:
    """Return the milliseconds for what the gate does with disabled telemetry in one call."""
    telemetry, call, trace, result = Telemetry(), ToolCall(caller(), "x", {}, "call_0"), Trace(), ToolResult("", {})
    start = time.perf_counter()
    for _ in range(NOTHINGS):
        with telemetry.call(call, trace) as ended:
            with telemetry.part("audit.begin"):
                pass
            with telemetry.part("consent.wait"):
                pass
            with telemetry.part("tool.run"):
                pass
            ended(result)
    return (time.perf_counter() - start) / NOTHINGS * 1000
