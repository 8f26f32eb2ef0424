"""A tool server that requires a login, and its authorization server, both complete and in this process."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import jwt
import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ccswarm.clients.mcp.login_store import Login, Logins
from ccswarm.clients.mcp.plugin import McpClients, McpToolClient
from ccswarm.config.settings import ServerSettings
from tests.support.bounds import BOUND_SECONDS


@asynccontextmanager
async def serving(app: ASGIApp, listener: socket.socket) -> AsyncIterator[None]:
    config = uvicorn.Config(app, log_level="critical", interface="asgi3", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve([listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await task


class Authorities:
    """The authorization server, whose attributes a test may change. ``seen`` are the requests for tokens."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.metadata: dict[str, Any] = {
            "issuer": url,
            "authorization_endpoint": f"{url}/authorize",
            "token_endpoint": f"{url}/token",
            "registration_endpoint": f"{url}/register",
            "revocation_endpoint": f"{url}/revoke",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_post", "private_key_jwt"],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": False,
        }
        self.clients: dict[str, str] = {}
        self.public_key = ""
        self.registered: list[dict[str, Any]] = []
        self.asked: list[dict[str, str]] = []
        self.seen: list[dict[str, str]] = []
        self.tokens: dict[str, set[str]] = {}
        self.refreshing: dict[str, tuple[str, set[str]]] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.back: dict[str, str] = {}
        """Parameters that replace those of the redirect to the client."""
        self.lifetime: int | None = 3600
        self.down = False
        self.instead: bytes | None = None
        """The response instead of a token, if set."""

    def app(self) -> Starlette:
        routes = [
            Route("/.well-known/oauth-authorization-server", self._metadata),
            Route("/register", self._register, methods=["POST"]),
            Route("/authorize", self._authorize),
            Route("/token", self._token, methods=["POST"]),
            Route("/revoke", self._revoke, methods=["POST"]),
        ]
        return Starlette(routes=routes)

    async def _metadata(self, _: Request) -> Response:
        return JSONResponse(self.metadata)

    async def _register(self, request: Request) -> Response:
        reported = await request.json()
        self.registered.append(reported)
        client = f"client-{len(self.registered)}"
        self.clients[client] = ""
        return JSONResponse({**reported, "client_id": client, "token_endpoint_auth_method": "none"}, 201)

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        self.asked.append(asked)
        code = secrets.token_urlsafe(16)
        self.codes[code] = asked
        back = {"code": code, "state": asked["state"], "iss": self.url, **self.back}
        query = urlencode({name: value for name, value in back.items() if value})
        return RedirectResponse(f"{asked['redirect_uri']}?{query}", 302)

    async def _token(self, request: Request) -> Response:
        form = {name: str(value) for name, value in (await request.form()).items()}
        self.seen.append(form)
        if self.down:
            return Response("busy", 503)
        if self.instead is not None:
            return Response(self.instead, media_type="application/json")
        problem = self._client_problem(form)
        if problem:
            return JSONResponse({"error": problem}, 401)
        if form["grant_type"] == "client_credentials":
            return self._given(set(form.get("scope", "").split()), "")
        if form["grant_type"] == "refresh_token":
            client, scopes = self.refreshing.pop(form["refresh_token"], ("", set[str]()))
            return self._given(scopes, client) if client else JSONResponse({"error": "invalid_grant"}, 400)
        asked = self.codes.pop(form["code"], {})
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        fits = base64.urlsafe_b64encode(digest).decode().rstrip("=") == asked.get("code_challenge")
        if not fits or any(form[name] != asked[name] for name in ("client_id", "redirect_uri", "resource")):
            return JSONResponse({"error": "invalid_grant"}, 400)
        return self._given(set(asked.get("scope", "").split()), form["client_id"])

    def _client_problem(self, form: dict[str, str]) -> str:
        if "client_assertion" in form:
            claims = jwt.decode(form["client_assertion"], self.public_key, ["ES256"], audience=self.url)
            return "" if claims["sub"] in self.clients else "invalid_client"
        client = form.get("client_id", "")
        known = client in self.clients or client.startswith("https://")
        return "" if known and self.clients.get(client, "") == form.get("client_secret", "") else "invalid_client"

    def _given(self, scopes: set[str], client: str) -> Response:
        token, refresh = f"at-{secrets.token_urlsafe(16)}", f"rt-{secrets.token_urlsafe(16)}"
        self.tokens[token] = scopes
        reported: dict[str, Any] = {"access_token": token, "token_type": "Bearer", "scope": " ".join(sorted(scopes))}
        if self.lifetime is not None:
            reported["expires_in"] = self.lifetime
        if client:
            self.refreshing[refresh] = (client, scopes)
            reported["refresh_token"] = refresh
        return JSONResponse(reported)

    async def _revoke(self, request: Request) -> Response:
        form = {name: str(value) for name, value in (await request.form()).items()}
        self.refreshing.pop(form["token"], None)
        self.tokens.pop(form["token"], None)
        return Response(status_code=200)


