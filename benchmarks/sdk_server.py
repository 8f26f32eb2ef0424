"""An MCP server of the official SDK on standard input and output, whose tool ``noop`` does nothing.

``python -m benchmarks.sdk_server usual`` is written as in its documentation, with a decorated function; ``low-level``
uses the layers below that. The usual one also has tools for the floors: ``record`` writes and syncs one, ``shell`` runs
a command in a bare shell after that. ``bare`` does not use the SDK: it does this for any call, and checks nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool

from benchmarks.floors import RawReadline, SyncedWrite

KINDS = ("usual", "low-level")
BARE = "bare"


def usual() -> None:
    server = MCPServer("nothing")

    @server.tool()
    def noop() -> str:  # pyright: ignore[reportUnusedFunction]
        return ""

    with tempfile.TemporaryDirectory() as directory:
        synced, bare = SyncedWrite(Path(directory)), RawReadline(Path(directory))

        @server.tool()
        def record() -> float:  # pyright: ignore[reportUnusedFunction]
            return synced.once()

        @server.tool()
        def shell() -> float:  # pyright: ignore[reportUnusedFunction]
            return synced.once() + bare.once()

        server.run()


async def low_level() -> None:
    async def tools(_ctx: Any, _params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[Tool(name="noop", input_schema={"type": "object"})])

    async def call(_ctx: Any, _params: Any) -> CallToolResult:
        return CallToolResult(content=[TextContent(type="text", text="")], structured_content={"result": ""})

    server: Server[Any] = Server("nothing", on_list_tools=tools, on_call_tool=call)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def bare() -> None:
    """Serve with blocking calls: no server in Python can do the work of a command in less time."""
    with tempfile.TemporaryDirectory() as directory:
        synced, shell = SyncedWrite(Path(directory)), RawReadline(Path(directory))
        for line in sys.stdin.buffer:
            request = json.loads(line)
            if "id" not in request:
                continue
            result: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
            if request["method"] == "tools/call":
                seconds = synced.once() + shell.once()
                result = {"content": [], "structuredContent": {"result": seconds}, "isError": False}
            answer = {"jsonrpc": "2.0", "id": request["id"], "result": result}
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    if sys.argv[1] == "usual":
        usual()
    elif sys.argv[1] == BARE:
        bare()
    else:
        asyncio.run(low_level())
