"""A guest program, which starts ``ccswarm mcp-server`` for its tools and speaks MCP with it."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.bounds import BOUND_SECONDS
from tests.support.forked_awaited import Awaited, awaited

ROOT = Path(__file__).parents[3]
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


class GuestClient:
    """The MCP client of a guest. ``told`` are the received notifications; ``heard`` is set when one arrives."""

    def __init__(self, process: Awaited) -> None:
        self.process = process
        self.received: list[dict[str, Any]] = []
        self.heard = asyncio.Event()
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout
        while line := await self.process.stdout.readline():
            message = json.loads(line)
            if "id" in message:
                self._answers[message["id"]].set_result(message)
            else:
                self.received.append(message)
                self.heard.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the server has ended"))

    def write(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def begin(self, method: str, **params: Any) -> asyncio.Future[dict[str, Any]]:
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        self.write({"id": number, "method": method, "params": params})
        return self._answers[number]

    async def request(self, method: str, **params: Any) -> dict[str, Any]:
        return (await asyncio.wait_for(self.begin(method, **params), BOUND_SECONDS))["result"]

    async def shake_hands(self) -> dict[str, Any]:
        info = {"name": "test", "version": "1"}
        found = await self.request("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=info)
        self.write({"method": "notifications/initialized"})
        return found

    def begin_call(self, name: str, /, **arguments: Any) -> asyncio.Future[dict[str, Any]]:
        return self.begin("tools/call", name=name, arguments=arguments)

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        return await self.request("tools/call", name=name, arguments=arguments)

    async def leave(self) -> int:
        assert self.process.stdin
        self.process.stdin.close()
        async with asyncio.timeout(BOUND_SECONDS):
            await self._reading
            return await self.process.wait()


def words(result: dict[str, Any]) -> str:
    return "".join(part["text"] for part in result["content"])


@asynccontextmanager
async def guest(variable: str, *more: str) -> AsyncGenerator[GuestClient]:
    """Yield a client of the server that a program of a task starts, with ``variable`` as CCSWARM_GUEST, if any."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **({"CCSWARM_GUEST": variable} if variable else {})}
    line = ["mcp-server", "--agent", "ada", "--stdio", *more]
    async with awaited("ccswarm", line, cwd=Path.cwd(), env=environ, reads=True) as process:
        client = GuestClient(process)
        try:
            yield client
        finally:
            await client.leave()
