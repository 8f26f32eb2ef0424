"""Streamable HTTP in front of a program that speaks MCP on its standard input and output: the suite knows HTTP only.

    python -m tests.clients.conformance_bridge COMMAND…

says its port on a line and ends when its standard input does. Requests of 2026-07-28 share one process, each legacy
session has its own. It checks neither headers nor origins, so what the suite finds about those says nothing about the
program behind it.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    Message = dict[str, Any]

MODERN = "2026-07-28"
VERSION = "io.modelcontextprotocol/protocolVersion"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
STATUS = {-32601: 404, -32602: 400, -32020: 400, -32021: 400, -32022: 400}
LINE_BYTES = 64 << 20
END_SECONDS = 5.0


class Exchange:
    """One request in a child, under a number of the bridge's own."""

    def __init__(self, number: int, message: Message) -> None:
        self.number = number
        self.request_id = message["id"]
        meta = (message.get("params") or {}).get("_meta") or {}
        self.progress_token = meta.get("progressToken")
        self.arrived: asyncio.Queue[Message | None] = asyncio.Queue()


class Child:
    """One process, and who waits for what it says."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._exchanges: dict[int, Exchange] = {}
        self._asked = 0
        self._pump = asyncio.create_task(self._hear())

    @classmethod
    async def start(cls) -> Child:
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*sys.argv[1:], stdin=pipe, stdout=pipe, limit=LINE_BYTES))

    def send(self, message: Message) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(message).encode() + b"\n")

    def ask(self, message: Message) -> Exchange:
        self._asked += 1
        exchange = self._exchanges[self._asked] = Exchange(self._asked, message)
        self.send({**message, "id": exchange.number})
        return exchange

    def give_up(self, exchange: Exchange) -> None:
        """The client has gone from a request that is not answered."""
        if self._exchanges.pop(exchange.number, None):
            params = {"requestId": exchange.number}
            self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    async def end(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), END_SECONDS)
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
        await self._pump

    async def _hear(self) -> None:
        assert self._process.stdout
        async for line in self._process.stdout:
            self._deliver(json.loads(line))
        for exchange in self._exchanges.values():
            exchange.arrived.put_nowait(None)

    def _deliver(self, message: Message) -> None:
        if "method" not in message:
            exchange = self._exchanges.pop(message["id"], None)
            if exchange:
                exchange.arrived.put_nowait({**message, "id": exchange.request_id})
                exchange.arrived.put_nowait(None)
            return
        params = message.get("params") or {}
        meta = params.get("_meta") or {}
        exchange = self._exchanges.get(meta.get(SUBSCRIPTION, 0))
        if exchange:
            meta[SUBSCRIPTION] = exchange.request_id
        else:
            # A pipe has no stream for each request: what has no token belongs to the newest one.
            token, newest = params.get("progressToken"), list(self._exchanges.values())[::-1]
            owners = [e for e in newest if token is not None and e.progress_token == token]
            exchange = next(iter(owners or newest), None)
        if exchange:
            exchange.arrived.put_nowait(message)


class Bridge:
    """The HTTP side."""

    def __init__(self) -> None:
        self._sessions: dict[str, Child] = {}
        self._modern: Child | None = None
        self._next = asyncio.create_task(Child.start())

    async def post(self, request: Request) -> Response:
        try:
            message: Message = json.loads(await request.body())
        except ValueError:
            return refused(-32700, "Parse error")
        meta = (message.get("params") or {}).get("_meta") or {}
        modern = VERSION in meta or request.headers.get("mcp-protocol-version", "") >= MODERN
        session = request.headers.get("mcp-session-id")
        headers: dict[str, str] = {}
        if modern:
            self._modern = self._modern or await self._another()
            child: Child | None = self._modern
        elif message.get("method") == "initialize":
            session = headers["mcp-session-id"] = secrets.token_hex(16)
            child = self._sessions[session] = await self._another()
        else:
            child = self._sessions.get(session or "")
        if child is None:
            return refused(-32600, "no session", 404 if session else 400)
        if "id" not in message or "method" not in message:
            child.send(message)
            return Response(status_code=202)
        exchange = child.ask(message)
        first = await exchange.arrived.get()
        if first is None:
            return refused(-32603, "the program has ended", 502)
        if "method" in first:
            return StreamingResponse(events(child, exchange, first), media_type="text/event-stream", headers=headers)
        status = STATUS.get((first.get("error") or {}).get("code"), 200) if modern else 200
        return JSONResponse(first, status, headers)

    async def delete(self, request: Request) -> Response:
        child = self._sessions.pop(request.headers.get("mcp-session-id", ""), None)
        if child:
            await child.end()
        return Response(status_code=200 if child else 404)

    async def end(self) -> None:
        for child in [*self._sessions.values(), await self._next, *([self._modern] if self._modern else [])]:
            await child.end()

    async def _another(self) -> Child:
        """One that was started beforehand: the suite waits a few seconds for an answer, however busy the machine."""
        ready = self._next
        self._next = asyncio.create_task(Child.start())
        return await ready


async def events(child: Child, exchange: Exchange, message: Message | None) -> AsyncIterator[bytes]:
    try:
        while message is not None:
            yield b"event: message\r\ndata: " + json.dumps(message).encode() + b"\r\n\r\n"
            message = await exchange.arrived.get()
    finally:
        child.give_up(exchange)


def refused(code: int, why: str, status: int = 400) -> Response:
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": why}}, status)


async def main() -> None:
    bridge = Bridge()
    routes = [Route("/mcp", bridge.post, methods=["POST"]), Route("/mcp", bridge.delete, methods=["DELETE"])]
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="critical"))
    serving = asyncio.create_task(server.serve([listener]))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
    server.should_exit = server.force_exit = True
    await serving
    await bridge.end()


if __name__ == "__main__":
    asyncio.run(main())
    os._exit(0)
