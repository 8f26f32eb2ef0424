"""Bodies of answers over HTTP, read no further than a bound."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2


class TooLarge(httpx2.ReadError):
    """A body over the bound."""


class BoundedBody(httpx2.AsyncByteStream):
    """A body of which at most ``bound`` bytes are taken; raises TooLarge where there are more."""

    def __init__(self, body: httpx2.AsyncByteStream, bound: int) -> None:
        self._body = body
        self._bound = bound

    async def __aiter__(self) -> AsyncIterator[bytes]:
        taken = 0
        async for chunk in self._body:
            taken += len(chunk)
            if taken > self._bound:
                raise TooLarge(f"the answer exceeds the limit of {self._bound} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


async def read_whole(response: httpx2.Response, bound: int) -> None:
    """Reads the body, and closes. Raises TooLarge."""
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = BoundedBody(response.stream, bound)
    try:
        await response.aread()
    finally:
        await response.aclose()
