"""What the console answers where.

GET  /            the page
GET  /vendor/…    and its other files
POST /login       a code                     → a token
GET  /tabs        who is signed in           with the token, as all that follows
POST /sign-out    {tab}: one of them is not any more
WS   /ws          ``who`` and a nonce, where the tab wants a proof first; then the token, and then see ``bridge``
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from agentwire.http.wire import tokens_in
from ai_session.console.assets import Assets, secured
from ai_session.console.audit_check import AuditCheck
from ai_session.console.bridge import NOT_SPOKEN, SIGNED_OUT, Bridge
from ai_session.console.guard import Asgi, Guard
from ai_session.console.logins import Logins, Tab
from ai_session.console.runs import Runs

ASKS_WHO = "who "
HELLO_SECONDS = BODY_SECONDS = 30.0
MAX_BODY_BYTES = 4096


class Console:
    """``signed_in`` is called for each tab that signs in; ``scopes`` are what tabs may do; ``runs`` answers requests
    about runs."""

    def __init__(self, logins: Logins, scopes: tuple[str, ...], signed_in: Callable[[Tab], None], runs: Runs) -> None:
        self._logins = logins
        self._scopes = scopes
        self._signed_in = signed_in
        self._runs = runs
        self._audit_check = AuditCheck()

    async def login(self, request: Request) -> Response:
        """A token for a code, once."""
        code = (await _body(request)).get("code")
        agent = request.headers.get("user-agent", "")
        token = self._logins.sign_in(code, agent) if isinstance(code, str) else ""
        tab = self._logins.tab(token)
        if tab is None:
            return _answer({"error": "this link has been used already, or has expired"}, 401)
        self._signed_in(tab)
        return _answer(
            {
                "token": token,
                "tab": tab.number,
                "proof_key": self._logins.key,
                "scopes": self._scopes,
                "home": str(Path.home()),
            }
        )

    async def tabs(self, request: Request) -> Response:
        """Those who are signed in."""
        own = self._own(request)
        if own is None:
            return _answer({"error": "signed out"}, 401)
        rows = [
            {"tab": one.number, "browser": one.browser, "since": one.since, "live": bool(one.ends), "own": one is own}
            for one in self._logins.tabs()
        ]
        return _answer({"tabs": rows})

    async def sign_out(self, request: Request) -> Response:
        """One of them is signed out, and its connection ends at once."""
        if self._own(request) is None:
            return _answer({"error": "signed out"}, 401)
        number = (await _body(request)).get("tab")
        found = isinstance(number, int) and self._logins.sign_out(number)
        return _answer({}) if found else _answer({"error": "this tab is not signed in"}, 404)

    async def socket(self, socket: WebSocket) -> None:
        """A tab that shows its token within seconds."""
        await socket.accept()
        status = NOT_SPOKEN
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, TimeoutError, ValueError, KeyError):
            async with asyncio.timeout(HELLO_SECONDS):
                token = await socket.receive_text()
                if token.startswith(ASKS_WHO):
                    await socket.send_text(self._logins.proof(token.removeprefix(ASKS_WHO)))
                    token = await socket.receive_text()
            status = SIGNED_OUT
            if tab := self._logins.tab(token):
                status = await Bridge(socket, tab, self._scopes, self._runs, self._audit_check).run()
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await socket.close(status)

    def _own(self, request: Request) -> Tab | None:
        shown = tokens_in(request.scope["headers"])
        return self._logins.tab(shown[0]) if len(shown) == 1 else None


def application(console: Console, host: str) -> Asgi:
    """The console behind its guard; ``host`` as a browser writes it."""
    assets = Assets()
    routes = [
        Route("/", assets.page),
        Route("/login", console.login, methods=["POST"]),
        Route("/tabs", console.tabs),
        Route("/sign-out", console.sign_out, methods=["POST"]),
        WebSocketRoute("/ws", console.socket),
        Route("/{path:path}", assets.file),
    ]
    return Guard(Starlette(routes=routes), host)


async def _body(request: Request) -> dict[str, Any]:
    """A small JSON object; empty for anything else."""
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    return {}
        found: Any = json.loads(body)
    except (ValueError, RecursionError, ClientDisconnect, TimeoutError):
        return {}
    return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _answer(facts: dict[str, Any], status: int = 200) -> Response:
    return secured(JSONResponse(facts, status))
