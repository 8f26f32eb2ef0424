"""A front with OAuth around the SDK's server, a browser without a screen, and a clock that a test sets."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import mcp.types as types
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.lowlevel import Server
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

from ai_session.config.settings import OauthSettings
from ai_session.http.oauth import access as oauth
from ai_session.http.oauth import users
from ai_session.http.oauth.fetch import Fetcher
from ai_session.http.oauth.scopes import SCOPES
from ai_session.http.oauth.store import FILE, Store

BASE = "http://127.0.0.1:8765"
CALLBACK = "http://127.0.0.1:33418/callback"
PASSWORD = "correct horse battery staple"
STORED = users.hashed(PASSWORD, (4, 8, 1))
"""A weaker hash than users have, which would take a quarter of a second at each sign-in."""


class Clock:
    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@dataclass
class Front:
    """A front. ``said`` are its messages on the terminal, ``events`` those for the audit log."""

    access: oauth.Access
    app: Any
    clock: Clock
    events: list[tuple[str, dict[str, Any]]]
    said: list[str]
    directory: Path
    inner: Any
    base: str = BASE

    def client(self, address: str = "127.0.0.1", **options: Any) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(self.app, client=(address, 5))
        return httpx2.AsyncClient(transport=transport, base_url=self.base, **options)

    def noted(self, name: str) -> list[dict[str, Any]]:
        return [facts for event, facts in self.events if event == name]

    async def whoami(self, token: str, **headers: str) -> httpx2.Response:
        async with self.client() as client:
            return await client.post(
                "/mcp", json=CALL, headers={**CALL_HEADERS, "Authorization": f"Bearer {token}", **headers}
            )

    async def holds(self, token: str) -> bool:
        return await self.access.verifier.verify_token(token) is not None

    async def token(self, form: Mapping[str, Any], **options: Any) -> httpx2.Response:
        async with self.client() as client:
            return await client.post("/token", data=dict(form), **options)

    async def register(self, **facts: Any) -> dict[str, Any]:
        async with self.client() as client:
            answer = await client.post("/register", json={"redirect_uris": [CALLBACK], "client_name": "Probe", **facts})
            assert answer.status_code == 201, answer.text
            return answer.json()


CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {
        "name": "whoami",
        "arguments": {},
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    },
}
CALL_HEADERS = {
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "whoami",
}


async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[types.Tool(name="whoami", description="Who.", input_schema={"type": "object"})])


async def call_tool(_: Any, __: Any) -> types.CallToolResult:
    token = get_access_token()
    assert token is not None
    return types.CallToolResult(content=[types.TextContent(text=f"{token.subject} {' '.join(token.scopes)}")])


@contextmanager
def made(
    directory: Path,
    settings: OauthSettings | None = None,
    *,
    fetcher: Fetcher | None = None,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    base: str = BASE,
) -> Iterator[Front]:
    """Yield a front without a running server of the SDK."""
    clock, events, said = clock or Clock(), [], []
    around = oauth.OAuthDependencies(
        directory,
        environ or {},
        lambda name, facts: events.append((name, dict(facts))),
        said.append,
        fetcher or Fetcher(),
        clock,
        clock,
    )
    access = oauth.access(settings or OauthSettings(), base, around)
    server = Server("probe", version="0", on_list_tools=list_tools, on_call_tool=call_tool)
    app = server.streamable_http_app(
        json_response=True, stateless_http=True, token_verifier=access.verifier, auth=access.auth
    )
    app.router.routes[:0] = access.routes
    front = Front(access, access.with_challenges(app), clock, events, said, directory, app, base)
    try:
        yield front
    finally:
        access.close()


@asynccontextmanager
async def opened(*args: Any, **options: Any) -> AsyncIterator[Front]:
    """Do as ``made`` without blocking the running loop."""
    context = made(*args, **options)
    front = await asyncio.to_thread(context.__enter__)
    try:
        yield front
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


async def stored(front: Front, work: Callable[[Connection], Any]) -> Any:
    """Work on the store through a connection of its own, as the command line does."""

    def done() -> Any:
        with Store(front.directory / FILE, front.clock) as store:
            return store.do(work)

    return await asyncio.to_thread(done)


async def add_person(front: Front, name: str = "alice", scopes: tuple[str, ...] = tuple(SCOPES)) -> None:
    await stored(front, lambda db: users.add(db, front.clock(), name, STORED, scopes))


@asynccontextmanager
async def running(front: Front) -> AsyncIterator[Front]:
    """Yield the front while the SDK's session manager runs."""
    async with front.inner.router.lifespan_context(front.inner):
        yield front


