"""Where a browser returns to after a login: a port of this machine, or an address that a person pastes."""

from __future__ import annotations

import asyncio
import hmac
import html
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth import OAuthFlowError
from mcp.shared.auth import AuthorizationCodeResult

from agentwire.http.wire import Site, request_in
from ccswarm.clients.base import Person

HOST = "127.0.0.1"
PATH = "/callback"
SITE = Site({HOST}, pages={PATH})
MAX_HEAD_BYTES = 1 << 15
HEAD_SECONDS = 10.0
DONE = "You are logged in. This page can be closed."


class Redirect:
    """Waits for one answer with the right ``state``, which only the browser knows that was sent away with it, and this
    process; whatever else comes, whoever sends it, is refused and changes nothing."""

    def __init__(self, person: Person, port: int) -> None:
        self._person = person
        self.uri = f"http://{HOST}:{port}{PATH}"
        self._state = ""
        self._answer: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    async def go(self, url: str) -> None:
        """Sends the person to ``url``."""
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        self._person.go_to(url)

    async def answer(self) -> AuthorizationCodeResult:
        """What came back first, by the browser or pasted. Raises OAuthFlowError where the person said no."""
        pasting = asyncio.create_task(self._paste())
        try:
            return await self._answer
        finally:
            pasting.cancel()

    async def _paste(self) -> None:
        while not self._answer.done():
            said = self._take((await self._person.pasted()).strip())
            if said != DONE:
                self._person.show(said)

    def _take(self, address: str) -> str:
        """The message for the browser, or the person, about a redirect address."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        if not self._state or not hmac.compare_digest(query.get("state", "").encode(), self._state.encode()):
            return "This is not the address of this login: paste the whole one the browser was sent to."
        if self._answer.done():
            return "This login has already ended."
        if "code" in query:
            result = AuthorizationCodeResult(code=query["code"], state=query["state"], iss=query.get("iss"))
            self._answer.set_result(result)
            return DONE
        why = query.get("error_description") or query.get("error") or "there is no code"
        self._answer.set_exception(OAuthFlowError(f"the authorization server says: {why[:300]}"))
        return f"Not logged in: {why[:300]}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of a browser."""
        with suppress(TimeoutError, OSError, ValueError, EOFError, asyncio.LimitOverrunError):
            async with asyncio.timeout(HEAD_SECONDS):
                writer.write(self._answered(await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
        writer.close()

    def _answered(self, head: bytes) -> bytes:
        try:
            method, target, headers = request_in(head)
        except ValueError:
            return _page("400 Bad Request", "This is not a valid request.")
        path = urlsplit(target).path
        if refusal := SITE.refusal({"method": method, "path": path, "scheme": "http", "headers": headers}):
            return _page(f"{refusal.status} Refused", refusal.why)
        if (method, path) != ("GET", PATH):
            return _page("404 Not Found", "There is nothing here.")
        said = self._take(target)
        return _page("200 OK" if said == DONE else "400 Bad Request", said)


def _page(status: str, said: str) -> bytes:
    body = f"<!doctype html><meta charset=utf-8><title>ccswarm</title><p>{html.escape(said)}</p>".encode()
    lines = [
        f"HTTP/1.1 {status}",
        "Content-Type: text/html; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Content-Security-Policy: default-src 'none'",
        "Referrer-Policy: no-referrer",
        "Connection: close",
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


@asynccontextmanager
async def listening(person: Person, ports: list[int]) -> AsyncGenerator[Redirect]:
    """On the first of ``ports`` that is free; 0 is any. Raises OSError where none is."""
    made: list[Redirect] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await made[0].serve(reader, writer)

    for count, port in enumerate(ports, 1):
        try:
            server = await asyncio.start_server(serve, HOST, port, limit=MAX_HEAD_BYTES)
            break
        except OSError:
            if count == len(ports):
                raise
    else:
        raise OSError("no port was named")
    made.append(Redirect(person, server.sockets[0].getsockname()[1]))
    try:
        yield made[0]
    finally:
        server.close()  # not waited for: a browser may keep a connection open
