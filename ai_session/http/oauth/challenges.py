"""The challenge for a request whose token is missing, invalid or insufficient."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass

from mcp.server.auth.provider import AccessToken, TokenVerifier
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ai_session.errors import AiSessionError
from ai_session.http.oauth.fetch import Unreachable
from ai_session.http.oauth.scopes import USUAL, known

RETRY_AFTER_SECONDS = 5
UNAVAILABLE = b'{"error":"temporarily_unavailable","error_description":"tokens cannot be checked now"}'

_undecided: ContextVar[list[bool] | None] = ContextVar("undecided", default=None)


@dataclass(frozen=True, slots=True)
class Challenges:
    """Values of ``WWW-Authenticate``. ``metadata_url`` is where the protected resource's metadata is (RFC 9728)."""

    metadata_url: str

    def unauthorized(self, *, token_shown: bool) -> str:
        """Return the challenge of a 401; without a token in the request, it reports no error."""
        error = 'error="invalid_token", error_description="the token is not valid", ' if token_shown else ""
        return f'Bearer {error}resource_metadata="{self.metadata_url}", scope="{" ".join(USUAL)}"'

    def insufficient_scope(self, required: str, granted: Iterable[str] = ()) -> str:
        """Return the challenge of a 403: ``required`` and the token's scopes, which a new one would otherwise lose."""
        scopes = " ".join(known({required, *granted}))
        return (
            f'Bearer error="insufficient_scope", error_description="this needs {required}",'
            f' resource_metadata="{self.metadata_url}", scope="{scopes}"'
        )


class FailClosedVerifier:
    """A verifier that never raises: a token that cannot be verified now gets no access, and ``Challenged`` a 503."""

    def __init__(self, verifier: TokenVerifier, on_unreachable: Callable[[str], None]) -> None:
        self._verifier = verifier
        self._on_unreachable = on_unreachable

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the content of a valid token; None for an invalid one or if its issuer cannot be reached."""
        try:
            return await self._verifier.verify_token(token)
        except (Unreachable, AiSessionError) as reason:
            self._on_unreachable(str(reason))
            undecided = _undecided.get()
            if undecided is not None:
                undecided.append(True)
            return None


class Challenged:
    """Wraps the application: a 401 gets the full challenge, or becomes a 503 if no token could be verified."""

    def __init__(self, app: ASGIApp, challenges: Challenges) -> None:
        self._app = app
        self._challenges = challenges

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        undecided: list[bool] = []
        replaced = False

        async def sending(message: Message) -> None:
            nonlocal replaced
            if message["type"] == "http.response.start" and message["status"] == 401 and _is_bearers(message):
                if undecided:
                    replaced = True
                    await _send_unavailable(send)
                    return
                message = {**message, "headers": self._with_challenge(scope, message)}
            if not replaced:
                await send(message)

        before = _undecided.set(undecided)
        try:
            await self._app(scope, receive, sending)
        finally:
            _undecided.reset(before)

    def _with_challenge(self, scope: Scope, message: Message) -> list[tuple[bytes, bytes]]:
        value = self._challenges.unauthorized(token_shown=any(name == b"authorization" for name, _ in scope["headers"]))
        others = [pair for pair in message["headers"] if pair[0].lower() != b"www-authenticate"]
        return [*others, (b"www-authenticate", value.encode())]


def _is_bearers(message: Message) -> bool:
    """Report whether it is the resource's own 401, not one of the token endpoint."""
    return any(
        name.lower() == b"www-authenticate" and value.startswith(b"Bearer") for name, value in message["headers"]
    )


async def _send_unavailable(send: Send) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(UNAVAILABLE)).encode()),
        (b"retry-after", str(RETRY_AFTER_SECONDS).encode()),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": UNAVAILABLE})
