"""A server of AgentVault's tools on a real port before a real daemon, with a workspace, and JSON-RPC requests."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from ai_session.config.settings import HttpSettings
from ai_session.http.app import application
from ai_session.http.connections import ALLOWED_SECONDS, ConnectionLimiter, Expected
from ai_session.http.endpoints.base import Front
from ai_session.http.endpoints.rpc import RPC_PATH, RpcEndpoint
from ai_session.http.gate_client import RemoteGate
from ai_session.http.server import HttpServer, bind
from tests.ai_session.support.http_servers import Here, access_to, started
from tests.ai_session.support.mcp_client import BOUND_SECONDS, Message, living_in
from tests.conftest import environment, new_home
from tests.support import forked


@dataclass(frozen=True)
class RpcHome:
    """A home with a daemon of its own, and the workspace in which the server starts."""

    home: Path
    workspace: Path


def new_rpc_home(homes: Path, config: str = "") -> RpcHome:
    home = new_home(homes, config)
    workspace = home / "ws"
    workspace.mkdir()
    return RpcHome(home, workspace)


class Rpc(Here):
    """A running server."""

    async def ask(self, body: Any, token: str = "", **headers: str) -> httpx2.Response:
        """Post a JSON value, or bytes as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post(self.url, content=data, headers=self.headers(token, **headers))

    async def method(self, method: str, params: Message | None = None, token: str = "") -> Message:
        """Call a method and return its result."""
        answer = await self.ask({"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}, token)
        assert answer.status_code == 200, (answer.status_code, answer.text)
        return answer.json()["result"]

    async def text(self, method: str, /, token: str = "", **params: Any) -> str:
        """Call a method that must not fail and return its text."""
        result = await self.method(method, params, token)
        assert "isError" not in result, result
        return result["content"][0]["text"]

    async def failure(self, method: str, /, token: str = "", **params: Any) -> str:
        """Call a method that must fail and return its text."""
        result = await self.method(method, params, token)
        assert result["isError"] is True, result
        return result["content"][0]["text"]

    async def python(self, code: str, /, token: str = "", **params: Any) -> Message:
        """Run Python code, which must not fail, and return the result."""
        result = await self.method("code.runPython", {"code": code, **params}, token)
        assert "isError" not in result, result
        return result["content"][0]

    async def sessions(self) -> list[Message]:
        """Return the open sessions."""
        return (await self.method("session.list_sessions"))["structuredContent"]["sessions"]


@asynccontextmanager
async def serving(
    rpc_home: RpcHome,
    *,
    signed: bool = False,
    seconds: Mapping[Expected, float] = ALLOWED_SECONDS,
    bound_seconds: float = BOUND_SECONDS,
    **settings: Any,
) -> AsyncGenerator[Rpc]:
    """Yield a server started in the workspace. The daemon starts before it and keeps running."""
    chosen = HttpSettings(port=0, **settings)
    forked.daemon(living_in(rpc_home.home))
    with environment(living_in(rpc_home.home)), contextlib.chdir(rpc_home.workspace):
        address = bind(chosen, authenticated=signed, path=RPC_PATH)
        tokens, access = access_to(address, RPC_PATH) if signed else (None, None)
        gate = RemoteGate(authenticated=signed)
        front = Front(chosen, address.host, address.base_url, gate, access)
        app = application(front, RpcEndpoint(front))
        server = HttpServer(app, address, ConnectionLimiter(chosen.max_connections, seconds))
        async with started(server, address, gate, bound_seconds) as http:
            yield Rpc(address, server, tokens, http)
