"""What an attacker sends to the front: each gets the right status, nothing leaks, and the next one is served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.ai_session.support.http_servers import Here, called, running
from tests.ai_session.support.mcp_client import ENVELOPE, stop_daemons
from tests.conftest import UNBOXED, new_home

pytestmark = pytest.mark.anyio

LEAKS = ("Traceback", "site-packages", "ai_session/", "/work", "ses_", "secret", "uvicorn", "starlette")
BODY = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
IMPATIENT = {"head": 0.2, "body": 0.2, "rest": 0.2}


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    home = new_home(homes, UNBOXED)
    yield home
    stop_daemons(home)


@asynccontextmanager
async def attacked(daemon_home: Path, **settings: Any) -> AsyncGenerator[tuple[Here, str]]:
    """A front and a token for it; afterwards it must still answer who has one."""
    async with running(daemon_home, **settings) as here:
        assert here.tokens
        token = here.tokens.give("alice")
        yield here, token
        assert (await here.modern("tools/list", token=token)).status_code == 200


def head(here: Here, method: str = "POST", path: str = "/mcp", **more: str) -> bytes:
    """A request's head, without its end."""
    fields = {"Host": f"127.0.0.1:{here.port}", "Content-Type": "application/json"} | {
        name.replace("_", "-"): value for name, value in more.items()
    }
    return f"{method} {path} HTTP/1.1\r\n".encode() + b"".join(f"{n}: {v}\r\n".encode() for n, v in fields.items())


async def test_without_a_token_that_holds_nothing_is_told(daemon_home: Path) -> None:
    async with attacked(daemon_home) as (here, token):
        assert here.tokens
        elsewhere = here.tokens.give("mallory", resource="https://other.example/mcp")
        over = here.tokens.give("mallory", seconds=-5)
        for shown in ("", "guessed", token + "x", token.upper(), elsewhere, over, "a" * 20_000):
            for answer in (
                await here.modern("tools/list", token=shown),
                await here.post(called("list_sessions"), shown),
                await here.http.get(here.url, headers=here.headers(shown)),
                await here.http.delete(here.url, headers=here.headers(shown, **{"Mcp-Session-Id": "x"})),
            ):
                assert answer.status_code == 401, (shown[:20], answer.text)
                challenge = answer.headers["www-authenticate"]
                assert ("invalid_token" in challenge) == bool(shown), challenge
                assert "resource_metadata=" in challenge
                assert not [leak for leak in LEAKS if leak in answer.text], answer.text
        basic = await here.http.post(here.url, json={}, headers=here.headers(Authorization="Basic YTpi"))
        assert basic.status_code == 401


async def test_a_session_is_its_owners(daemon_home: Path) -> None:
    async with attacked(daemon_home) as (here, alice):
        assert here.tokens
        session = await here.handshake(alice)
        mallory = here.tokens.give("mallory")
        other_client = here.tokens.give("alice", client="another")
        for token, shown in ((mallory, session), (other_client, session), (alice, "0" * 32), (alice, "../" * 9)):
            answers = [
                await here.post(called("list_sessions"), token, shown),
                await here.http.get(here.url, headers=here.headers(token, **{"Mcp-Session-Id": shown})),
                await here.http.delete(here.url, headers=here.headers(token, **{"Mcp-Session-Id": shown})),
            ]
            assert [answer.status_code for answer in answers] == [404] * 3, shown
            assert len({answer.text for answer in answers}) == 1
        assert (await here.post(called("list_sessions"), alice, session)).status_code == 200


async def test_names_and_pages_of_others_are_refused_before_anything(daemon_home: Path) -> None:
    async with attacked(daemon_home, allowed_origins=("https://app.example.org",)) as (here, token):
        for host in (
            "evil.example",
            "evil.example:8765",
            "127.0.0.1.evil.example",
            "localhost.",
            "",
            "[",
            "a@127.0.0.1",
        ):
            answer = await here.modern("tools/list", token=token, Host=host)
            assert answer.status_code in (400, 421), (host, answer.status_code)
        for origin in ("http://evil.example", "null", "http://127.0.0.1", "http://localhost:1", "file://", "[", ""):
            answer = await here.modern("tools/list", token=token, Origin=origin)
            assert answer.status_code == 403, origin
        for origin in (here.address.base_url, "https://app.example.org"):
            assert (await here.modern("tools/list", token=token, Origin=origin)).status_code == 200
        health = f"{here.address.base_url}/health"
        assert (await here.http.get(health, headers={"Host": "evil.example"})).status_code == 421


