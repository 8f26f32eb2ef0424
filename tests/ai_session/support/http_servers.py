"""A front on a real port before a real daemon, with tokens that a test issues, and raw HTTP to it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings

from ai_session.config.settings import HttpSettings
from ai_session.http.app import application
from ai_session.http.connections import ALLOWED_SECONDS, ConnectionLimiter, Expected
from ai_session.http.endpoints.base import Front
from ai_session.http.endpoints.mcp import McpEndpoint
from ai_session.http.gate_client import RemoteGate
from ai_session.http.oauth.access import Access
from ai_session.http.oauth.challenges import Challenges
from ai_session.http.oauth.scopes import USUAL
from ai_session.http.server import HttpServer, ListenAddress, bind
from tests.ai_session.support.mcp_client import BOUND_SECONDS, ENVELOPE, Message, living_in
from tests.conftest import environment
from tests.support import forked

ACCEPT = "application/json, text/event-stream"
MODERN, LEGACY = "2026-07-28", "2025-11-25"


@dataclass
class Tokens:
    """An issuer of tokens that is also a token verifier of the SDK."""

    url: str
    known: dict[str, AccessToken] = field(default_factory=dict[str, AccessToken])

    def give(self, subject: str, *scopes: str, resource: str = "", seconds: float = 3600, client: str = "probe") -> str:
        token = f"{subject}-{len(self.known)}-secret"
        self.known[token] = AccessToken(
            token=token,
            client_id=client,
            scopes=list(scopes or USUAL),
            expires_at=int(time.time() + seconds),
            resource=resource or self.url,
            subject=subject,
        )
        return token

    async def verify_token(self, token: str) -> AccessToken | None:
        return self.known.get(token)


@dataclass
class Here:
    """A running front. ``tokens`` is None if it needs no signing in."""

    address: ListenAddress
    front: HttpServer
    tokens: Tokens | None
    http: httpx2.AsyncClient

    @property
    def url(self) -> str:
        return self.address.url

    @property
    def port(self) -> int:
        return self.address.listener.getsockname()[1]

    def headers(self, token: str = "", **more: str) -> dict[str, str]:
        found = {"Content-Type": "application/json", "Accept": ACCEPT, **more}
        return found | ({"Authorization": f"Bearer {token}"} if token else {})

    async def modern(self, method: str, params: Message | None = None, token: str = "", **more: str) -> httpx2.Response:
        """Send a request of protocol version 2026-07-28."""
        given = params or {}
        sent = {**given, "_meta": ENVELOPE | given.get("_meta", {})}
        named = given.get("name") or given.get("uri")
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **({"Mcp-Name": named} if named else {})}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": sent}
        return await self.http.post(self.url, json=body, headers=self.headers(token, **(headers | more)))

    async def call(self, tool: str, /, *, token: str = "", **arguments: Any) -> Message:
        """Call a tool and return its result."""
        answer = await self.modern("tools/call", {"name": tool, "arguments": arguments}, token)
        assert answer.status_code == 200, (answer.status_code, answer.text)
        return answer_of(answer)["result"]

    async def post(self, message: Any, token: str = "", session: str = "", **more: str) -> httpx2.Response:
        """Send a message of the handshake era."""
        headers = {"MCP-Protocol-Version": LEGACY, **({"Mcp-Session-Id": session} if session else {}), **more}
        return await self.http.post(self.url, json=message, headers=self.headers(token, **headers))

    async def handshake(self, token: str = "", capabilities: Message | None = None) -> str:
        """Do the handshake and return the id of the MCP session."""
        info = {"name": "wire", "version": "1"}
        params = {"protocolVersion": LEGACY, "capabilities": capabilities or {}, "clientInfo": info}
        begun = await self.post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, token)
        assert begun.status_code == 200, (begun.status_code, begun.text)
        assert answer_of(begun)["result"]["protocolVersion"] == LEGACY
        session = begun.headers["mcp-session-id"]
        response = await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, token, session)
        assert response.status_code == 202
        return session

    async def raw(self, data: bytes, *, over: bool = False) -> bytes:
        """Send bytes and return all until the server closes. With ``over``, the sending side is closed."""
        async with self.line() as (reader, writer):
            writer.write(data)
            if over:
                writer.write_eof()
            async with asyncio.timeout(BOUND_SECONDS):
                return await reader.read()

    @asynccontextmanager
    async def line(self) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Yield a connection of its own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()


def called(tool: str, /, **arguments: Any) -> Message:
    """Return the message of a tool call in the handshake era."""
    return {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


def answer_of(response: httpx2.Response) -> Message:
    """Return the message in a response, which is JSON or the last one of a stream."""
    return answers_in(response.text)[-1] if "event-stream" in response.headers["content-type"] else response.json()


def answers_in(text: str) -> list[Message]:
    """Return the messages of a stream."""
    return [json.loads(line.removeprefix("data:")) for line in text.splitlines() if line.startswith("data: {")]


def shown(url: str) -> AuthSettings:
    return AuthSettings.model_validate(
        {"issuer_url": "https://issuer.example", "resource_server_url": url, "validate_token_resource": True}
    )


def access_to(address: ListenAddress, path: str) -> tuple[Tokens, Access]:
    """Return tokens for a server, and who checks them."""
    tokens = Tokens(address.url)
    challenges = Challenges(f"{address.base_url}/.well-known/oauth-protected-resource{path}")
    return tokens, Access(tokens, shown(address.url), [], challenges, lambda: None)


@asynccontextmanager
async def started(
    front: HttpServer, address: ListenAddress, gate: RemoteGate, bound_seconds: float
) -> AsyncGenerator[httpx2.AsyncClient]:
    """Yield a client of a server, which ends afterwards."""
    serving = asyncio.create_task(front.serve())
    try:
        async with asyncio.timeout(bound_seconds), httpx2.AsyncClient(timeout=BOUND_SECONDS, verify=False) as http:
            await front.listening.wait()
            yield http
    finally:
        front.stop()
        front.stop()
        await serving
        await gate.close()
        address.listener.close()


@asynccontextmanager
async def running(
    home: Path,
    *,
    signed: bool = True,
    heartbeat_seconds: float = 10.0,
    seconds: Mapping[Expected, float] = ALLOWED_SECONDS,
    bound_seconds: float = BOUND_SECONDS,
    **settings: Any,
) -> AsyncGenerator[Here]:
    """Yield a front for the daemon of a home, which is started before it and keeps running."""
    chosen = HttpSettings(port=0, **settings)
    forked.daemon(living_in(home))
    with environment(living_in(home)):
        address = bind(chosen, authenticated=signed)
        tokens, access = access_to(address, "/mcp") if signed else (None, None)
        gate = RemoteGate(authenticated=signed)
        front = Front(chosen, address.host, address.base_url, gate, access)
        app = application(front, McpEndpoint(front, heartbeat_seconds=heartbeat_seconds))
        server = HttpServer(app, address, ConnectionLimiter(chosen.max_connections, seconds))
        async with started(server, address, gate, bound_seconds) as http:
            yield Here(address, server, tokens, http)
