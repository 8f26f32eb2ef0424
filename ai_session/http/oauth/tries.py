"""How often a client may try to sign in, so that guessing is slow and no person is locked out by others' guesses.

Only failed tries count: against their source, a user of this machine if the kernel names one, else an address; and for
strangers, also against the name they tried and all strangers together. Two sources are not strangers and count alone:
the user of this front, and a browser in which that person has signed in before. The browser proves it with a cookie,
signed with what only the front knows about the person (OWASP, device cookies); a new password invalidates it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from starlette.requests import Request

from agentwire.http.connections import peer_of
from ai_session.errors import RateLimited
from ai_session.gate.rate_limits import RateLimiter

EVERYBODY = "all"
COOKIE_DAYS = 180
COOKIE_CHARS = 400
DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class Attempter:
    """The source of a try. ``key`` counts its own tries; a stranger's also count against others."""

    key: str
    is_stranger: bool


@dataclass(slots=True)
class Try:
    """A try in progress. It counts unless it is ``right``."""

    right: bool = False


@contextmanager
def trying(limits: RateLimiter, attempter: Attempter, name: str) -> Generator[Try]:
    """Count one try to sign in as ``name``. Raises RateLimited, and then counts nothing."""
    kinds = [(attempter.key, "sign_ins")]
    if attempter.is_stranger:
        kinds += [(name, "sign_ins_of_name"), (EVERYBODY, "sign_ins_of_all")]
    counted: list[tuple[str, str]] = []
    try:
        for key, kind in kinds:
            limits.acquire(key, kind)
            counted.append((key, kind))
    except RateLimited:
        _give_back(limits, counted)
        raise
    made = Try()
    yield made
    if made.right:
        _give_back(limits, counted)


def _give_back(limits: RateLimiter, counted: list[tuple[str, str]]) -> None:
    for key, kind in counted:
        limits.give_back(key, kind)


def source_of(request: Request) -> Attempter:
    """Return the source of a request: a user of this machine, or an address or network."""
    user = peer_of(request.scope)
    if user is not None:
        return Attempter(f"user {user}", is_stranger=user != os.getuid())
    host = request.client.host if request.client else "unknown"
    try:
        address = ip_address(host)
    except ValueError:
        return Attempter(host, is_stranger=True)
    if address.is_loopback:
        return Attempter("loopback", is_stranger=True)
    network = ip_network((address, 64), strict=False) if address.version == 6 else address
    return Attempter(str(network), is_stranger=True)


def cookie_for(name: str, stored: str, now: float) -> str:
    """Return the cookie for a browser in which ``name`` has signed in; ``stored`` is the password hash."""
    begin = f"{base64.urlsafe_b64encode(name.encode()).decode()}.{secrets.token_urlsafe(16)}.{int(now)}"
    return f"{begin}.{_signature(begin, stored)}"


def name_in(cookie: str) -> str:
    """Return whose browser the cookie claims to be, unverified."""
    try:
        return base64.urlsafe_b64decode(cookie.partition(".")[0]).decode() if len(cookie) <= COOKIE_CHARS else ""
    except ValueError:
        return ""


def attempter_of_cookie(cookie: str, stored: str, now: float) -> Attempter | None:
    """Return the browser with a valid cookie of the person with the hash ``stored``, or None."""
    begin, _, signature = cookie.rpartition(".")
    if not hmac.compare_digest(signature.encode(), _signature(begin, stored).encode()):
        return None
    _, nonce, made = begin.split(".")
    return Attempter(f"browser {nonce}", is_stranger=False) if now - int(made) < COOKIE_DAYS * DAY_SECONDS else None


def _signature(begin: str, stored: str) -> str:
    signed = hmac.new(stored.encode(), f"ai-session browser\0{begin}".encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(signed).decode().rstrip("=")
