"""A server of both eras on a loopback port, which it writes to its output. Argument: json, or stream for events."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import Annotated, Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from pydantic import Field

server = MCPServer("web")
held: dict[str, asyncio.Event] = {}
cancelled: dict[str, asyncio.Event] = {}


@server.tool()
async def echo(text: str) -> str:
    return text


@server.tool()
async def big(size: int) -> str:
    return "x" * size


@server.tool()
async def headers(context: Context[Any]) -> dict[str, str]:
    request = context.request_context.request
    return {name: value for name, value in request.headers.items() if name in ("authorization", "x-team")}


@server.tool()
async def teamwork(
    team: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Team"})], context: Context[Any]
) -> dict[str, str]:
    return {"mcp-param-team": context.request_context.request.headers["mcp-param-team"]}


@server.tool()
async def hold(name: str, context: Context[Any]) -> str:
    await context.report_progress(1, 2, "held")
    try:
        await held.setdefault(name, asyncio.Event()).wait()
    except asyncio.CancelledError:
        cancelled.setdefault(name, asyncio.Event()).set()
        raise
    return name


@server.tool()
async def release(name: str) -> str:
    held.setdefault(name, asyncio.Event()).set()
    return name


@server.tool()
async def was_cancelled(name: str) -> str:
    await cancelled.setdefault(name, asyncio.Event()).wait()
    return name


@server.tool()
async def change(name: str, context: Context[Any]) -> str:
    async def newcomer() -> str:
        return "new"

    server.add_tool(newcomer, name=name)
    await context.notify_tools_changed()
    await context.session.send_tool_list_changed()
    return name


@server.tool()
async def die() -> None:
    os._exit(1)


async def main(kind: str, port: str = "0") -> None:
    listener = socket.create_server(("127.0.0.1", int(port)))
    app = server.streamable_http_app(json_response=kind == "json")
    config = uvicorn.Config(app, log_level="error", lifespan="on")
    print(listener.getsockname()[1], flush=True)
    await uvicorn.Server(config).serve([listener])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