class Guarded:
    """The tool server, which requires a token for each request and the scope ``tools:write`` for the tool ``write``."""

    def __init__(self, url: str, authorities: Authorities) -> None:
        self.url = f"{url}/mcp"
        self._authorities = authorities
        self.metadata: dict[str, Any] = {
            "resource": self.url,
            "authorization_servers": [authorities.url],
            "scopes_supported": ["tools:read"],
        }
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.held = asyncio.Event()
        self.released = asyncio.Event()
        self.last_token = ""
        self.where = f"{url}/.well-known/oauth-protected-resource/mcp"
        server: Server[Any] = Server("guarded", on_list_tools=self._tools, on_call_tool=self._call)
        self._app = server.streamable_http_app(json_response=True)

    def app(self) -> ASGIApp:
        return self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"].startswith("/.well-known/oauth-protected-resource"):
            await JSONResponse(self.metadata)(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        scopes = self._authorities.tokens.get(headers.get("authorization", "").removeprefix("Bearer "))
        self.last_token = headers.get("authorization", "")
        about = f'resource_metadata="{self.where}"'
        if scopes is None:
            refused = Response(status_code=401, headers={"www-authenticate": f"Bearer {about}"})
        elif headers.get("mcp-name") == "write" and "tools:write" not in scopes:
            challenge = f'Bearer error="insufficient_scope", scope="tools:write", {about}'
            refused = Response(status_code=403, headers={"www-authenticate": challenge})
        else:
            await self._app(scope, receive, send)
            return
        await refused(scope, receive, send)

    async def _tools(self, *_: Any) -> types.ListToolsResult:
        names = ("echo", "write", "hold", "tell")
        return types.ListToolsResult(tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in names])

    async def _call(self, _: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        self.calls.append((params.name, params.arguments or {}))
        text = self.last_token if params.name == "tell" else params.name
        if params.name == "hold":
            self.held.set()
            await self.released.wait()
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content={"said": text})


class Browser:
    """A person who agrees at once. With ``pastes``, the browser cannot reach the client, so they paste the address."""

    def __init__(self, *, pastes: bool = False) -> None:
        self._pastes = pastes
        self._addresses: asyncio.Queue[str] = asyncio.Queue()
        self._walks: set[asyncio.Task[None]] = set()
        self.urls: list[str] = []
        self.heard: list[str] = []
        self.pages: list[httpx2.Response] = []

    def go_to(self, url: str) -> None:
        self.urls.append(url)
        self._walks.add(asyncio.create_task(self._walk(url)))

    async def _walk(self, url: str) -> None:
        async with httpx2.AsyncClient(trust_env=False, timeout=BOUND_SECONDS) as http:
            back = (await http.get(url)).headers["location"]
            if self._pastes:
                self._addresses.put_nowait("not an address")
                self._addresses.put_nowait(back)
                return
            elsewhere = [f"{back.partition('?')[0]}?code=stolen&state=guessed", f"{back.partition('/callback')[0]}/"]
            self.pages += [await http.get(address) for address in [*elsewhere, back]]

    def show(self, message: str) -> None:
        self.heard.append(message)

    async def pasted(self) -> str:
        return await self._addresses.get()


class LoginServers:
    """Both servers, a person who uses them, and the directory of logins."""

    def __init__(self, state: Path, authorities: Authorities, guarded: Guarded) -> None:
        self.state = state
        self.authorities = authorities
        self.guarded = guarded
        self.env: dict[str, str] = {}
        self.auth: dict[str, Any] = {}
        self.person = Browser()
        self.clients: list[McpToolClient] = []

    @property
    def settings(self) -> ServerSettings:
        return ServerSettings.model_validate({"name": "web", "url": self.guarded.url, "auth": self.auth})

    def client(self) -> McpToolClient:
        client = McpToolClient(self.settings, env=self.env, era_cache={}, state_directory=self.state)
        self.clients.append(client)
        return client

    async def log_in(self, *scopes: str) -> Any:
        async with asyncio.timeout(BOUND_SECONDS):
            return await McpClients().log_in(self.settings, self.env, self.state, self.person, scopes=scopes)

    async def login(self) -> Login:
        found = await Logins(self.settings, self.state).read()
        assert found is not None
        return found

    async def keep(self, login: Login) -> None:
        await Logins(self.settings, self.state).write(login)


def query(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


@asynccontextmanager
async def login_servers(state: Path) -> AsyncIterator[LoginServers]:
    first, second = socket.create_server(("127.0.0.1", 0)), socket.create_server(("127.0.0.1", 0))
    urls = [f"http://127.0.0.1:{one.getsockname()[1]}" for one in (first, second)]
    authorities = Authorities(urls[0])
    guarded = Guarded(urls[1], authorities)
    made = LoginServers(state, authorities, guarded)
    async with serving(authorities.app(), first), serving(guarded.app(), second):
        try:
            yield made
        finally:
            guarded.released.set()
            for client in made.clients:
                await client.close()
