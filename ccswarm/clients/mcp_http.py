"""A server that runs already, over Streamable HTTP. One request that fails costs that request only."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from string import Template
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from ccswarm.clients.mcp_lines import MAX_MESSAGE_BYTES
from ccswarm.errors import ServerUnavailable
from ccswarm.settings import ServerSettings

NOT_SENT = 61001
"""JSON-RPC error code, outside the range the protocol keeps for itself: the request had no effect."""

NO_ANSWER = 61002
"""The same: whether it had one is not known."""

TOO_LARGE = 61003
"""The same: it was answered, with more than is taken."""


SESSION_GONE = 61004
"""The same: the server knows nothing of this session (any more), and did nothing."""


LEAVE_SECONDS = 2.0


class TooLarge(httpx2.ReadError):
    """A body over the bound."""


class BoundedBody(httpx2.AsyncByteStream):
    """A body that is read no further than the bound."""

    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        taken = 0
        async for chunk in self._body:
            taken += len(chunk)
            if taken > MAX_MESSAGE_BYTES:
                raise TooLarge(f"the answer has over {MAX_MESSAGE_BYTES} bytes, which are not taken")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


class GentleClient(httpx2.AsyncClient):
    """Turns what goes wrong on the way into answers: as an exception it would take down every other request."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        if request.method == "DELETE":  # the end of a session, which nobody needs to wait for
            request.extensions["timeout"] = httpx2.Timeout(LEAVE_SECONDS).as_dict()
        try:
            response = await super().send(request, **options)
            if _is_json(response):
                await _read(response)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol) as error:
            return failed(request, NOT_SENT, error)
        except TooLarge as error:
            return failed(request, TOO_LARGE, error)
        except httpx2.TransportError as error:
            return failed(request, NO_ANSWER, error)
        if response.status_code == 404 and "mcp-session-id" in request.headers:
            await response.aclose()
            return failed(request, SESSION_GONE, "the session is gone")
        if response.status_code < 400 or response.status_code == 404 or _is_rpc(response):
            return response
        await response.aclose()
        code = NOT_SENT if response.status_code < 500 else NO_ANSWER
        return failed(request, code, f"HTTP {response.status_code} {response.reason_phrase}")


def _is_json(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").lower().startswith("application/json")


def _is_rpc(response: httpx2.Response) -> bool:
    return _is_json(response) and b'"jsonrpc"' in response.content


async def _read(response: httpx2.Response) -> None:
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = BoundedBody(response.stream)
    try:
        await response.aread()
    finally:
        await response.aclose()


def failed(request: httpx2.Request, code: int, error: Exception | str) -> httpx2.Response:
    """What the SDK reads as the server's refusal of this request."""
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
    headers.setdefault("Accept-Encoding", "identity")  # what is unpacked has no bound
    timeout = httpx2.Timeout(settings.connect_seconds, read=None)
    async with (
        GentleClient(headers=headers, timeout=timeout) as client,
        streamable_http_client(settings.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES) as streams,
    ):
        yield streams
