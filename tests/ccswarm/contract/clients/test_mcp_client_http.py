"""The client over Streamable HTTP: a real server of both eras, and endpoints that are none."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest

from ccswarm.clients.mcp.plugin import McpToolClient
from ccswarm.config.settings import ServerSettings
from ccswarm.errors import CallTimedOut, ServerLost, ServerUnavailable
from tests.ccswarm.support.http_servers import OVER_HTTP, endpoint, response, sleepy, web
from tests.ccswarm.support.mcp_servers import BOUND_SECONDS, ROOT, use
from tests.support import forked

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def shared() -> Iterator[int]:
    """The port of a server for all tests of this module that leave it as it was."""
    with closing(forked.piped("ccswarm", ["stream"], cwd=ROOT, env=os.environ, script=str(OVER_HTTP))) as process:
        assert process.stdout
        yield int(process.stdout.readline())


class Known(dict[str, str]):
    """An era cache that says the same of every server."""

    def __init__(self, era: str) -> None:
        super().__init__()
        self._era = era

    def get(self, *_: Any) -> Any:
        return self._era


@asynccontextmanager
async def client_at(port: int, era: str = "", **more: Any) -> AsyncIterator[McpToolClient]:
    settings = ServerSettings(name="web", url=f"http://127.0.0.1:{port}/mcp", **more)
    client = McpToolClient(settings, env={"TOKEN": "sesame"}, era_cache=Known(era))
    try:
        yield client
    finally:
        await client.close()


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.either("era")
async def test_everything_over_http(shared: int, era: str) -> None:
    async with client_at(shared, era, headers={"Authorization": "Bearer $TOKEN", "X-Team": "a$$b"}) as client:
        await calls(client, era)
        await cancels(client, era)
        await changes(client, era)


async def test_a_header_the_server_wants_of_an_argument(shared: int) -> None:
    """Which header that is, the list of tools says: it is fetched when the server refuses a call."""
    async with client_at(shared, "modern") as client:
        assert (await use(client, "teamwork", team="blue")).structured == {"mcp-param-team": "blue"}


async def calls(client: McpToolClient, era: str) -> None:
    assert (await use(client, "echo", text="hü")).text == "hü"
    assert (await use(client, "headers")).structured == {
        "authorization": "Bearer [REDACTED:Authorization]",
        "x-team": "a$b",
    }
    reported: list[Any] = []
    await use(client, "release", name=f"progress {era}")
    await client.call("hold", {"name": f"progress {era}"}, meta={}, on_progress=lambda *step: reported.append(step))
    assert reported == [(1.0, 2.0, "held")]
    assert len((await use(client, "big", size=3_000_000)).text) == 3_000_000


async def cancels(client: McpToolClient, era: str) -> None:
    with pytest.raises(CallTimedOut):
        await client.call("hold", {"name": era}, meta={}, timeout_seconds=1.0)
    assert (await use(client, "was_cancelled", name=era)).text == era


async def changes(client: McpToolClient, era: str) -> None:
    assert era not in {tool.name for tool in await client.list_tools()}
    await use(client, "change", name=era)
    async with asyncio.timeout(BOUND_SECONDS):
        while era not in {tool.name for tool in await client.list_tools()}:
            await use(client, "echo", text="word of it comes on a connection of its own")


async def test_answers_in_one_piece() -> None:
    async with web("json") as port:
        for era in ("modern", "legacy"):
            async with client_at(port, era) as client:
                assert (await use(client, "echo", text="hü")).text == "hü"


@pytest.mark.torture
async def test_an_answer_that_is_too_large_costs_its_call_only() -> None:
    """From an endpoint: to make such an answer would take a real server longer than to read it."""
    large = (
        b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [{"type": "text", "text": "' + b"x" * 68_000_000 + b'"}]}}'
    )

    def answer(method: str, body: dict[str, Any]) -> bytes | None:
        if body.get("method") == "tools/call":
            return response("200 OK", large % body["id"])
        return response("200 OK", b"") if method == "DELETE" else sleepy(method, body)

    async with endpoint(answer) as port, client_at(port, "legacy") as client:
        found = await client.call("nap", {}, meta={})
        assert found.is_error
        assert found.text == "the answer exceeds the limit of 67108864 bytes"
        assert [tool.name for tool in await client.list_tools()] == ["nap"]


async def test_a_server_that_dies_and_comes_back() -> None:
    async with web("stream") as port, client_at(port, "modern") as client, client_at(port, "legacy") as other:
        for one in (client, other):
            assert (await use(one, "echo", text="a")).text == "a"
        with pytest.raises(ServerLost, match="while die was called, server web did not answer"):
            await use(client, "die")
        for one in (client, other):
            with pytest.raises((ServerLost, ServerUnavailable)):  # lost while a connection of before is tried
                await use(one, "echo", text="b")
            with pytest.raises(ServerUnavailable, match="server web cannot be reached"):
                await use(one, "echo", text="b")
            assert "cannot be reached" in one.problem
        async with web("stream", port):
            for one in (client, other):
                assert (await use(one, "echo", text="c")).text == "c"
                assert one.problem == ""


async def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        async with client_at(port, connect_seconds=0.5) as client:
            with pytest.raises(ServerUnavailable, match=r"server web did not answer within 0.5 s"):
                await client.list_tools()
    async with client_at(port) as client:
        with pytest.raises(ServerUnavailable, match="server web cannot be reached"):
            await client.list_tools()


async def test_a_header_whose_variable_is_not_set() -> None:
    async with client_at(1, headers={"Authorization": "Bearer $NOBODY"}) as client:
        with pytest.raises(ServerUnavailable, match="a variable that is not set: 'NOBODY'"):
            await client.list_tools()


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (response("401 Unauthorized", b"<html>", "text/html"), "cannot be reached: HTTP 401 Unauthorized"),
        (response("403 Forbidden", b'{"detail": "no"}'), "cannot be reached: HTTP 403 Forbidden"),
        (response("502 Bad Gateway", b""), "cannot be reached: HTTP 502 Bad Gateway"),
        (response("200 OK", b"<html>Welcome</html>", "text/html"), "Unexpected content type: text/html"),
        (response("200 OK", b"{}"), "Failed to parse JSON response"),
        (response("307 Moved\r\nLocation: http://example.com/", b""), "Redirect to http://example.com"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "cannot be reached"),
        (b"", "cannot be reached"),
    ],
)
async def test_what_is_no_server_is_reported(answer: bytes, problem: str) -> None:
    async with endpoint(lambda *_: answer) as port, client_at(port) as client:
        with pytest.raises(ServerUnavailable, match=re.escape(problem)):
            await client.list_tools()


async def test_a_session_that_is_not_let_go_is_left() -> None:
    async with endpoint(sleepy) as port, client_at(port) as client:
        assert [tool.name for tool in await client.list_tools()] == ["nap"]
        await asyncio.wait_for(client.close(), BOUND_SECONDS)


async def test_a_request_that_fails_costs_no_other(shared: int) -> None:
    async with client_at(shared, "modern") as client:
        other = asyncio.create_task(use(client, "hold", name="other"))
        await client.list_tools()
        await cancels(client, "another")
        await use(client, "release", name="other")
        assert (await other).text == "other"
