"""What the tokens of an external issuer say, judged the same whether they were read or asked about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from mcp.server.auth.provider import AccessToken

from ai_session.http.oauth.scopes import known

LEEWAY_SECONDS = 30
"""Between two machines' clocks."""

MAX_TOKEN_CHARS = 16_384


class Rejected(Exception):
    """A token that does not hold; the text is for the log, and has nothing of the token in it."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Who must have made a token, and for whom. ``resource`` is the front's URL, under which the token is used."""

    issuer: str
    audience: str
    resource: str

    def subject(self, name: str) -> str:
        """A name of that issuer, which no name of this machine's people can equal: theirs have no @."""
        return f"{name}@{self.issuer.partition('://')[2]}"


def accepted(token: str, claims: Mapping[str, Any], expected: Expected, now: float) -> AccessToken:
    """What a token stands for whose origin was proven. Raises Rejected: every claim is looked at whoever proved it."""
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
    """``scope`` is the word of the RFCs, ``scp`` that of some large providers."""
    value = claims.get("scope", claims.get("scp"))
    if isinstance(value, str):
        return value.split()
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, str)]
