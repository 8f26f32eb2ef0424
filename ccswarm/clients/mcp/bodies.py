"""Bodies of HTTP responses, read up to a limit."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2


class TooLarge(httpx2.ReadError):
    """A body exceeds the limit."""


class BoundedBody(httpx2.AsyncByteStream):
    """A body that raises TooLarge after ``bound`` bytes."""

    def __init__(self, body: httpx2.AsyncByteStream, bound: int) -> None:
        self._body = body
        self._bound = bound

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._body:
            size += len(chunk)
            if size > self._bound:
                raise TooLarge(f"the answer exceeds the limit of {self._bound} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


async def read_whole(response: httpx2.Response, bound: int) -> None:
    """Read the body and close the response. Raises TooLarge."""
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = BoundedBody(response.stream, bound)
    try:
        await response.aread()
    finally:
        await response.aclose()
