"""An origin server, and a proxy before it that listens on this machine's loopback instead of a box's."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import socket
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ai_session.sandbox.network.proxy import SessionProxy
from ai_session.sandbox.network.rules import NetworkRules
from tests.support.bounds import BOUND_SECONDS

NAME = "origin.test"


def certificate(directory: Path) -> Path:
    """Write a key and a self-signed certificate for NAME and its sub-domains into one file, and return its path."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    today = dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName(
        [x509.DNSName(NAME), x509.DNSName(f"*.{NAME}"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    )
    signed = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - dt.timedelta(days=1))
        .not_valid_after(today + dt.timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    form, no_secret = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = directory / "origin.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, no_secret) + signed.public_bytes(serialization.Encoding.PEM)
    )
    return path


@dataclass
class Origin:
    """A server that responds with the first line of the request, and stores what it ``received``."""

    port: int = 0
    tls_port: int = 0
    certificate: Path = Path()
    received: list[bytes] = field(default_factory=list[bytes])

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.received.append(head)
            if b"chunked" in head.lower():
                body = await reader.readuntil(b"0\r\n\r\n")
            else:
                body = await reader.readexactly(_length(head))
            self.received[-1] += body
            line = head.partition(b"\r\n")[0]
            size = int(line.split(b"bytes=")[1].split()[0]) if b"bytes=" in line else 0
            text = line + b"x" * size
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(text), text))
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


def refusal(answer: bytes) -> tuple[bytes, str]:
    """Return status and reason of a refusal, which must be the same in status line, header and text."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status, _, reason = head.partition(b"\r\n")[0].removeprefix(b"HTTP/1.1 ").partition(b" ")
    assert b"\r\nX-Proxy-Error: " + reason + b"\r\n" in head
    assert body == reason + b"\n"
    return status, reason.decode()


def request(target: str, *headers: str, method: str = "GET", version: str = "1.1") -> bytes:
    return "\r\n".join([f"{method} {target} HTTP/{version}", "Host: x", *headers, "", ""]).encode("latin1")


@asynccontextmanager
async def origin(directory: Path) -> AsyncGenerator[Origin]:
    """Yield a server for HTTP and TLS on this machine."""
    running = Origin(certificate=certificate(directory))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(running.certificate)
    async with (
        await asyncio.start_server(running.answer, "127.0.0.1", 0, backlog=300) as plain,
        await asyncio.start_server(running.answer, "127.0.0.1", 0, ssl=context, backlog=300) as tls,
    ):
        running.port = int(plain.sockets[0].getsockname()[1])
        running.tls_port = int(tls.sockets[0].getsockname()[1])
        yield running


@dataclass
class Names:
    """A resolver, with the addresses it returns and the names that were ``asked``."""

    answers: list[Sequence[str]] = field(default_factory=lambda: [("127.0.0.1",)])
    asked: list[str] = field(default_factory=list[str])

    async def resolve(self, name: str, port: int) -> Sequence[str]:
        """Return the addresses in turn, the last one repeatedly."""
        self.asked.append(name)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@dataclass
class Way:
    """A proxy that listens at ``port`` of this machine."""

    proxy: SessionProxy
    port: int
    names: Names
    events: list[dict[str, Any]]

    async def send(self, *pieces: bytes) -> bytes:
        """Send pieces, each after the one before was accepted, and return the proxy's response until it closes."""
        async with asyncio.timeout(BOUND_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                for piece in pieces:
                    writer.write(piece)
                    await writer.drain()
                return await reader.read()
            finally:
                writer.close()

    async def connect(self, host: str, port: int) -> tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]:
        """Send a CONNECT; return the status line and the tunnel."""
        async with asyncio.timeout(BOUND_SECONDS):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            return head.partition(b"\r\n")[0], reader, writer

    async def get(self, host: str, server: Origin, path: str = "/", *, sni: str | None = None) -> bytes:
        """Send a request over TLS through a tunnel to ``host`` and return the body. Raises ssl.SSLError."""
        status, reader, writer = await self.connect(host, server.tls_port)
        try:
            assert status == b"HTTP/1.1 200 Connection established", status
            context = ssl.create_default_context(cafile=str(server.certificate))
            context.check_hostname = sni is None
            async with asyncio.timeout(BOUND_SECONDS):
                await writer.start_tls(context, server_hostname=host if sni is None else sni)
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                return (await reader.read()).partition(b"\r\n\r\n")[2]
        finally:
            writer.close()

    @property
    def reported(self) -> list[tuple[str, str]]:
        """The kind, and the reason or host, of each event."""
        return [(event["kind"], str(event.get("why") or event["host"])) for event in self.events]


def listener() -> socket.socket:
    made = socket.create_server(("127.0.0.1", 0), backlog=300)
    made.setblocking(False)
    return made


@asynccontextmanager
async def proxied(
    domains: Sequence[str], ports: Sequence[int], names: Names | None = None, **options: Any
) -> AsyncGenerator[Way]:
    """Yield a proxy to ``domains``, all at this machine's own address unless ``names`` resolves them otherwise."""
    events: list[dict[str, Any]] = []

    def tell(kind: str, **fields: Any) -> None:
        events.append({"kind": kind, **fields})

    names = names or Names()
    rules = NetworkRules(domains, ports, private=options.pop("private", ("127.0.0.1",)))
    proxy = SessionProxy(rules, event=tell, resolve=options.pop("resolve", names.resolve), **options)
    listening = listener()
    proxy.serve(listening)
    try:
        yield Way(proxy, int(listening.getsockname()[1]), names, events)
    finally:
        await proxy.aclose()
