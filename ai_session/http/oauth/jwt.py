"""Signed tokens, verified here with the keys that their issuer publishes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import jwt
from mcp.server.auth.provider import AccessToken

from ai_session.http.oauth.claims import MAX_TOKEN_CHARS, Expected, Rejected, accepted
from ai_session.http.oauth.fetch import Fetcher, Unreachable

KEYS_SECONDS = 3600
"""How long keys are used before they are fetched again."""
STALE_SECONDS = 86_400
"""How long they are used while the issuer cannot be reached."""
REFETCH_SECONDS = 30
"""The least time between two fetches, whatever key ids tokens name."""
MAX_KEYS = 64
MIN_RSA_BITS = 2048
RSA_ALGORITHMS = frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"))
TYPES = (None, "jwt", "at+jwt", "application/at+jwt")


@dataclass(frozen=True, slots=True)
class Key:
    """A public key, and the algorithms for which it may be used."""

    public: Any
    algorithms: frozenset[str]


class KeyCache:
    """The issuer's keys by id. An empty ``keys_url`` is taken from its metadata, if it is at the issuer's own host."""

    def __init__(
        self, fetcher: Fetcher, issuer: str, keys_url: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fetcher = fetcher
        self._issuer = issuer
        self._keys_url = keys_url
        self._clock = clock
        self._keys: dict[str, Key] = {}
        self._read_at: float | None = None
        self._tried_at: float | None = None
        self._why = ""
        self._reading = asyncio.Lock()

    async def key(self, key_id: str | None) -> Key:
        """Return the key with that id, or the only one. Raises Rejected, or Unreachable if no keys can be fetched."""
        found = self._found(key_id)
        if found is None or self._age() > KEYS_SECONDS:
            async with self._reading:
                if (self._found(key_id) is None or self._age() > KEYS_SECONDS) and self._may_read():
                    await self._read()
            found = self._found(key_id)
        if self._age() > STALE_SECONDS:
            raise Unreachable(self._why or "the issuer's keys have not been fetched yet")
        if found is None:
            raise Rejected("it names a key its issuer does not publish")
        return found

    def _found(self, key_id: str | None) -> Key | None:
        if key_id is not None:
            return self._keys.get(key_id)
        return next(iter(self._keys.values())) if len(self._keys) == 1 else None

    def _age(self) -> float:
        return float("inf") if self._read_at is None else self._clock() - self._read_at

    def _may_read(self) -> bool:
        return self._tried_at is None or self._clock() - self._tried_at >= REFETCH_SECONDS

    async def _read(self) -> None:
        self._tried_at = self._clock()
        try:
            if not self._keys_url:
                self._keys_url = await self._discovered()
            self._keys = _usable(await self._fetcher.configured(self._keys_url))
        except Unreachable as error:
            self._why = str(error)
            return
        self._read_at = self._clock()

    async def _discovered(self) -> str:
        why = Unreachable("")
        for url in metadata_urls(self._issuer):
            try:
                found = await self._fetcher.configured(url)
            except Unreachable as error:
                why = error
                continue
            facts = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
            if facts.get("issuer") != self._issuer:
                raise Unreachable(f"{url} is the metadata of another issuer")
            keys_url = str(facts.get("jwks_uri", ""))
            if _origin(keys_url) != _origin(self._issuer):
                raise Unreachable(f"{url} names keys at another host; set oauth.jwks_url if that is intended")
            return keys_url
        raise why


class JwtVerifier:
    """Verifies JWTs of one issuer. ``clock`` returns UTC seconds; ``refused`` is called with why a token is invalid."""

    def __init__(
        self,
        keys: KeyCache,
        expected: Expected,
        algorithms: Sequence[str],
        clock: Callable[[], float],
        refused: Callable[[str], None],
    ) -> None:
        self._keys = keys
        self._expected = expected
        self._algorithms = list(algorithms)
        self._clock = clock
        self._refused = refused

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the content of a valid token, or None. Raises Unreachable while there are no keys."""
        try:
            return accepted(token, await self._claims(token), self._expected, self._clock())
        except Rejected as reason:
            self._refused(str(reason))
            return None

    async def _claims(self, token: str) -> Mapping[str, Any]:
        if len(token) > MAX_TOKEN_CHARS:
            raise Rejected("it is too long")
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise Rejected("it is not a JWT") from None
        if header.get("alg") not in self._algorithms:
            raise Rejected("its algorithm is not accepted")
        kind = header.get("typ")
        if (kind.lower() if isinstance(kind, str) else kind) not in TYPES or "crit" in header:
            raise Rejected("its type is not accepted")
        key_id = header.get("kid")
        key = await self._keys.key(None if key_id is None else str(key_id))
        if header["alg"] not in key.algorithms:
            raise Rejected("its key is not for that algorithm")
        try:
            # The library verifies only the signature; ``accepted`` checks the claims.
            payload = jwt.PyJWS().decode(token, key.public, algorithms=[header["alg"]])
            claims = json.loads(payload)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            raise Rejected("its signature is not valid") from None
        if not isinstance(claims, dict):
            raise Rejected("it is not a JWT")
        return cast("dict[str, Any]", claims)


def metadata_urls(issuer: str) -> list[str]:
    """Return where an issuer's metadata may be: RFC 8414 first, then OpenID Connect."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    base = f"{parts.scheme}://{parts.netloc}"
    return [f"{base}/.well-known/oauth-authorization-server{path}", f"{base}{path}/.well-known/openid-configuration"]


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()


def _usable(document: Any) -> dict[str, Key]:
    """Return the keys that may verify a signature: public, strong enough, not for encryption. Others are skipped."""
    facts = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    if not isinstance(facts.get("keys"), list):
        raise Unreachable("the issuer's keys are not a key set")
    keys: dict[str, Key] = {}
    for number, item in enumerate(cast("list[Any]", facts["keys"])[:MAX_KEYS]):
        item_facts = cast("dict[str, Any]", item) if isinstance(item, dict) else {}
        key = _key(item_facts)
        if key is not None:
            keys[str(item_facts.get("kid", f"#{number}"))] = key
    return keys


def _key(facts: dict[str, Any]) -> Key | None:
    """Return an RSA key for RS and PS, an EC key for its curve, or one that names its algorithm for only that."""
    if facts.get("kty") not in ("RSA", "EC", "OKP") or "d" in facts or facts.get("use", "sig") != "sig":
        return None
    if "verify" not in facts.get("key_ops", ("verify",)):
        return None
    try:
        read = jwt.PyJWK(facts)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    if facts["kty"] == "RSA" and read.key.key_size < MIN_RSA_BITS:
        return None
    free = facts["kty"] == "RSA" and facts.get("alg") is None
    return Key(read.key, RSA_ALGORITHMS if free else frozenset((read.algorithm_name,)))
