"""The fixtures behind one of the product's ways in: `http`, `daemon` (for a relay) or `stdio`.

`http` and `daemon` say on a line that they can be reached, and end when their standard input does.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from ai_session import __version__
from ai_session.client import relay
from ai_session.config.settings import HttpSettings
from ai_session.daemon.host import HELLO_BYTES, listen, parse_hello
from ai_session.http.app import application
from ai_session.http.connections import ConnectionLimiter
from ai_session.http.endpoints.base import Front
from ai_session.http.endpoints.mcp import McpEndpoint
from ai_session.http.gate_client import RemoteGate
from ai_session.http.server import HttpServer, bind
from ai_session.models import Principal
from ai_session.servers.base import Connection
from ai_session.servers.mcp.plugin import McpServer
from tests.clients.conformance_fixtures import make_server

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class FixtureHost:
    """The process, as a server sees it. There is nothing to start and nothing to ask of it."""

    async def gate(self) -> Any:
        return NoGate()

    def status(self) -> Mapping[str, Any]:
        return {}

    def stop(self, *, sessions: bool, asked: Collection[str] | None = None) -> list[str]:
        return []


class NoGate:
    """No fixture asks for the gate; one that does fails."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a fixture asked the gate for {name}")


async def accept(server: McpServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One client, greeted as the daemon greets."""
    hello = parse_hello(await reader.readuntil(b"\n"))
    facts = {"ai_session": 1, "version": __version__, "pid": os.getpid(), "idle": False}
    writer.write(json.dumps(facts, separators=(",", ":")).encode() + b"\n")
    principal = Principal(kind="mcp", uid=os.getuid())
    with suppress(ConnectionError):
        await server.serve(Connection(reader, writer, principal, hello, FixtureHost()))


async def until_input_ends() -> None:
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)


def say(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def daemon() -> None:
    _, listener = listen()
    mcp = McpServer(registry=make_server())
    server = await asyncio.start_unix_server(
        lambda reader, writer: accept(mcp, reader, writer), sock=listener, limit=HELLO_BYTES
    )
    say("serving")
    await until_input_ends()
    server.close()


async def stdio() -> None:
    source, target = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours, limit=HELLO_BYTES)
    pumping = asyncio.get_running_loop().run_in_executor(None, relay.converse, theirs, source, target)
    await accept(McpServer(registry=make_server()), reader, writer)
    await pumping


async def http() -> None:
    settings = HttpSettings(port=0)
    location = bind(settings, authenticated=False)
    front = Front(settings, location.host, location.base_url, cast(RemoteGate, NoGate()), None)
    app = application(front, McpEndpoint(front, registry=make_server()))
    server = HttpServer(app, location, ConnectionLimiter(settings.max_connections))
    serving = asyncio.create_task(server.serve())
    await server.listening.wait()
    say(location.listener.getsockname()[1])
    await until_input_ends()
    server.stop()
    await serving
    location.listener.close()


async def main(kind: str) -> None:
    warnings.simplefilter("ignore")  # fixtures of 2025-11-25 use what is deprecated since
    await {"daemon": daemon, "http": http, "stdio": stdio}[kind]()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
    os._exit(0)
