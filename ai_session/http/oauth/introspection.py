"""Opaque tokens: their issuer is asked about each (RFC 7662)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, cast

from mcp.server.auth.provider import AccessToken

from ai_session.http.oauth.claims import MAX_TOKEN_CHARS, Expected, Rejected, accepted
from ai_session.http.oauth.fetch import Fetcher
from ai_session.http.oauth.store import digest

CACHE_SECONDS = 30
"""How long an answer is cached; a token revoked elsewhere may be accepted for so much longer."""
MAX_CACHED = 4096
AT_ONCE = 16
"""The number of concurrent requests; invalid tokens must not become a flood at the issuer."""


class IntrospectionVerifier:
    """Introspects at ``url`` as ``client`` (id, secret). ``clock`` returns UTC seconds; ``refused`` gets reasons."""

    def __init__(
        self,
        fetcher: Fetcher,
        url: str,
        client: tuple[str, str],
        expected: Expected,
        clock: Callable[[], float],
        refused: Callable[[str], None],
    ) -> None:
        self._fetcher = fetcher
        self._url = url
        self._client = client
        self._expected = expected
        self._clock = clock
        self._refused = refused
        self._known: OrderedDict[str, tuple[float, AccessToken]] = OrderedDict()
        self._asking = asyncio.Semaphore(AT_ONCE)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the content of a valid token, or None. Raises Unreachable if the issuer does not answer."""
        if not 0 < len(token) <= MAX_TOKEN_CHARS:
            return None
        name = digest(token)
        remembered = self._known.get(name)
        if remembered is not None and self._clock() < remembered[0]:
            return remembered[1]
        self._known.pop(name, None)
        async with self._asking:
            facts: Any = await self._fetcher.configured(
                self._url, {"token": token, "token_type_hint": "access_token"}, auth=self._client
            )
        try:
            found = self._accepted(token, facts)
        except Rejected as reason:
            self._refused(str(reason))
            return None
        good_until = min(self._clock() + CACHE_SECONDS, float(found.expires_at or 0))
        self._known[name] = (good_until, found)
        while len(self._known) > MAX_CACHED:
            self._known.popitem(last=False)
        return found

    def _accepted(self, token: str, facts: Any) -> AccessToken:
        claims = cast("dict[str, Any]", facts) if isinstance(facts, dict) else {}
        if claims.get("active") is not True:
            raise Rejected("its issuer says it is not active")
        if str(claims.get("token_type") or "Bearer").lower() not in ("bearer", "access_token"):
            raise Rejected("it is not an access token")
        # The issuer is the one that answered: many omit ``iss``, some ``sub``. Another ``iss`` is rejected.
        claims = {"iss": self._expected.issuer, "sub": claims.get("username"), **claims}
        return accepted(token, claims, self._expected, self._clock())
