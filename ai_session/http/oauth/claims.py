"""The claims in tokens of an external issuer, checked in the same way for JWTs and introspected tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from mcp.server.auth.provider import AccessToken

from ai_session.http.oauth.scopes import known

LEEWAY_SECONDS = 30
"""The tolerance between two machines' clocks."""

MAX_TOKEN_CHARS = 16_384


class Rejected(Exception):
    """A token is not valid. The message is for the log and contains nothing of the token."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The required issuer and audience. ``resource`` is the front's URL, under which the token is used."""

    issuer: str
    audience: str
    resource: str

    def subject(self, name: str) -> str:
        """Return a subject that differs from every person's name on this machine: those have no @."""
        return f"{name}@{self.issuer.partition('://')[2]}"


def accepted(token: str, claims: Mapping[str, Any], expected: Expected, now: float) -> AccessToken:
    """Return the content of a token whose origin was verified. Raises Rejected: all claims are checked here."""
    if claims.get("iss") != expected.issuer:
        raise Rejected("it is from another issuer")
    audience = claims.get("aud")
    made_for = cast("list[Any]", audience) if isinstance(audience, list) else [audience]
    if expected.audience not in made_for:
        raise Rejected("it is for another audience")
    expires_at = _seconds(claims, "exp")
    if expires_at is None or expires_at + LEEWAY_SECONDS <= now:
        raise Rejected("it has expired")
    for name in ("nbf", "iat"):
        since = _seconds(claims, name)
        if since is not None and since - LEEWAY_SECONDS > now:
            raise Rejected("it is not valid yet")
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject or len(subject) > 255 or not subject.isprintable():
        raise Rejected("it names no subject")
    client = claims.get("client_id") or claims.get("azp") or claims.get("cid") or ""
    return AccessToken(
        token=token,
        client_id=str(client),
        scopes=list(known(_scopes(claims))),
        resource=expected.resource,
        # The SDK compares without leeway.
        expires_at=int(expires_at) + LEEWAY_SECONDS,
        subject=expected.subject(subject),
        claims={"iss": expected.issuer},
    )


def _seconds(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise Rejected(f"its {name} is not a timestamp")
    return float(value)


def _scopes(claims: Mapping[str, Any]) -> list[str]:
    """Return the scopes: ``scope`` in the RFCs, ``scp`` with some large providers."""
    value = claims.get("scope", claims.get("scp"))
    if isinstance(value, str):
        return value.split()
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, str)]
