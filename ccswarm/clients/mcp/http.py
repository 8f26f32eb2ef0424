"""A server that runs already, over Streamable HTTP. One request that fails costs that request only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from ccswarm.clients._address import SecretScrubber, client_options, headers_of
from ccswarm.clients.mcp.bodies import TooLarge, read_whole
from ccswarm.clients.mcp.failures import LOGIN_NEEDED, NO_ANSWER, NOT_SENT, OWN, SESSION_GONE, TOO_LARGE
from ccswarm.clients.mcp.framing import MAX_MESSAGE_BYTES
from ccswarm.clients.mcp.login_store import Logins
from ccswarm.clients.mcp.oauth import Authority
from ccswarm.clients.mcp.tokens import TokenAuth
from ccswarm.config.settings import ServerSettings
from ccswarm.errors import LoginNeeded, ServerUnavailable

LEAVE_SECONDS = 2.0

MOST_TRIES = 6
"""Of one request, at a server that is busy."""


class GentleClient(httpx2.AsyncClient):
    """Turns what goes wrong on the way into answers: as an exception it would take down every other request. Comes
    again where a server says when, as long as ``patience`` in seconds lasts."""

    patience = 0.0

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method == "DELETE":  # the end of a session, which nobody needs to wait for
            request.extensions["timeout"] = httpx2.Timeout(LEAVE_SECONDS).as_dict()
        try:
            response = await self._patiently(request, options)
            if _is_json(response):
                await read_whole(response, MAX_MESSAGE_BYTES)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol) as error:
            return failed(request, NOT_SENT, error)
        except TooLarge as error:
            return failed(request, TOO_LARGE, error)
        except httpx2.TransportError as error:
            return failed(request, NO_ANSWER, error)
        except LoginNeeded as error:
            return failed(request, LOGIN_NEEDED, error.message, error.suggestion)
        except ServerUnavailable as error:
            return failed(request, NOT_SENT, error.message)
        if response.status_code == 404 and "mcp-session-id" in request.headers:
            await response.aclose()
            return failed(request, SESSION_GONE, "the session is gone")
        if response.status_code < 400 or response.status_code == 404 or _is_rpc(response):
            return response
        await response.aclose()
        code = NOT_SENT if response.status_code < 500 or pause_asked(response) is not None else NO_ANSWER
        return failed(request, code, f"HTTP {response.status_code} {response.reason_phrase}{_when(response)}")

    async def _patiently(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        left = self.patience
        for _ in range(MOST_TRIES - 1):
            response = await super().send(request, **options)
            pause = pause_asked(response)
            if pause is None or pause > left:
                return response
            left -= pause
            await response.aclose()
            over = asyncio.Event()
            asyncio.get_running_loop().call_later(pause, over.set)
            await over.wait()
        return await super().send(request, **options)


def pause_asked(response: httpx2.Response) -> float | None:
    """Seconds after which a server that did nothing wants to be asked again; None where it does not say so."""
    asked = response.headers.get("retry-after", "").strip()
    if response.status_code not in (429, 503) or not asked:
        return None
    if asked.isascii() and asked.isdigit():
        return float(asked[:9])
    try:
        when = parsedate_to_datetime(asked)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())


def _when(response: httpx2.Response) -> str:
    pause = pause_asked(response)
    return "" if pause is None else f", retry in {pause:.0f} s"


def _is_json(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").lower().startswith("application/json")


def _is_rpc(response: httpx2.Response) -> bool:
    return _is_json(response) and b'"jsonrpc"' in response.content


def failed(request: httpx2.Request, code: int, error: Exception | str, suggestion: str = "") -> httpx2.Response:
    """What the SDK reads as the server's refusal of this request."""
    message = str(error) or type(error).__name__
    problem: dict[str, Any] = {"code": code, "message": message, "data": {OWN: suggestion}}
    body = {"jsonrpc": "2.0", "id": None, "error": problem}
    return httpx2.Response(
        502, headers={"content-type": "application/json"}, content=json.dumps(body).encode(), request=request
    )


def plain_client(settings: ServerSettings) -> httpx2.AsyncClient:
    """Knows how a server is reached, and nothing that it may not know. Raises ServerUnavailable."""
    return httpx2.AsyncClient(**client_options(settings))


@asynccontextmanager
async def reached(
    settings: ServerSettings, env: Mapping[str, str], state_directory: Path | None, scrubber: SecretScrubber
) -> AsyncGenerator[tuple[Any, Any]]:
    """The two directions. Logins are those of ``state_directory``; ``scrubber`` learns which of it is secret. Raises
    ServerUnavailable for a header whose variable is not set."""
    headers = headers_of(settings, env, scrubber)
    headers.setdefault("Accept-Encoding", "identity")  # what is unpacked has no bound
    plain = plain_client(settings)
    auth: httpx2.Auth | None = None
    if state_directory is not None and "authorization" not in map(str.lower, headers):
        auth = TokenAuth(
            settings, Authority(settings, env, plain, scrubber), Logins(settings, state_directory), scrubber
        )
    client = GentleClient(headers=headers, auth=auth, **client_options(settings))
    client.patience = settings.retry_after_seconds
    async with (
        plain,
        client,
        streamable_http_client(settings.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams
