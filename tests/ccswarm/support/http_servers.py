"""Servers over HTTP: real ones as processes, and endpoints with the responses of a test."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.ccswarm.support.mcp_servers import ROOT, SERVERS
from tests.support.bounds import BOUND_SECONDS
from tests.support.forked_awaited import awaited

OVER_HTTP = SERVERS / "over_http.py"


@asynccontextmanager
async def web(kind: str, port: int = 0) -> AsyncIterator[int]:
    """Run a server as a process and yield its port."""
    words = [kind, str(port)]
    async with awaited("ccswarm", words, cwd=ROOT, env=os.environ, script=str(OVER_HTTP)) as process:
        async with asyncio.timeout(BOUND_SECONDS):
            yield int(await process.stdout.readline())


@asynccontextmanager
async def endpoint(
    answer: Callable[[str, dict[str, Any]], bytes | None], tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Yield the port of a server that responds with ``answer(method, body)`` and closes; None never responds."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(length[1]) if length else 0)
        said = answer(head.split()[0].decode(), json.loads(body or b"{}"))
        if said is None:
            await over.wait()
        else:
            writer.write(said)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]
        over.set()


def response(status: str, body: bytes, kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def sleepy(method: str, body: dict[str, Any]) -> bytes | None:
    """Answer as a server of the handshake era that does not respond to the end of a session."""
    result: dict[str, Any] = {"tools": [{"name": "nap", "inputSchema": {"type": "object"}}]}
    if method == "DELETE":
        return None
    if method == "GET":
        return response("405 Method Not Allowed", b"")
    if body["method"] == "server/discover":
        return response("400 Bad Request", b"Bad Request: no session", "text/plain")
    if body["method"] == "notifications/initialized":
        return response("202 Accepted", b"")
    if body["method"] == "initialize":
        info = {"name": "sleepy", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    message = {"jsonrpc": "2.0", "id": body["id"], "result": result}
    return response("200 OK\r\nMcp-Session-Id: one", json.dumps(message).encode())
