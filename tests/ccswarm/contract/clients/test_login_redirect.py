"""Where a browser returns to after a login: it hears nobody but the browser that was sent away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from ccswarm.clients.mcp.redirect import DONE, Redirect, listen_for_redirect
from tests.support.browser_bytes import Target, by_pages, by_smugglers
from tests.support.strangers import IS_ROOT, USERS, as_user, exchange

pytestmark = pytest.mark.anyio
STATE = "only-the-browser-knows-this"
ANSWER = f"/callback?code=stolen&state={STATE}"
NAMES = [*by_pages(Target(1, "/", b"")), *by_smugglers(Target(1, "/", b""))]


class Nobody:
    """A person who sits elsewhere."""

    def __init__(self) -> None:
        self.never: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def go_to(self, url: str) -> None:
        assert STATE in url

    def show(self, message: str) -> None:
        raise AssertionError(message)

    async def pasted(self) -> str:
        return await self.never


@asynccontextmanager
async def returning() -> AsyncGenerator[tuple[Redirect, int]]:
    async with listen_for_redirect(Nobody(), [0]) as redirect:
        await redirect.go(f"https://issuer.example/authorize?state={STATE}")
        yield redirect, int(redirect.uri.split(":")[2].partition("/")[0])


async def answered(port: int, data: bytes) -> bytes:
    return await asyncio.to_thread(partial(exchange, ("127.0.0.1", port), data, over=False))


def visit(port: int, path: str = ANSWER, **changes: str | None) -> bytes:
    """The browser's, sent on by the authorization server's page."""
    none = dict.fromkeys(("Origin", "Content_Length", "Content_Type"))
    modes = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document", "Sec_Fetch_Site": "cross-site"}
    return Target(port, path, b"").head("GET", **{**none, **modes, **changes})


@pytest.mark.parametrize("name", NAMES)
async def test_no_page_ends_a_login_even_if_it_knew_the_state(name: str) -> None:
    async with returning() as (redirect, port):
        target = Target(port, ANSWER, b"{}")
        found = await answered(port, (by_pages(target) | by_smugglers(target))[name] + b"\r\n\r\n")
        assert found.startswith(b"HTTP/1.1 4"), found
        waiting = asyncio.create_task(redirect.answer())
        assert (await answered(port, visit(port, ANSWER.replace("stolen", "right")))).endswith(DONE.encode() + b"</p>")
        assert (await waiting).code == "right"


@pytest.mark.parametrize("changes", [{}, dict.fromkeys(("Sec_Fetch_Site", "Sec_Fetch_Mode", "Sec_Fetch_Dest"))])
async def test_the_browser_is_heard(changes: dict[str, str | None]) -> None:
    async with returning() as (redirect, port):
        waiting = asyncio.create_task(redirect.answer())
        assert DONE.encode() in await answered(port, visit(port, **changes))
        assert (await waiting).code == "stolen"


@pytest.mark.parametrize(
    "path", ["/callback?code=x", "/callback?code=x&state=", "/callback?error=x&state=guess", "/", "/x"]
)
async def test_without_the_state_nobody_is(path: str) -> None:
    async with returning() as (redirect, port):
        found = await answered(port, visit(port, path))
        assert found.startswith(b"HTTP/1.1 4")
        assert STATE.encode() not in found
        waiting = asyncio.create_task(redirect.answer())
        await answered(port, visit(port))
        assert (await waiting).code == "stolen"


if IS_ROOT:  # nobody else can be somebody else

    @pytest.mark.parametrize("user", USERS)
    async def test_another_user_of_the_machine_is_refused(user: int) -> None:
        async with returning() as (redirect, port):
            ask = partial(exchange, ("127.0.0.1", port), visit(port, "/callback?code=x&state=guess"), over=False)
            found = await asyncio.to_thread(as_user, user, ask)
            assert found.startswith(b"HTTP/1.1 400 ")
            waiting = asyncio.create_task(redirect.answer())
            await answered(port, visit(port))
            assert (await waiting).code == "stolen"
