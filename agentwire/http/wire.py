"""Strict reading of HTTP/1.1 that no proxy can interpret differently, and the detection of requests from web pages."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, NamedTuple

import h11
from h11._receivebuffer import ReceiveBuffer  # pyright: ignore[reportPrivateUsage]

BARE_END = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)")
VERSIONS = (b"1.0", b"1.1")
ONCE = frozenset((b"host", b"origin", b"content-type", b"authorization", b"x-api-key", b"sec-fetch-site"))
"""Headers that decide who sends a request, and to what."""

HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?\Z")
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
JSON_TYPE = re.compile(r"application/(?:[a-z0-9!#$&^_.+-]+\+)?json\Z")
FORM_TYPE = "application/x-www-form-urlencoded"
WITH_BODIES = ("POST", "PUT", "PATCH")
OWN_SITE = ("same-origin", "none")
PASSED_ON = (
    *(b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip"),
    *(b"cf-connecting-ip", b"true-client-ip"),
)
"""Headers that proxies add."""

Headers = Sequence[tuple[bytes, bytes]]


class StrictBuffer(ReceiveBuffer):
    """A buffer whose lines end with CR LF, are not folded and give one length: programs disagree about all else."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        """Return the lines of a head, None until they are complete. Raises LocalProtocolError."""
        begin = self._multiple_lines_search  # the bytes before it have been checked
        end = self._data.find(b"\r\n\r\n", begin)
        if not self._data.startswith(b"\r\n") and BARE_END.search(
            self._data, begin, len(self._data) if end < 0 else end
        ):
            raise h11.LocalProtocolError("a line does not end with CR LF")
        lines = super().maybe_extract_lines()
        lengths = 0
        for line in lines or ():
            if line.startswith((b" ", b"\t")):
                raise h11.LocalProtocolError("a header is folded")
            name, _, value = bytes(line).partition(b":")
            lengths += (1 + value.count(b",")) if name.lower() == b"content-length" else 0
        if lengths > 1:
            raise h11.LocalProtocolError("Content-Length is given twice")
        return lines


class StrictConnection(h11.Connection):
    """The server's end of a connection. Raises RemoteProtocolError for a request whose length, host or version is
    ambiguous, and for a target that is not a path, except in a ``proxy``."""

    def __init__(self, max_incomplete_event_size: int, *, proxy: bool = False) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size)
        self._receive_buffer = StrictBuffer()
        self._proxy = proxy

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request) and (problem := _problem_of(event, proxy=self._proxy)):
            self._process_error(self.their_role)
            raise h11.RemoteProtocolError(problem)
        return event


def request_in(head: bytes) -> tuple[str, str, Headers]:
    """Return the method, the target and the headers of a complete head. Raises ValueError."""
    connection = StrictConnection(len(head))
    connection.receive_data(head)
    try:
        request = connection.next_event()
    except h11.RemoteProtocolError as error:
        raise ValueError(str(error)) from None
    if not isinstance(request, h11.Request):
        raise ValueError("the request head is incomplete")
    return request.method.decode("ascii"), request.target.decode("ascii"), list(request.headers)


def _problem_of(request: h11.Request, *, proxy: bool) -> str:
    names = [name for name, _ in request.headers]
    if request.http_version not in VERSIONS:
        return "the version is neither 1.0 nor 1.1"
    if b"transfer-encoding" in names and (b"content-length" in names or request.http_version == b"1.0"):
        return "Transfer-Encoding comes with Content-Length, or with HTTP/1.0"
    if twice := [name for name in ONCE if names.count(name) > 1]:
        return f"{twice[0].decode()} is given twice"
    if proxy:
        return ""
    if not dict(request.headers).get(b"host"):
        return "the Host header is empty"
    return "" if request.target.startswith(b"/") else "the target is not a path"


class Refusal(NamedTuple):
    """An HTTP status, and the reason."""

    status: int
    why: str


@dataclass(frozen=True, slots=True)
class Site:
    """The names of a server, and the pages that may use it.

    ``names`` are the host names that clients use, without ports; with ``any_address`` every IP address is accepted,
    too. ``origins`` are pages that may use the server in addition to its own, ``pages`` the paths to which any site may
    lead a person's browser, ``forms`` the paths that accept forms. All others accept JSON only, which no page can send
    to another site without a preflight request.
    """

    names: Collection[str]
    any_address: bool = False
    origins: Collection[str] = ()
    pages: Collection[str] = ()
    forms: Collection[str] = ()

    def refusal(self, scope: Mapping[str, Any]) -> Refusal | None:
        """Return why a request, given as an ASGI scope, must not be handled; None if it may be."""
        headers: Headers = scope["headers"]
        method = scope["method"]
        path = scope["path"]
        host = value_of(headers, b"host").lower()
        if not self._is_own(host):
            return Refusal(421, "the Host header is not a name of this server")
        if "websocket" in value_of(headers, b"upgrade").lower():
            return Refusal(400, "this server does not support WebSocket")
        origin = value_of(headers, b"origin").lower()
        listed = origin in self.origins and origin != "null"
        if any(name == b"origin" for name, _ in headers) and not listed and origin != f"{scope['scheme']}://{host}":
            return Refusal(403, "web pages of other origins may not use this server")
        if value_of(headers, b"sec-fetch-site") not in ("", *OWN_SITE) and not listed:
            visited = value_of(headers, b"sec-fetch-mode") == "navigate" and method == "GET"
            if not (visited and path in self.pages):
                return Refusal(403, "web pages of other sites may not use this server")
        return self._refusal_of_body(method, path, headers)

    def _is_own(self, host: str) -> bool:
        name = host_of(host)
        return bool(name) and (name in self.names or (self.any_address and _is_address(name)))

    def _refusal_of_body(self, method: str, path: str, headers: Headers) -> Refusal | None:
        kind = value_of(headers, b"content-type").partition(";")[0].strip().lower()
        empty = value_of(headers, b"content-length") in ("", "0") and not value_of(headers, b"transfer-encoding")
        if method not in WITH_BODIES or (empty and not kind):
            return None
        if path in self.forms:
            return None if kind == FORM_TYPE else Refusal(415, f"send Content-Type: {FORM_TYPE}")
        return None if JSON_TYPE.match(kind) else Refusal(415, "send Content-Type: application/json")


def value_of(headers: Headers, name: bytes) -> str:
    """Return the value of the first header with that name; empty if there is none."""
    return next((value.decode("latin-1") for one, value in headers if one == name), "")


def host_of(host: str) -> str:
    """Return the name or address in a Host header, without the port; empty if the header is invalid."""
    found = HOST.match(host.lower())
    if not found:
        return ""
    try:
        return str(ip_address(found[1])) if found[1] else found[2]
    except ValueError:
        return ""


def tokens_in(headers: Headers) -> list[str]:
    """Return the tokens of a request, from Authorization: Bearer and X-Api-Key."""
    kind, _, given = value_of(headers, b"authorization").partition(" ")
    shown = (given.strip() if kind.lower() == "bearer" else "", value_of(headers, b"x-api-key"))
    return [one for one in shown if one]


def is_passed_on(headers: Headers) -> bool:
    """Report whether a proxy forwarded the request, so that its connection does not identify the sender."""
    return any(name in PASSED_ON for name, _ in headers)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
