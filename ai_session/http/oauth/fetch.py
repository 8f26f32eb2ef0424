"""Fetches a JSON document from another server, protected against being redirected to internal addresses.

There are two kinds of URLs: configured ones (https anywhere, http on this machine), and those from clients, which are
fetched only from public addresses. An address is checked and then dialled, so that a name cannot change its meaning in
between. No redirects, small documents, short timeouts.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpx2

TIMEOUT_SECONDS = 5.0
MAX_BYTES = 64 << 10
UNICAST = ipaddress.ip_network("2000::/3")
"""All IPv6 addresses that are assigned; ``is_global`` alone accepts ::127.0.0.1."""

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For http on this machine; it trusts no authority."""

Resolve = Callable[[str, int], Awaitable[list[str]]]


class Unreachable(Exception):
    """The document could not be fetched. The message says why, without the server's response."""


async def resolved(host: str, port: int) -> list[str]:
    """Return the addresses of a name, from this machine's resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class Fetcher:
    """Fetches documents. ``tls`` has trusted authorities, by default the system's; ``seconds`` limits each fetch."""

    def __init__(
        self, resolve: Resolve = resolved, tls: ssl.SSLContext | None = None, seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self._resolve = resolve
        self._tls = tls
        self._seconds = seconds

    async def configured(
        self, url: str, form: Mapping[str, str] | None = None, auth: tuple[str, str] | None = None
    ) -> Any:
        """Fetch the document at a configured URL, by POST if there is a form. Raises Unreachable."""
        if not acceptable(url):
            raise Unreachable(f"{url} is neither https nor on this machine")
        loopback = is_loopback(url)
        tls = NO_TLS if urlsplit(url).scheme == "http" else await self._trusted()
        async with self._client(tls, trust_env=not loopback) as client:
            request = client.build_request("POST" if form else "GET", url, data=dict(form) if form else None)
            return await self._read(client, request, auth=auth)

    async def stranger(self, url: str, *, loopback_too: bool = False) -> Any:
        """Fetch the document at a URL that a client sent. Raises Unreachable."""
        try:
            parts = urlsplit(url)
            port = parts.port or 443
        except ValueError:
            raise Unreachable("it is not a URL") from None
        if parts.scheme != "https" or not parts.hostname:
            raise Unreachable(f"{url} is not https")
        address = await self._address(parts, loopback_too)
        literal = f"[{address}]" if ":" in address else address
        pinned = parts._replace(netloc=f"{literal}:{port}", fragment="").geturl()
        host = parts.netloc.rpartition("@")[2]
        async with self._client(await self._trusted(), trust_env=False) as client:
            request = client.build_request(
                "GET", pinned, headers={"Host": host}, extensions={"sni_hostname": parts.hostname}
            )
            return await self._read(client, request)

    async def _trusted(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = await asyncio.to_thread(httpx2.create_ssl_context)  # 60 ms
        return self._tls

    def _client(self, tls: ssl.SSLContext, *, trust_env: bool) -> httpx2.AsyncClient:
        """Return a new client for each document, so that no connection to one host carries a request to another."""
        return httpx2.AsyncClient(
            verify=tls,
            trust_env=trust_env,
            follow_redirects=False,
            timeout=self._seconds,
            headers={"Accept": "application/json", "Accept-Encoding": "identity"},
        )

    async def _address(self, parts: SplitResult, loopback_too: bool) -> str:
        """Return one address of the host, all of whose addresses must be permitted. Raises Unreachable."""
        host = parts.hostname or ""
        try:
            async with asyncio.timeout(self._seconds):
                found = [host] if _is_literal(host) else await self._resolve(host, parts.port or 443)
        except (OSError, ValueError, TimeoutError):
            raise Unreachable(f"{host} has no address") from None
        forbidden = [each for each in found if not _reachable(each, loopback_too)]
        if forbidden or not found:
            raise Unreachable(f"{host} has an address that is not public")
        return found[0]

    async def _read(
        self, client: httpx2.AsyncClient, request: httpx2.Request, auth: tuple[str, str] | None = None
    ) -> Any:
        host = request.headers.get("Host", request.url.host)
        try:
            async with asyncio.timeout(self._seconds):
                answer = await client.send(request, stream=True, auth=auth)
                try:
                    body = await _body(answer, host)
                finally:
                    await answer.aclose()
        except TimeoutError:
            raise Unreachable(f"{host} took longer than {self._seconds:g} s") from None
        except httpx2.TimeoutException:
            raise Unreachable(f"{host} took longer than {self._seconds:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise Unreachable(f"{host} cannot be reached ({type(error).__name__})") from None
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise Unreachable(f"{host} did not answer with JSON") from None


async def _body(answer: httpx2.Response, host: str) -> bytes:
    if answer.status_code != 200:
        raise Unreachable(f"{host} answered {answer.status_code}")
    body = bytearray()
    async for chunk in answer.aiter_raw():
        body += chunk
        if len(body) > MAX_BYTES:
            raise Unreachable(f"{host} sent more than {MAX_BYTES >> 10} KiB")
    return bytes(body)


def acceptable(url: str) -> bool:
    """Report whether tokens and keys may be sent to a configured URL: https, or http on this machine."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and "@" not in parts.netloc and (parts.scheme == "https" or is_loopback(url))
    except ValueError:
        return False


def is_loopback(url: str) -> bool:
    """Report whether the URL is on this machine, by http or https."""
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and parts.hostname in LOOPBACK_NAMES


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _reachable(text: str, loopback_too: bool) -> bool:
    """Report whether an address is public in every notation: ::ffff:10.0.0.1, 6to4 and NAT64 contain others."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if loopback_too and address.is_loopback:
        return True
    inner = _embedded(address)
    if isinstance(address, ipaddress.IPv6Address) and address not in UNICAST and inner is None:
        return False
    return all(each.is_global and not each.is_multicast for each in (address, inner) if each is not None)


def _embedded(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in ipaddress.ip_network("64:ff9b::/96"):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
