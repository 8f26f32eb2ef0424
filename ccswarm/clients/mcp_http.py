"""A server that runs already, over Streamable HTTP. One request that fails costs that request only."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from string import Template
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from ccswarm.clients.mcp_pipes import MAX_MESSAGE_BYTES
from ccswarm.errors import ServerUnavailable
from ccswarm.settings import ServerSettings

NOT_SENT = 61001
"""JSON-RPC error code, outside the range the protocol keeps for itself: the request did not reach the server."""

NO_ANSWER = 61002
"""The same: the connection broke before the answer."""


class BoundedBody(httpx2.AsyncByteStream):
    """A body that ends where the connection breaks or the bound is reached: the SDK then refuses what is left, where
    an exception would take down every other request."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        taken = 0
        try:
            async for chunk in self._body:
                taken += len(chunk)
                if taken > MAX_MESSAGE_BYTES:
                    return
                yield chunk
        except httpx2.TransportError:
            return

    async def aclose(self) -> None:
        await self._body.aclose()


class GentleClient(httpx2.AsyncClient):
    """Turns what goes wrong on the way into answers."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol) as error:
            return failed(request, NOT_SENT, error)
        except httpx2.TransportError as error:
            return failed(request, NO_ANSWER, error)
        if response.status_code >= 400 and response.status_code != 404 and not _is_json(response):
            await response.aclose()
            return failed(request, NOT_SENT, f"HTTP {response.status_code} {response.reason_phrase}")
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = BoundedBody(response.stream)
        return response


def _is_json(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").lower().startswith("application/json")


def failed(request: httpx2.Request, code: int, error: Exception | str) -> httpx2.Response:
    message = str(error) or type(error).__name__
    body = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(
        502, headers={"content-type": "application/json"}, content=json.dumps(body).encode(), request=request
    )


@asynccontextmanager
async def reached(settings: ServerSettings, env: Mapping[str, str]) -> AsyncGenerator[tuple[Any, Any]]:
    """The two directions. Raises ServerUnavailable for a header whose variable is not set."""
    try:
        headers = {name: Template(value).substitute(env) for name, value in settings.headers.items()}
    except (KeyError, ValueError) as error:
        raise ServerUnavailable(
            f"server {settings.name} cannot be reached: its headers name a variable that is not set: {error}",
            suggestion="set it, or write $$ for a dollar sign",
        ) from error
    timeout = httpx2.Timeout(settings.connect_seconds, read=None)
    async with (
        GentleClient(headers=headers, timeout=timeout) as client,
        streamable_http_client(settings.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams
