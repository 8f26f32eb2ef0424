"""One connection from a box: a tunnel for TLS, or one plain HTTP request."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Awaitable, Callable

import h11

from agentwire.http.wire import StrictConnection
from ai_session.sandbox.network import tls_hello
from ai_session.sandbox.network.rules import SSH_PORT, Refused, is_address

HEAD_BYTES = 16384
HEAD_SECONDS = 10.0
"""The time limit for the request's head, and again for the TLS hello."""

RECEIVE_BYTES = 65536
CHUNK_BYTES = 1 << 19
"""100 MB cost 32 ms of processor time, 38 ms with half the size. Pages that are never written to cost nothing."""

TURNS = 4
"""The number of chunks of one connection that are copied before the loop serves others: about 0.6 ms."""

Connect = Callable[[str, int], Awaitable[tuple[str, socket.socket]]]
Emit = Callable[..., None]

_AUTHORITY = re.compile(r"(.*):([0-9]{1,5})\Z")
_ABSOLUTE = re.compile(r"http://([^/?#@:]*)(?::([0-9]{1,5}))?(/[^#]*|\?[^#]*)?\Z", re.IGNORECASE)
_UNPRINTABLE = re.compile(r"[^ -~]")
_HOP_BY_HOP = frozenset(
    b"connection proxy-connection keep-alive proxy-authorization proxy-authenticate te trailer upgrade host".split()
)


class Unreachable(Exception):
    """An allowed name that cannot be reached; the message says why."""


class _Client:
    """The client's end of a connection: what the box has sent so far and where it wants to connect."""

    def __init__(self, connection: socket.socket, head_seconds: float) -> None:
        self.socket = connection
        self.head_seconds = head_seconds
        self.loop = asyncio.get_running_loop()
        self.parser = StrictConnection(HEAD_BYTES, proxy=True)
        self.method = self.host = ""
        self.port = 0
        self.path = "/"
        self.accepted = False

    async def receive(self) -> bytes:
        """Return the next bytes from the box; empty at the end."""
        return await self.loop.sock_recv(self.socket, RECEIVE_BYTES)

    async def answer(self, status: int, why: str) -> None:
        """Send why nothing was forwarded, where each kind of program shows it: reason phrase, header and body."""
        if self.accepted:
            await self.loop.sock_sendall(self.socket, tls_hello.UNRECOGNIZED_NAME)
            return
        line = _UNPRINTABLE.sub("?", why)[:400]
        text = f"{line}\n"
        head = f"HTTP/1.1 {status} {line}\r\nX-Proxy-Error: {line}\r\nContent-Type: text/plain\r\n"
        head += f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        await self.loop.sock_sendall(self.socket, (head + text).encode("ascii"))
        self.socket.shutdown(socket.SHUT_WR)

    async def event(self) -> h11.Event | type[h11.PAUSED]:
        """Return the next part of the request. Raises h11.RemoteProtocolError."""
        while (event := self.parser.next_event()) is h11.NEED_DATA:
            self.parser.receive_data(await self.receive())
        return event  # type: ignore[return-value]

    async def request(self) -> h11.Request | None:
        """Return the request's head, or None if the box sent none. Raises Refused if it cannot be forwarded."""
        try:
            async with asyncio.timeout(self.head_seconds):
                request = await self.event()
        except TimeoutError:
            raise Refused("the request's head took too long") from None
        except h11.RemoteProtocolError as error:
            # The text after the colon quotes what was sent.
            raise Refused(f"not a request: {str(error).partition(':')[0]}") from None
        if not isinstance(request, h11.Request):
            return None
        if sum(len(name) + len(value) for name, value in request.headers) + len(request.target) > HEAD_BYTES:
            raise Refused("not a request: its head is too long")
        self.method = request.method.decode("latin1")
        target = request.target.decode("latin1")
        if self.method == "CONNECT":
            match = _AUTHORITY.match(target)
            if match is None:
                raise Refused("a tunnel needs a host name and a port")
            self.host = match[1]
            self.port = int(match[2])
        else:
            match = _ABSOLUTE.match(target)
            if match is None:
                raise Refused("only http:// URLs are proxied as plain HTTP, everything else through CONNECT")
            self.host = match[1]
            self.port = int(match[2] or 80)
            self.path = match[3] or "/"
        return request