async def test_headers_must_say_what_the_body_says(daemon_home: Path) -> None:
    async with attacked(daemon_home) as (here, token):
        params = {"name": "list_sessions", "arguments": {}}
        for wrong in (
            {"Mcp-Name": "close_session"},
            {"Mcp-Method": "tools/list"},
            {"Mcp-Method": ""},
            {"MCP-Protocol-Version": "2027-01-01"},
            {"MCP-Protocol-Version": "x" * 100},
        ):
            answer = await here.modern("tools/call", params, token, **wrong)
            assert answer.status_code == 400, (wrong, answer.text)
            assert answer.json()["error"]["code"] in (-32020, -32022, -32602), answer.text
        sent = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": ENVELOPE}}).encode()
        twice = head(
            here, Authorization=f"Bearer {token}", Accept="*/*", Content_Length=str(len(sent)), Connection="close"
        )
        twice += b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\nMcp-Method: tools/call\r\n\r\n"
        assert (await here.raw(twice + sent)).startswith(b"HTTP/1.1 400 ")


async def test_bodies_that_are_too_long_or_no_messages(daemon_home: Path) -> None:
    async with attacked(daemon_home, max_body_bytes=2048) as (here, token):
        declared = head(here, Authorization=f"Bearer {token}", Accept="*/*", Content_Length="99999999")
        async with here.line() as (reader, writer):
            writer.write(declared + b"\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
        chunked = head(here, Authorization=f"Bearer {token}", Accept="*/*", Transfer_Encoding="chunked")
        async with here.line() as (reader, writer):
            writer.write(chunked + b"\r\n" + (b"400\r\n" + b"x" * 1024 + b"\r\n") * 3)
            assert (await reader.readline()).startswith(b"HTTP/1.1 413 ")
        session = await here.handshake(token)
        bodies = (
            b"",
            b"{",
            b"[]",
            b"null",
            b'"x"',
            b"[" * 2000,
            b'{"a":' * 300,
            b"\xff\xfe",
            b"\x00" * 99,
            b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
            b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
            b'{"jsonrpc":"2.0","id":{},"method":"ping"}',
            b'{"jsonrpc":"2.0","id":1,"method":7}',
            b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}',
            b"9" * 2000,
        )
        for body in bodies:
            for more in ({"MCP-Protocol-Version": "2026-07-28"}, {"Mcp-Session-Id": session}):
                answer = await here.http.post(here.url, content=body, headers=here.headers(token, **more))
                heeded = (answer.status_code, answer.text) == (202, "")  # a notification that says nothing
                assert heeded or answer.status_code == 400, (body[:40], answer.status_code, answer.text)
                assert not [leak for leak in LEAKS if leak in answer.text], answer.text
        surrogate = (
            b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"\\ud800","arguments":{"\\udfff":1}}}'
        )
        answer = await here.http.post(
            here.url, content=surrogate, headers=here.headers(token, **{"Mcp-Session-Id": session})
        )
        assert answer.status_code in (200, 400)
        plain = await here.http.post(
            here.url, content=BODY, headers=here.headers(token, **{"Content-Type": "text/plain"})
        )
        assert plain.status_code == 415
        silent = await here.http.post(here.url, content=BODY, headers=here.headers(token, Accept="text/html"))
        assert silent.status_code == 406


