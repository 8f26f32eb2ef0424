"""The application of `ai-session serve --rpc`: tools as methods of JSON-RPC at /rpc, behind the checks of the front.

Besides signed-in clients, it accepts this user's own programs, and requests with the access token.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from starlette.middleware import Middleware
from starlette.routing import Route

from agentwire.http.connections import peer_of
from agentwire.http.wire import tokens_in, value_of
from ai_session.http.app import Application, protection, with_front
from ai_session.http.endpoints.rpc import ENDPOINT as RPC
from ai_session.http.gate_client import RemoteGate
from ai_session.http.guard import OWN, Asgi, Receive, Scope, Send

if TYPE_CHECKING:
    from agentwire.http.access_token import AccessToken
    from ai_session.config.settings import HttpSettings

RPC_PATH = "/rpc"
ADVICE = (
    "send a token as Authorization: Bearer; the user who started this server gets it with ai-session token, and"
    " others with ai-session http client add"
)


class OwnCalls:
    """Marks requests that are this user's own: all without a ``token``; else those that send it, and if connections are
    ``direct``, those of this user's programs that send none."""

    def __init__(self, app: Asgi, token: AccessToken | None, *, direct: bool) -> None:
        self._app = app
        self._token = token
        self._direct = direct

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._is_own(scope):
            # It must not be mistaken for the token of a signed-in client.
            headers = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
            scope = {**scope, OWN: True, "headers": headers}
        await self._app(scope, receive, send)

    def _is_own(self, scope: Scope) -> bool:
        headers = scope["headers"]
        if self._token is None or self._token.fits(tokens_in(headers)):
            return True
        signed = bool(value_of(headers, b"authorization"))
        return self._direct and not signed and peer_of(scope) == os.getuid()


def application(
    settings: HttpSettings,
    host: str,
    base_url: str,
    gate: RemoteGate,
    access: Any | None,
    token: AccessToken | None = None,
) -> Application:
    """Return the application that serves /rpc on ``host`` and is reached at ``base_url``.

    Without ``access``, every client acts as this user. With it, only requests with ``token`` do, and if connections are
    direct, those of this user's programs without one.
    """
    endpoint = RPC.endpoint(gate, max_body_bytes=settings.max_body_bytes)
    answered = protection(settings, access, ADVICE)(endpoint.answer)
    routes = [Route(RPC_PATH, answered, methods=["POST"])]
    direct = not settings.public_url and not settings.trusted_proxies
    own = [Middleware(OwnCalls, token=token, direct=direct)] if token or not access else []
    return Application(with_front(settings, host, base_url, gate, access, routes, first=own), (answered.leave,))
