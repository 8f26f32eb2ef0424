"""The HTTP host of A2A: who may ask, how much and how slowly, and how it ends. A real server, in the test's loop."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from agentwire.http.wire import LOOPBACK_NAMES, Site
from ccswarm.servers.a2a.http import (
    MOST_BODY_BYTES,
    Guard,
    Server,
    Unreadable,
    is_deep,
    json_response,
    read_json,
    stream_response,
)
from ccswarm.servers.a2a.plugin import site_of
from ccswarm.servers.base import Admission
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio

TOKENS = ["correct horse".replace(" ", "-"), "second"]


@dataclass
class Here:
    """A server that listens. ``left`` is set when the stream it gives was let go."""

    port: int
    stop: asyncio.Event
    said: asyncio.Queue[Any]
    left: asyncio.Event

    async def ask(self, head: str, body: bytes = b"") -> tuple[int, Mapping[str, str], bytes]:
        """One request on a connection of its own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
            return await answer(reader)
        finally:
            writer.close()
            await writer.wait_closed()

    async def get(self, path: str = "/", **headers: str) -> int:
        """The status."""
        given = {"Host": f"127.0.0.1:{self.port}", **{name.replace("_", "-"): value for name, value in headers.items()}}
        lines = "".join(f"\n{name}: {value}" for name, value in given.items() if value)
        return (await self.ask(f"GET {path} HTTP/1.1{lines}"))[0]


async def answer(reader: asyncio.StreamReader) -> tuple[int, Mapping[str, str], bytes]:
    async with asyncio.timeout(BOUND_SECONDS):
        status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
        return int(status.split()[1]), headers, await reader.readexactly(int(headers.get("content-length", 0)))


@asynccontextmanager
async def serving(
    tokens: tuple[str, ...] = (), *, local: bool = True, requests: float = 0, most: int = 10, seconds: float = 10
) -> AsyncGenerator[Here]:
    left = asyncio.Event()
    said = asyncio.Queue[Any]()

    async def read(request: Request) -> Response:
        try:
            return json_response({"read": await read_json(request)})
        except Unreadable as problem:
            return json_response({"why": problem.why}, problem.status)

    async def events() -> AsyncIterator[tuple[str, Any]]:
        try:
            while (one := await said.get()) is not None:
                yield "", one
        finally:
            left.set()

    async def stream(_: Request) -> Response:
        return stream_response(events())

    async def hello(_: Request) -> Response:
        return json_response("hello")

    async def leave() -> None:
        said.put_nowait(None)

    routes = [Route("/", hello), Route("/open", hello), Route("/", read, methods=["POST"]), Route("/stream", stream)]
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.setblocking(False)
    stop, ready = asyncio.Event(), asyncio.Event()
    admission = Admission(tokens)
    site = site_of("" if local else "0.0.0.0", ["swarm.example"])
    guard = Guard(Starlette(routes=routes), site=site, admission=admission, open_paths={"/open"}, requests=requests)
    server = Server(
        guard, listener, stop, admission=admission, most=most, ready=ready.set, leave=leave, head_seconds=seconds
    )
    going = asyncio.create_task(server.run_until_stopped())
    try:
        await ready.wait()
        yield Here(listener.getsockname()[1], stop, said, left)
    finally:
        stop.set()
        async with asyncio.timeout(BOUND_SECONDS):
            await going
        listener.close()


async def test_only_its_own_names_and_pages_reach_it() -> None:
    async with serving() as here:
        own = f"http://127.0.0.1:{here.port}"
        for host in ("localhost", f"LOCALHOST:{here.port}", "[::1]", "[0::1]:7", "swarm.example:443"):
            assert await here.get(Host=host) == 200
        for host in ("evil.example", "127.0.0.1.evil.example", "user@127.0.0.1", "a/b", "127.0.0.2", "0", "localhost."):
            assert await here.get(Host=host) == 421
        assert await here.get(Origin=own) == 200
        for origin in ("http://evil.example", "null", "http://localhost", own.replace("http", "https")):
            assert await here.get(Origin=origin) == 403
    async with serving(tuple(TOKENS), local=False) as here:
        for host in ("swarm.example", "192.0.2.7:80", "[2001:db8::7]", socket.gethostname()):
            assert await here.get("/open", Host=host) == 200
        assert await here.get("/open", Host="evil.example") == 421
        assert await here.get("/open", Host="swarm.example", Origin="http://evil.example") == 403


async def test_a_token_is_shown_in_either_way() -> None:
    async with serving(tuple(TOKENS)) as here:
        assert await here.get("/open") == 200
        for token in TOKENS:
            assert await here.get(Authorization=f"Bearer {token}") == 200
            assert await here.get(Authorization=f"bearer  {token}") == 200
            assert await here.get(X_Api_Key=token) == 200
        for given in ({}, {"Authorization": TOKENS[0]}, {"Authorization": "Bearer x"}, {"X_Api_Key": TOKENS[0][:-1]}):
            assert await here.get(**given) == 401
        assert await here.get("/nowhere") == 401


