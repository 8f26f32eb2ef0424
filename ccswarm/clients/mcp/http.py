"""The connection to a running server over Streamable HTTP. A failing request fails alone."""

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

from ccswarm.clients._address import SecretScrubber, client_options, make_headers
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
"""The most tries of one request at a busy server."""


class ResilientClient(httpx2.AsyncClient):
    """An HTTP client that turns transport errors into responses, because an exception would end all other requests. It
    retries when the server says so, for ``patience`` seconds in total."""

    patience = 0.0

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method == "DELETE":  # ends a session, which is not worth a long wait
            request.extensions["timeout"] = httpx2.Timeout(LEAVE_SECONDS).as_dict()
        try:
            response = await self._send_with_retries(request, options)
            if _is_json(response):
                await read_whole(response, MAX_MESSAGE_BYTES)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol) as error:
            return failure(request, NOT_SENT, error)
        except TooLarge as error:
            return failure(request, TOO_LARGE, error)
        except httpx2.TransportError as error:
            return failure(request, NO_ANSWER, error)
        except LoginNeeded as error:
            return failure(request, LOGIN_NEEDED, error.message, error.suggestion)
        except ServerUnavailable as error:
            return failure(request, NOT_SENT, error.message)
        if response.status_code == 404 and "mcp-session-id" in request.headers:
            await response.aclose()
            return failure(request, SESSION_GONE, "the session is gone")
        if response.status_code < 400 or response.status_code == 404 or _is_rpc(response):
            return response
        await response.aclose()
        code = NOT_SENT if response.status_code < 500 or retry_pause(response) is not None else NO_ANSWER
        return failure(request, code, f"HTTP {response.status_code} {response.reason_phrase}{_pause_note(response)}")

    async def _send_with_retries(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        left = self.patience
        for _ in range(MOST_TRIES - 1):
            response = await super().send(request, **options)
            pause = retry_pause(response)
            if pause is None or pause > left:
                return response
            left -= pause
            await response.aclose()
            over = asyncio.Event()
            asyncio.get_running_loop().call_later(pause, over.set)
            await over.wait()
        return await super().send(request, **options)


def retry_pause(response: httpx2.Response) -> float | None:
    """Return the seconds after which a busy server wants a retry, or None if it does not say so."""
    header = response.headers.get("retry-after", "").strip()
    if response.status_code not in (429, 503) or not header:
        return None
    if header.isascii() and header.isdigit():
        return float(header[:9])
    try:
        when = parsedate_to_datetime(header)
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())


def _pause_note(response: httpx2.Response) -> str:
    pause = retry_pause(response)
    return "" if pause is None else f", retry in {pause:.0f} s"


def _is_json(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").lower().startswith("application/json")


def _is_rpc(response: httpx2.Response) -> bool:
    return _is_json(response) and b'"jsonrpc"' in response.content


def failure(request: httpx2.Request, code: int, error: Exception | str, suggestion: str = "") -> httpx2.Response:
    """Return a response that the SDK reads as the server's rejection of this request."""
    message = str(error) or type(error).__name__
    problem: dict[str, Any] = {"code": code, "message": message, "data": {OWN: suggestion}}
    body = {"jsonrpc": "2.0", "id": None, "error": problem}
    return httpx2.Response(
        502, headers={"content-type": "application/json"}, content=json.dumps(body).encode(), request=request
    )


def plain_client(settings: ServerSettings) -> httpx2.AsyncClient:
    """Return an HTTP client with the server's network settings and no credentials. Raises ServerUnavailable."""
    return httpx2.AsyncClient(**client_options(settings))


@asynccontextmanager
async def connect(
    settings: ServerSettings, env: Mapping[str, str], state_directory: Path | None, scrubber: SecretScrubber
) -> AsyncGenerator[tuple[Any, Any]]:
    """Yield the two streams of a connection. Raises ServerUnavailable for a header whose variable is not set. It uses
    the login in ``state_directory``; secrets are added to ``scrubber``."""
    headers = make_headers(settings, env, scrubber)
    headers.setdefault("Accept-Encoding", "identity")  # decompressed data would have no limit
    plain = plain_client(settings)
    auth: httpx2.Auth | None = None
    if state_directory is not None and "authorization" not in map(str.lower, headers):
        auth = TokenAuth(
            settings, Authority(settings, env, plain, scrubber), Logins(settings, state_directory), scrubber
        )
    client = ResilientClient(headers=headers, auth=auth, **client_options(settings))
    client.patience = settings.retry_after_seconds
    async with (
        plain,
        client,
        streamable_http_client(settings.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams
