"""Who gives up a session over HTTP for whom."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER

from ai_session.http.endpoints.mcp_sessions import Receive, Scope, Send, Shares
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio
KEY = MCP_SESSION_ID_HEADER.encode()


class App:
    """Opens a session for each request without one; a GET in one lasts until ``release``."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.ended: list[str] = []
        self.streaming = asyncio.Semaphore(0)
        self.release = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope["headers"]).get(KEY, b"").decode()
        if scope["method"] == "DELETE":
            self.ended.append(given)
        if scope["method"] == "GET":
            self.streaming.release()
            await self.release.wait()
        if not given:
            given = f"{scope['user']}{len(self.opened)}"
            self.opened.append(given)
        await send({"type": "http.response.start", "status": 200, "headers": [(KEY, given.encode())]})


async def asked(shares: Shares, user: str, session_id: str = "", method: str = "POST") -> int:
    """The status of the answer to one request."""
    found: list[int] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            found.append(message["status"])

    headers = [(KEY, session_id.encode())] if session_id else []
    await shares({"type": "http", "method": method, "headers": headers, "user": user}, receive, send)
    return found[0]


async def test_who_has_most_gives_way_and_where_all_of_those_are_in_use_another() -> None:
    app = App()
    shares = Shares(app, lambda scope: scope["user"], 4, 3)
    for user in ("b", "a", "a", "a"):
        assert await asked(shares, user) == 200
    streams = [asyncio.ensure_future(asked(shares, "a", one, "GET")) for one in app.opened if one.startswith("a")]
    async with asyncio.timeout(BOUND_SECONDS):
        for _ in streams:
            await app.streaming.acquire()
        assert await asked(shares, "c") == 200
        assert app.ended == ["b0"]
        app.release.set()
        await asyncio.gather(*streams)
        assert await asked(shares, "d") == 200
        assert app.ended == ["b0", "a1"]
