"""Bodies of HTTP answers that are read as far as a bound."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from ccswarm.clients.mcp.bodies import TooLarge, read_whole

pytestmark = pytest.mark.anyio


class Pieces(httpx2.AsyncByteStream):
    """Ten bytes in two pieces."""

    closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"first"
        yield b"other"

    async def aclose(self) -> None:
        self.closed = True


@pytest.mark.parametrize("bound", [9, 10])
async def test_a_body_is_read_as_far_as_its_bound_and_closed(bound: int) -> None:
    pieces = Pieces()
    response = httpx2.Response(200, stream=pieces)
    if bound < 10:
        with pytest.raises(TooLarge):
            await read_whole(response, bound)
    else:
        await read_whole(response, bound)
        assert response.content == b"firstother"
    assert pieces.closed