async def test_no_other_door_is_open(daemon_home: Path) -> None:
    async with attacked(daemon_home) as (here, token):
        for method, path, status in (
            ("PUT", "/mcp", 405),
            ("PATCH", "/mcp", 405),
            ("TRACE", "/mcp", 405),
            ("POST", "/health", 405),
            ("GET", "/", 404),
            ("GET", "/docs", 404),
            ("GET", "/openapi.json", 404),
            ("GET", "/sse", 404),
            ("GET", "/mcp/../../etc/passwd", 404),
            ("GET", "/mcp/%2e%2e/x", 404),
            ("GET", "//evil.example/mcp", 404),
            ("POST", "/messages/", 404),
        ):
            wanted = head(here, method, path, Authorization=f"Bearer {token}", Connection="close", Content_Length="0")
            answer = await here.raw(wanted + b"\r\n")
            assert answer.split(b" ")[1] == str(status).encode(), (method, path, answer)
            assert not [leak for leak in LEAKS if leak.encode() in answer], answer


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
async def test_garbage_on_the_wire_ends_its_connection_only(daemon_home: Path) -> None:
    async with attacked(daemon_home, seconds=IMPATIENT) as (here, _):
        for garbage in (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
            b"GET\r\n\r\n",
            b"\r\n" * 100,
            b"POST /mcp HTTP/9.9\r\n\r\n",
            b"POST /mcp HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            b"POST /mcp HTTP/1.1\r\nContent-Length: -1\r\nHost: localhost\r\n\r\n",
            b"POST /mcp HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\nHost: localhost\r\n\r\n",
            b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nzzz",
            b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100_000 + b"\r\n\r\n",
            b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ):
            answer = await here.raw(garbage, over=True)
            assert answer[:12] in (b"", b"HTTP/1.1 400", b"HTTP/1.1 421", b"HTTP/1.1 401"), (garbage[:60], answer[:200])
            assert not [leak for leak in LEAKS if leak.encode() in answer], answer


async def test_slow_clients_are_not_waited_for(daemon_home: Path) -> None:
    async with attacked(daemon_home, seconds=IMPATIENT) as (here, token):
        begun = head(here, Authorization=f"Bearer {token}", Accept="*/*", Content_Length="400")
        assert await here.raw(b"") == b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        assert (await here.raw(begun)).startswith(b"HTTP/1.1 408 ")
        assert (await here.raw(begun + b"\r\n{")).startswith(b"HTTP/1.1 408 ")
        async with here.line() as (reader, writer):
            writer.write(head(here, "GET", "/health") + b"\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"GET /hea")
            assert b"HTTP/1.1 408 " in await reader.read()
        unread = head(here, Content_Length="999999")  # it is answered at once, and goes on sending
        async with here.line() as (reader, writer):
            writer.write(unread + b"\r\n" + b"x" * 1000)
            assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
            await reader.read()


async def test_idle_connections_starve_nobody(daemon_home: Path) -> None:
    async with attacked(daemon_home, max_connections=50) as (here, token), AsyncExitStack() as held:
        for number in range(400):
            _, writer = await held.enter_async_context(here.line())
            if number % 2:
                writer.write(head(here, Authorization="Bearer x", Content_Length="9" * (number % 3)))
            if number % 50 == 0:
                assert (await here.modern("tools/list", token=token)).status_code == 200
        assert len(here.front.limiter) <= 50
        async with here.line() as (reader, writer):
            writer.write(head(here, "GET", "/health", Connection="close") + b"\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")


async def test_one_user_cannot_take_all(daemon_home: Path) -> None:
    async with attacked(daemon_home, max_requests=4) as (here, token):
        assert here.tokens
        greedy = here.tokens.give("greedy")
        streams: list[asyncio.Task[Any]] = []
        params = {"notifications": {"toolsListChanged": True}}
        heard = asyncio.Semaphore(0)

        async def listen() -> None:
            body = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "subscriptions/listen",
                "params": {**params, "_meta": ENVELOPE},
            }
            sent = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
            async with here.http.stream("POST", here.url, json=body, headers=here.headers(greedy, **sent)) as stream:
                async for _ in stream.aiter_lines():
                    heard.release()

        for _ in range(4):
            streams.append(asyncio.create_task(listen()))
            await heard.acquire()
        while (busy := await here.modern("tools/list", token=greedy)).status_code != 429:
            assert busy.status_code == 200
        assert busy.headers["retry-after"] == "1"
        assert busy.json()["error"]["data"]["retryAfterMs"] == 1000
        assert (await here.modern("tools/list", token=token)).status_code == 200
        for stream in streams:
            stream.cancel()
        await asyncio.wait(streams)
        while (freed := await here.modern("tools/list", token=greedy)).status_code == 429:
            pass
        assert freed.status_code == 200