async def test_an_address_may_ask_so_often() -> None:
    async with serving(requests=1.0) as here:
        statuses = [await here.get() for _ in range(4)]
    assert statuses[:2] == [200, 200]
    assert 429 in statuses[2:]


async def test_bodies_are_json_of_some_size() -> None:
    async with serving() as here:
        head = f"POST / HTTP/1.1\nHost: localhost:{here.port}\nContent-Type: application/json\nContent-Length: "
        for body, status in ((b'{"n":9007199254740993}', 200), (b"{", 400), (b"\xff", 400), (b"1e999", 400)):
            found = await here.ask(head + str(len(body)), body)
            assert found[0] == status
        assert json.loads((await here.ask(head + "22", b'{"n":9007199254740993}'))[2])["read"] == {"n": 2**53 + 1}
        for body, why in ((b'"\\ud800"', "not UTF-8"), (b"[" * 3000, "nested too deeply"), (b"NaN", "NaN is not JSON")):
            status, _, said = await here.ask(head + str(len(body)), body)
            assert (status, json.loads(said)) == (400, {"why": why})
        large = b'"' + b"x" * MOST_BODY_BYTES + b'"'
        status, headers, _ = await here.ask(head + str(len(large)), large)
        assert (status, headers["connection"]) == (413, "close")
        assert await here.get() == 200


async def test_there_are_only_so_many_connections_and_the_slow_ones_end() -> None:
    async with serving(most=2, seconds=0.2) as here:
        silent = [await asyncio.open_connection("127.0.0.1", here.port) for _ in range(2)]
        silent[1][1].write(b"GET / HTTP/1.1\r\nHos")
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        assert (await answer(reader))[0] == 503
        for one, other in silent:
            async with asyncio.timeout(BOUND_SECONDS):
                assert await one.read() == b""
            other.close()
        again, sent = await asyncio.open_connection("127.0.0.1", here.port)
        request = f"GET / HTTP/1.1\r\nHost: localhost:{here.port}\r\n".encode()
        sent.write(request + b"\r\n")
        assert (await answer(again))[0] == 200
        sent.write(request)  # the second request never ends
        async with asyncio.timeout(BOUND_SECONDS):
            assert await again.read() == b""
        rest, slow = await asyncio.open_connection("127.0.0.1", here.port)
        slow.write(request + b"Content-Length: 9\r\n\r\nx")
        assert (await answer(rest))[0] == 200
        async with asyncio.timeout(BOUND_SECONDS):
            assert await rest.read() == b""
        for one in (writer, sent, slow):
            one.close()


async def test_a_stream_goes_on_until_its_end_and_is_let_go_with_its_client() -> None:
    async with serving() as here:
        head = f"GET /stream HTTP/1.1\r\nHost: localhost:{here.port}\r\n\r\n".encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        writer.write(head)
        here.said.put_nowait({"n": 1})
        async with asyncio.timeout(BOUND_SECONDS):
            assert b"text/event-stream" in await reader.readuntil(b"\r\n\r\n")
            assert await reader.readuntil(b"\n\n") == b'f\r\ndata: {"n":1}\n\n'
            writer.close()
            await here.left.wait()


async def test_a_stream_ends_in_order_with_the_server() -> None:
    async with serving() as here:
        head = f"GET /stream HTTP/1.1\r\nHost: localhost:{here.port}\r\n\r\n".encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
        writer.write(head)
        await reader.readuntil(b"\r\n\r\n")
        here.stop.set()
        async with asyncio.timeout(BOUND_SECONDS):
            assert await reader.read() == b"0\r\n\r\n"
        writer.close()


async def test_a_stream_in_which_nothing_happens_says_that_it_lives() -> None:
    said = asyncio.Queue[Any]()

    async def events() -> AsyncIterator[tuple[str, Any]]:
        yield "name", await said.get()

    stream = cast("StreamingResponse", stream_response(events(), 0.01)).body_iterator
    assert await anext(stream) == b": here\n\n"
    said.put_nowait({"ü": [1]})
    found = [one async for one in stream]
    assert found[-1] == 'event: name\ndata: {"ü":[1]}\n\n'.encode()
    assert set(found[:-1]) <= {b": here\n\n"}


async def test_a_server_has_the_name_it_was_given_too() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await json_response("hello")(scope, receive, send)

    async def status(host: bytes) -> int:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        site = Site({"mine", *LOOPBACK_NAMES})
        guard = Guard(app, site=site, admission=Admission(), open_paths=(), requests=0)
        scope = {"type": "http", "headers": [(b"host", host)], "path": "/", "scheme": "http", "client": ("::1", 1)}
        scope |= {"method": "GET", "state": {"peer_user": None}}
        await guard(scope, asyncio.Queue[Any]().get, send)
        return sent[0]["status"]

    assert [await status(host) for host in (b"mine:1", b"localhost", b"other", b"")] == [200, 200, 421, 421]


def test_depths() -> None:
    value: Any = 1
    for _ in range(99):
        value = [value]
    assert not is_deep(value)
    assert is_deep([value])