async def serve(connection: socket.socket, connect: Connect, emit: Emit, head_seconds: float) -> None:
    """Forward what the rules allow and report it once, as ``net.allow`` or ``net.deny``. The caller closes it."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Pacing (bbr, if it is the system's default) costs 6 % of a long transfer over loopback.
    with contextlib.suppress(AttributeError, OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
    client = _Client(connection, head_seconds)

    def report(kind: str, **fields: str) -> None:
        emit(kind, host=client.host[:253], port=client.port, method=client.method[:20], **fields)

    async def refuse(status: int, why: str) -> None:
        report("net.deny", why=why)
        await client.answer(status, why)

    with contextlib.suppress(OSError):
        try:
            request = await client.request()
            if request is None:
                return
            name, outside = await connect(client.host, client.port)
            with outside:
                address = str(outside.getpeername()[0])
                first = await _opening(client, name) if client.method == "CONNECT" else b""
                report("net.allow", address=address)
                if client.method == "CONNECT":
                    await client.loop.sock_sendall(outside, first)
                    await _join(client.socket, outside)
                else:
                    await _exchange(client, outside, request, name)
        except Refused as refusal:
            await refuse(403, str(refusal))
        except Unreachable as failure:
            await refuse(502, str(failure))


async def _opening(client: _Client, name: str) -> bytes:
    """Accept a tunnel and return the client's first bytes, which must be a TLS hello for ``name`` except to port 22."""
    await client.loop.sock_sendall(client.socket, b"HTTP/1.1 200 Connection established\r\n\r\n")
    client.accepted = True
    first = client.parser.trailing_data[0]
    if client.port == SSH_PORT:
        return first
    try:
        async with asyncio.timeout(client.head_seconds):
            while True:
                with contextlib.suppress(tls_hello.Incomplete):
                    asked_for = tls_hello.server_name(first)
                    break
                if len(first) > tls_hello.MAX_BYTES or not (more := await client.receive()):
                    raise Refused("the tunnel ended or continued without a complete TLS ClientHello")
                first += more
    except TimeoutError:
        raise Refused("no TLS hello came through the tunnel in time") from None
    except tls_hello.NotHello as error:
        raise Refused(f"tunnels carry TLS only: {error}") from None
    # RFC 6066 does not allow an address as a server name.
    if asked_for != name and not (asked_for is None and is_address(name)):
        raise Refused(f"TLS asks for {asked_for or 'no name'}, the tunnel is for {name}")
    return first


async def _exchange(client: _Client, outside: socket.socket, request: h11.Request, name: str) -> None:
    """Send one request, serialized again, and copy back the response."""
    sender = h11.Connection(h11.CLIENT)
    hop_by_hop = {
        word.strip().lower()
        for header, value in request.headers
        if header == b"connection"
        for word in value.split(b",")
    }
    headers = [(b"Host", (name if client.port == 80 else f"{name}:{client.port}").encode())]
    headers += [(header, value) for header, value in request.headers if header not in _HOP_BY_HOP | hop_by_hop]
    headers.append((b"Connection", b"close"))
    head = h11.Request(method=request.method, target=client.path.encode("latin1"), headers=headers)

    async def body() -> None:
        await client.loop.sock_sendall(outside, sender.send(head) or b"")
        while not isinstance(event := await client.event(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                return
            await client.loop.sock_sendall(outside, sender.send(event) or b"")
        await client.loop.sock_sendall(outside, sender.send(event) or b"")
        # One request per connection: a second one could name another host.
        if client.parser.trailing_data[0] or await client.receive():
            raise ConnectionAbortedError

    sending = asyncio.create_task(body())
    answering = asyncio.create_task(_copy(outside, client.socket))
    try:
        await asyncio.wait([sending, answering], return_when=asyncio.FIRST_EXCEPTION)
    finally:
        sending.cancel()
        answering.cancel()
        await asyncio.gather(sending, answering, return_exceptions=True)


async def _join(one: socket.socket, other: socket.socket) -> None:
    """Copy in both directions until both have ended or one has failed."""
    ways = [asyncio.create_task(_copy(one, other)), asyncio.create_task(_copy(other, one))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _copy(source: socket.socket, sink: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    buffer, turns = memoryview(bytearray(CHUNK_BYTES)), 0
    while count := await loop.sock_recv_into(source, buffer):
        await loop.sock_sendall(sink, buffer[:count])
        # Both calls return at once while both sides are fast, and other tasks need the loop.
        if (turns := turns + 1) % TURNS == 0:
            await asyncio.sleep(0)
    sink.shutdown(socket.SHUT_WR)
