"""Calls over HTTP from 1, 50 and 500 clients: the front with daemon, gate and audit behind it, compared with a bare SDK
server.

Both are processes of their own on the same uvicorn and SDK. Ours lists sessions; the bare one has a tool that does
nothing, and one that writes and syncs as much as a record, which our slowest calls wait for too. All clients are in one
asyncio program, each on a connection of its own, with one call after the other.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, TextContent, Tool

from ai_session.client.connection import connect
from benchmarks.children import serving
from benchmarks.floors import SyncedWrite
from benchmarks.report import Report
from benchmarks.size import sized
from benchmarks.wire import UNLIMITED

CLIENTS = sized((1, 50, 500), (1, 2))
CALLS, ROUNDS = sized((1000, 3), (4, 1))
PATIENCE_SECONDS = 600
"""On a busy machine, 500 clients need longer for a round than uvicorn's default of five seconds."""
FRONT = [sys.executable, "-m", "ai_session", "mcp-server", "--http", "--port", "0", "--no-auth"]
BARE = [sys.executable, "-m", "benchmarks.http_load"]
ENVELOPE: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


async def run(report: Report, _directory: Path) -> None:
    """Alternate rounds of the two, so that other load affects both."""
    os.environ.update(UNLIMITED)
    report.title("HTTP: calls at the front (list_sessions), compared with a bare SDK server whose tool does nothing")
    try:
        async with server(BARE) as bare, server(FRONT) as front:
            tools = {"noop": bare, "record": bare, "list_sessions": front}
            for clients in CLIENTS:
                rates: dict[str, list[float]] = {tool: [] for tool in tools}
                slow: dict[str, list[float]] = {tool: [] for tool in tools}
                for _ in range(ROUNDS):
                    for tool, port in tools.items():
                        seconds, waits = await load(port, tool, clients)
                        rates[tool].append(len(waits) / seconds)
                        slow[tool].append(statistics.quantiles(waits, n=100)[98] * 1e3)
                name = f"{clients} client{'s' if clients > 1 else ''}"
                rate, p99 = ({tool: statistics.median(of[tool]) for tool in of} for of in (rates, slow))
                least = 0.15 if clients == 1 else 0.3
                report.row(
                    f"calls per second, {name}", rate["list_sessions"], "/s", floor=rate["noop"], least_ratio=least
                )
                report.row(f"p99, {name}", p99["list_sessions"], "ms", floor=p99["record"], most_ratio=4)
                report.row("  against the tool that does nothing", p99["list_sessions"], "ms", floor=p99["noop"])
    finally:
        await asyncio.to_thread(stop_daemon)


def stop_daemon() -> None:
    """Stop the daemon of this benchmark's HOME."""
    with connect(start=False) as client:
        client.request("stop", sessions=True)
        client.wait_closed()


@asynccontextmanager
async def server(command: list[str]) -> AsyncGenerator[int]:
    """Run a server process, and yield its port."""
    async with serving(*command) as line:
        yield int(line.rpartition(":")[2].partition("/")[0])


async def load(port: int, tool: str, clients: int) -> tuple[float, list[float]]:
    """Return the total time, and the time of each call."""
    waits: list[float] = []
    lines = [await asyncio.open_connection("127.0.0.1", port) for _ in range(clients)]
    try:
        await asyncio.gather(*(calls(port, tool, *line, 1, []) for line in lines))
        began = time.perf_counter()
        each = max(1, CALLS // clients)
        await asyncio.gather(*(calls(port, tool, *line, each, waits) for line in lines))
        return time.perf_counter() - began, waits
    finally:
        for _, writer in lines:
            writer.close()


async def calls(
    port: int, tool: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int, waits: list[float]
) -> None:
    params = {"name": tool, "arguments": {}, "_meta": ENVELOPE}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
        f"Mcp-Method: tools/call\r\nMcp-Name: {tool}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    for _ in range(count):
        began = time.perf_counter()
        writer.write(head + body)
        headers = (await reader.readuntil(b"\r\n\r\n")).lower()
        assert b" 200 " in headers.split(b"\r\n")[0], headers
        answer = await reader.readexactly(int(headers.partition(b"content-length:")[2].split(b"\r\n")[0]))
        assert b'"result"' in answer, answer
        waits.append(time.perf_counter() - began)


async def list_tools(_: Any, __: Any) -> ListToolsResult:
    names = ("noop", "record")
    return ListToolsResult(tools=[Tool(name=name, description="", input_schema={"type": "object"}) for name in names])


async def call_tool(_: Any, params: CallToolRequestParams) -> CallToolResult:
    """Do nothing, or write a record."""
    if params.name == "record":
        synced().once()
    return CallToolResult(content=[TextContent(text="")])


@cache
def synced() -> SyncedWrite:
    """Return the file for records, in the benchmark's HOME."""
    return SyncedWrite(Path.home())


def bare() -> None:
    """Run the SDK's own server as in its documentation, without its tracing."""
    # asyncio sets TCP_NODELAY only for sockets created with IPPROTO_TCP; without it each answer waits 40 ms for its
    # second half.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1024)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    made: Server[Any] = Server("bare", version="0", on_list_tools=list_tools, on_call_tool=call_tool)
    made.middleware.clear()
    config = uvicorn.Config(made.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
    config.timeout_keep_alive = PATIENCE_SECONDS
    uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    bare()
