"""The console's routes.

GET / the page GET /vendor/… and its other files POST /login a code → a token GET /tabs the signed-in tabs with the
token, like all that follows POST /sign-out {tab}: sign one of them out WS /ws ``who`` and a nonce if the tab requires a
proof first; then the token, and then see ``bridge``
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
from ai_session.http.console.assets import Assets, secured
from ai_session.http.console.audit_check import AuditCheck
from ai_session.http.console.bridge import PROTOCOL_VIOLATION, SIGNED_OUT, Bridge
from ai_session.http.console.guard import Asgi, Guard
from ai_session.http.console.logins import Logins, Tab
from ai_session.http.console.runs import Runs

ASKS_WHO = "who "
HELLO_SECONDS = BODY_SECONDS = 30.0
MAX_BODY_BYTES = 4096


class Console:
    """``signed_in`` is called for each tab that signs in; ``scopes`` are those of tabs; ``runs`` reports runs."""

    def __init__(self, logins: Logins, scopes: tuple[str, ...], signed_in: Callable[[Tab], None], runs: Runs) -> None:
        self._logins = logins
        self._scopes = scopes
        self._signed_in = signed_in
        self._runs = runs
        self._audit_check = AuditCheck()

    async def login(self, request: Request) -> Response:
        """Exchange a code for a token, once."""
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
        """List the signed-in tabs."""
        own = self._own_tab(request)
        if own is None:
            return _answer({"error": "signed out"}, 401)
        rows = [
            {"tab": one.number, "browser": one.browser, "since": one.since, "live": bool(one.ends), "own": one is own}
            for one in self._logins.tabs()
        ]
        return _answer({"tabs": rows})

    async def sign_out(self, request: Request) -> Response:
        """Sign a tab out, which closes its connection immediately."""
        if self._own_tab(request) is None:
            return _answer({"error": "signed out"}, 401)
        number = (await _body(request)).get("tab")
        found = isinstance(number, int) and self._logins.sign_out(number)
        return _answer({}) if found else _answer({"error": "this tab is not signed in"}, 404)

    async def socket(self, socket: WebSocket) -> None:
        """Serve a tab, which must send its token within HELLO_SECONDS."""
        await socket.accept()
        status = PROTOCOL_VIOLATION
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

    def _own_tab(self, request: Request) -> Tab | None:
        shown = tokens_in(request.scope["headers"])
        return self._logins.tab(shown[0]) if len(shown) == 1 else None


def application(console: Console, host: str) -> Asgi:
    """Return the console behind its guard; ``host`` is the address and port that the browser uses."""
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
    """Return the small JSON object in a request; empty for anything else."""
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
