"""The redirect target of a login: a port of this machine, or an address that a person pastes."""

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
    """The wait for one answer with the right ``state``. Only this process and the browser it sent away know that value.
    Any other request is rejected without effect."""

    def __init__(self, person: Person, port: int) -> None:
        self._person = person
        self.uri = f"http://{HOST}:{port}{PATH}"
        self._state = ""
        self._answer: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    async def go(self, url: str) -> None:
        """Send the person to ``url``."""
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        self._person.go_to(url)

    async def answer(self) -> AuthorizationCodeResult:
        """Return the first answer, redirected or pasted. Raises OAuthFlowError if the person refused."""
        pasting = asyncio.create_task(self._paste())
        try:
            return await self._answer
        finally:
            pasting.cancel()

    async def _paste(self) -> None:
        while not self._answer.done():
            message = self._handle_address((await self._person.pasted()).strip())
            if message != DONE:
                self._person.show(message)

    def _handle_address(self, address: str) -> str:
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
        """Handle one request of a browser."""
        with suppress(TimeoutError, OSError, ValueError, EOFError, asyncio.LimitOverrunError):
            async with asyncio.timeout(HEAD_SECONDS):
                writer.write(self._response(await reader.readuntil(b"\r\n\r\n")))
                await writer.drain()
        writer.close()

    def _response(self, head: bytes) -> bytes:
        try:
            method, target, headers = request_in(head)
        except ValueError:
            return _page("400 Bad Request", "This is not a valid request.")
        path = urlsplit(target).path
        if refusal := SITE.refusal({"method": method, "path": path, "scheme": "http", "headers": headers}):
            return _page(f"{refusal.status} Refused", refusal.why)
        if (method, path) != ("GET", PATH):
            return _page("404 Not Found", "There is nothing here.")
        message = self._handle_address(target)
        return _page("200 OK" if message == DONE else "400 Bad Request", message)


def _page(status: str, message: str) -> bytes:
    body = f"<!doctype html><meta charset=utf-8><title>ccswarm</title><p>{html.escape(message)}</p>".encode()
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
async def listen_for_redirect(person: Person, ports: list[int]) -> AsyncGenerator[Redirect]:
    """Listen on the first free one of ``ports``; 0 is any. Raises OSError if none is free."""
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
        server.close()  # not awaited: a browser may keep a connection open
