"""Where codes may be sent to: https, programs on this machine by http, and programs with a scheme of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

from ai_session.errors import ConfigInvalid
from ai_session.http.oauth.store import Refused

MAX_URIS = 10
MAX_URI_CHARS = 2000
LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")

SCHEME = re.compile(r"[a-z][a-z0-9+.-]{1,63}\Z")
OWNED = re.compile(r"[a-z][a-z0-9-]*(?:\.[a-z0-9][a-z0-9-]*)+\Z")
"""A reversed domain name (RFC 8252, 7.1): com.example.app."""

RESERVED = frozenset(
    (
        *("about", "blob", "chrome", "data", "edge", "file", "filesystem", "ftp", "ftps", "http", "https", "intent"),
        *("jar", "javascript", "ldap", "mailto", "market", "opera", "res", "resource", "rtsp", "scp", "search"),
        *("search-ms", "sftp", "shell", "smb", "sms", "ssh", "steam", "tel", "telnet", "vbscript", "view-source"),
        *("vnc", "wait", "webcal", "ws", "wss", "x-apple.systempreferences"),
    )
)
"""Schemes that browsers and systems use themselves; a configuration cannot allow them either."""

RESERVED_PREFIXES = ("ms-", "chrome-", "moz-", "x-ms-", "web+")


@dataclass(frozen=True, slots=True)
class Redirects:
    """``schemes`` are those without a dot that programs may have registered with the system."""

    schemes: frozenset[str]

    @classmethod
    def of(cls, schemes: Iterable[str]) -> Redirects:
        """Check the schemes. Raises ConfigInvalid for one to which nothing may be sent."""
        wrong = [scheme for scheme in schemes if not SCHEME.match(scheme) or _is_reserved(scheme)]
        if wrong:
            raise ConfigInvalid(
                f"oauth.redirect_schemes: cannot contain {wrong[0]!r}",
                suggestion="use schemes of programs, in lower case and without the colon: cursor",
            )
        return cls(frozenset(schemes))

    def checked(self, value: Any) -> tuple[str, ...]:
        """Return a client's redirect URIs. Raises Refused if a code must not be sent to one."""
        uris = cast("list[Any]", value) if isinstance(value, list) else []
        if not 0 < len(uris) <= MAX_URIS:
            raise Refused("invalid_redirect_uri", f"redirect_uris must have 1 to {MAX_URIS} entries")
        for uri in uris:
            problem = self.problem(uri) if isinstance(uri, str) else "is not a string"
            if problem:
                raise Refused("invalid_redirect_uri", f"a redirect URI {problem}")
        return tuple(uris)

    def accepts(self, known: Iterable[str], uri: str) -> bool:
        """Report whether ``uri`` is one of those, or the same at another port of this machine (RFC 8252, 7.3)."""
        if self.problem(uri):
            return False
        return any(uri == one or same_but_for_port(uri, one) for one in known)

    def problem(self, uri: str) -> str:
        """Return why no code may be sent there; empty if it may."""
        strange = not uri.isascii() or not uri.isprintable() or any(char in uri for char in " \\\"'<>`;,")
        if len(uri) > MAX_URI_CHARS or strange:
            return "is too long, or contains characters not allowed in a URI"
        parts = split(uri)
        if parts is None or "#" in uri or "@" in parts.netloc:
            return "is not a valid redirect URI, or has a fragment or a user name"
        if parts.scheme == "https":
            return "" if parts.hostname else "has no host"
        if parts.scheme == "http":
            return "" if parts.hostname in LOOPBACK_HOSTS else "uses http, which is accepted for this machine only"
        if _is_reserved(parts.scheme):
            return "has a scheme that is not accepted"
        if parts.scheme in self.schemes or OWNED.match(parts.scheme):
            return ""
        return "has a scheme that is not accepted: use a reversed domain name, or oauth.redirect_schemes"


def is_on_this_machine(uri: str) -> bool:
    """Report whether the URI leads to a program on the person's computer, not to a page."""
    parts = split(uri)
    return (
        parts is not None and parts.scheme != "https" and (parts.scheme != "http" or parts.hostname in LOOPBACK_HOSTS)
    )


def same_but_for_port(uri: str, known: str) -> bool:
    """Report whether both are the same http URI of this machine, at any port."""
    one, other = split(uri), split(known)
    if one is None or other is None or one.scheme != "http" or "@" in one.netloc:
        return False
    path = (other.scheme, other.hostname, other.path, other.query)
    return one.hostname in LOOPBACK_HOSTS and (one.scheme, one.hostname, one.path, one.query) == path


def split(url: str) -> SplitResult | None:
    """Return the parts of a URL, or None if it is invalid."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises if it is not a number
    except ValueError:
        return None
    return parts


def _is_reserved(scheme: str) -> bool:
    return scheme in RESERVED or scheme.startswith(RESERVED_PREFIXES)