class Form(HTMLParser):
    """The hidden fields and the checkboxes of a page's only form."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.ticked: list[str] = []
        self.disabled: list[str] = []
        self.free: list[str] = []
        self.scripts = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = dict(attrs)
        self.scripts += tag == "script" or any(name.startswith("on") for name in facts)
        if tag == "input" and facts.get("type") == "hidden":
            self.fields[facts["name"] or ""] = facts["value"] or ""
        if tag == "input" and facts.get("type") == "checkbox":
            states = {"checked": self.ticked, "disabled": self.disabled}
            next((states[name] for name in states if name in facts), self.free).append(facts["value"] or "")


@dataclass
class Pkce:
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))

    @property
    def challenge(self) -> str:
        return base64.urlsafe_b64encode(hashlib.sha256(self.verifier.encode()).digest()).rstrip(b"=").decode()


def request_for(client_id: str, pkce: Pkce, **changes: str | None) -> str:
    """Return the URL that a client opens in a browser; a change to None omits a parameter."""
    values: dict[str, str | None] = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": CALLBACK,
        "state": "st&te",
        "scope": "sessions:read sessions:execute",
        "code_challenge": pkce.challenge,
        "code_challenge_method": "S256",
        "resource": f"{BASE}/mcp",
        **changes,
    }
    return "/authorize?" + urlencode({name: value for name, value in values.items() if value is not None})


class Browser:
    """A person at a browser, who opens a client's request, signs in and consents."""

    def __init__(self, front: Front, address: str = "127.0.0.1") -> None:
        self.front = front
        self.http = front.client(address, follow_redirects=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def send(self, page: httpx2.Response, action: str, **fields: Any) -> httpx2.Response:
        form = {**Form(page.text).fields, "action": action, **fields}
        return await self.http.post("/authorize", data=form, headers={"Origin": self.front.base})

    async def sign_in(self, url: str, name: str = "alice", password: str = PASSWORD) -> httpx2.Response:
        """Sign in and return the consent page."""
        page = await self.http.get(url)
        assert page.status_code == 200, page.text
        return await self.send(page, "sign-in", name=name, password=password)

    async def consent(self, url: str, scopes: list[str] | None = None) -> dict[str, str]:
        """Sign in, consent, and return the parameters for the client's redirect URI."""
        page = await self.sign_in(url)
        assert page.status_code == 200, page.text
        ticked = Form(page.text).ticked if scopes is None else scopes
        return redirected(await self.send(page, "allow", scope=ticked))


def redirected(answer: httpx2.Response) -> dict[str, str]:
    """Return the parameters of a redirect."""
    assert answer.status_code == 303, answer.text
    return {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}


def redeeming(client: Mapping[str, Any], code: str, pkce: Pkce, **changes: str) -> dict[str, str]:
    """Return the form that exchanges a code for tokens."""
    secret = {"client_secret": client["client_secret"]} if "client_secret" in client else {}
    return {
        "grant_type": "authorization_code",
        "code": code,
        "client_id": client["client_id"],
        "redirect_uri": CALLBACK,
        "code_verifier": pkce.verifier,
        "resource": f"{BASE}/mcp",
        **secret,
        **changes,
    }


class Memory:
    """The storage of a client of the SDK."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def granted(front: Front, **facts: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a registered client and its tokens, to which alice consented."""
    client, pkce = await front.register(**facts), Pkce()
    async with Browser(front) as browser:
        answer = await browser.consent(request_for(client["client_id"], pkce))
    tokens = await front.token(redeeming(client, answer["code"], pkce))
    assert tokens.status_code == 200, tokens.text
    return client, tokens.json()
