"""Tokens of another issuer: read with its keys, or asked about at it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from ai_session.config.settings import OauthSettings
from ai_session.errors import ConfigInvalid
from ai_session.http.oauth.claims import Expected
from ai_session.http.oauth.fetch import Fetcher, Unreachable
from ai_session.http.oauth.jwt import JwtVerifier, KeyCache
from tests.ai_session.support.oauth_issuer import (
    EC_KEY,
    ED_KEY,
    OTHER_KEY,
    RSA_KEY,
    WEAK_KEY,
    Issuer,
    by_hand,
    issuer,
    public_jwk,
    sign,
)
from tests.ai_session.support.oauth_servers import BASE, CALL, CALL_HEADERS, Clock, Front, opened, running

pytestmark = pytest.mark.anyio
AUDIENCE = f"{BASE}/mcp"
NOW = Clock().now


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[Issuer]:
    async with issuer() as made:
        yield made


@pytest.fixture
def source(server: Issuer) -> Issuer:
    server.reset()
    return server


@pytest.fixture
async def front(source: Issuer, tmp_path: Path) -> AsyncIterator[Front]:
    async with opened(tmp_path, OauthSettings(mode="external", issuer=source.url)) as made:
        yield made


async def refused(front: Front, token: str, reason: str) -> None:
    assert not await front.holds(token)
    assert reason in front.noted("token_refused")[-1]["reason"]


@pytest.mark.parametrize(
    ("key", "algorithm", "key_id"), [(RSA_KEY, "RS256", "rsa"), (EC_KEY, "ES256", "ec"), (ED_KEY, "EdDSA", "ed")]
)
async def test_a_token_that_holds(front: Front, source: Issuer, key: Any, algorithm: str, key_id: str) -> None:
    token = sign(source.claims(NOW, ["other", AUDIENCE]), key, algorithm, kid=key_id, typ="at+jwt")
    async with running(front):
        answer = await front.whoami(token)
    said = answer.json()["result"]["content"][0]["text"]
    assert said == f"carol@{source.url.removeprefix('http://')} sessions:read sessions:execute"
    assert source.asked == {"/.well-known/oauth-authorization-server": 1, "/jwks": 1}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"aud": "https://other.example/mcp"}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": [AUDIENCE + "/x", {"a": AUDIENCE}]}, "another audience"),
        ({"iss": "https://evil.example"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"exp": int(NOW) - 31}, "expired"),
        ({"exp": None}, "expired"),
        ({"exp": "soon"}, "not a timestamp"),
        ({"exp": 1e400}, "not a timestamp"),
        ({"nbf": int(NOW) + 31}, "not valid yet"),
        ({"iat": int(NOW) + 31}, "not valid yet"),
        ({"sub": None}, "no subject"),
        ({"sub": 7}, "no subject"),
        ({"sub": "a\nb"}, "no subject"),
    ],
)
async def test_claims_that_do_not_hold(front: Front, source: Issuer, changes: dict[str, Any], reason: str) -> None:
    await refused(front, sign(source.claims(NOW, AUDIENCE, **changes)), reason)


async def test_clocks_may_differ_a_little(front: Front, source: Issuer) -> None:
    assert await front.holds(sign(source.claims(NOW, AUDIENCE, exp=int(NOW) - 29, nbf=int(NOW) + 29)))


async def test_wrong_audience_is_401_with_the_challenge(front: Front, source: Issuer) -> None:
    async with running(front):
        answer = await front.whoami(sign(source.claims(NOW, "https://other.example/mcp")))
    assert answer.status_code == 401
    assert "resource_metadata=" in answer.headers["www-authenticate"]


def unsigned(source: Issuer, algorithm: str) -> str:
    parts = ({"alg": algorithm, "kid": "rsa"}, source.claims(NOW, AUDIENCE))
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts) + "."


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", "nOnE"])
async def test_no_signature(front: Front, source: Issuer, algorithm: str) -> None:
    await refused(front, unsigned(source, algorithm), "algorithm")


async def test_the_public_key_as_a_password(front: Front, source: Issuer) -> None:
    public = RSA_KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    header = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "rsa"}).encode()).rstrip(b"=")
    signed = header + b"." + base64.urlsafe_b64encode(json.dumps(source.claims(NOW, AUDIENCE)).encode()).rstrip(b"=")
    mark = base64.urlsafe_b64encode(hmac.digest(public, signed, hashlib.sha256)).rstrip(b"=")
    await refused(front, (signed + b"." + mark).decode(), "algorithm")


async def test_keys_serve_their_own_algorithm(front: Front, source: Issuer) -> None:
    claims = source.claims(NOW, AUDIENCE)
    await refused(front, sign(claims, EC_KEY, "ES256", kid="rsa"), "not for that algorithm")
    await refused(front, sign(claims, RSA_KEY, "RS256", kid="ec"), "not for that algorithm")
    await refused(front, sign(claims, RSA_KEY, "RS512"), "algorithm is not accepted")
    await refused(front, sign(claims, OTHER_KEY), "signature")
    token = sign(claims)
    await refused(front, token[:-8] + ("A" * 8 if not token.endswith("A" * 8) else "B" * 8), "signature")


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"typ": "logout+jwt"}, "type"),
        ({"crit": ["b64"], "b64": True}, "type"),
        ({"crit": []}, "not a JWT"),
        ({"kid": "another"}, "key"),
        ({"kid": "../../etc/passwd"}, "key"),
    ],
)
async def test_headers_that_do_not_hold(front: Front, source: Issuer, header: dict[str, Any], reason: str) -> None:
    await refused(
        front, by_hand({"alg": "RS256", "kid": "rsa", **header}, source.claims(NOW, AUDIENCE), RSA_KEY), reason
    )


async def test_addresses_in_a_header_are_not_followed(front: Front, source: Issuer) -> None:
    header = {"jku": f"{source.url}/evil", "x5u": f"{source.url}/evil", "jwk": public_jwk(OTHER_KEY, "rsa")}
    token = sign(source.claims(NOW, AUDIENCE), OTHER_KEY, **header)
    await refused(front, token, "signature")
    assert "/evil" not in source.asked


@pytest.mark.parametrize("token", ["", ".", "..", "a.b.c", "x" * 20_000, "é.é.é", "e30.e30.e30", "[]" * 999])
async def test_nonsense(front: Front, token: str) -> None:
    assert not await front.holds(token)


@pytest.mark.parametrize(
    "bad",
    [
        {"use": "enc"},
        {"key_ops": ["sign"]},
        {"kty": "oct", "k": "c2VjcmV0"},
        {"alg": "RS512"},
        public_jwk(WEAK_KEY, "rsa"),
        {"d": "AQAB"},
    ],
)
async def test_keys_that_are_not_used(front: Front, source: Issuer, bad: dict[str, Any]) -> None:
    source.keys = [{**public_jwk(RSA_KEY, "rsa"), **bad}]
    key = WEAK_KEY if bad.get("n") else RSA_KEY
    assert not await front.holds(by_hand({"alg": "RS256", "kid": "rsa"}, source.claims(NOW, AUDIENCE), key))


class Parts:
    """A verifier with both its clocks in the test's hands."""

    def __init__(self, source: Issuer, keys_url: str = "") -> None:
        self.seconds = Clock(0.0)
        self.reasons = list[str]()
        expected = Expected(source.url, AUDIENCE, AUDIENCE)
        keys = KeyCache(Fetcher(), source.url, keys_url, self.seconds)
        self.verifier = JwtVerifier(keys, expected, ["RS256"], Clock(), self.reasons.append)

    async def holds(self, token: str) -> bool:
        return await self.verifier.verify_token(token) is not None


async def test_new_keys_are_found_but_not_at_every_ask(source: Issuer) -> None:
    parts, claims = Parts(source), source.claims(NOW, AUDIENCE)
    assert await parts.holds(sign(claims))
    source.keys = [public_jwk(RSA_KEY, "new")]
    for number in range(5):
        assert not await parts.holds(sign(claims, kid=f"guess{number}"))
    assert source.asked["/jwks"] == 1, "less than 30 s after the last reading"
    parts.seconds.now = 31
    answers = await asyncio.gather(*(parts.holds(sign(claims, kid="new")) for _ in range(5)))
    assert (answers, source.asked["/jwks"]) == ([True] * 5, 2)
    assert not await parts.holds(sign(claims)), "the old key is gone"


async def test_while_the_issuer_is_away_its_keys_hold_for_a_day(source: Issuer) -> None:
    parts, token = Parts(source), sign(source.claims(NOW, AUDIENCE))
    assert await parts.holds(token)
    source.status = 503
    parts.seconds.now = 7200
    assert await parts.holds(token)
    parts.seconds.now = 90_000
    with pytest.raises(Unreachable):
        await parts.holds(token)


async def test_no_keys_is_503_and_not_the_clients_fault(front: Front, source: Issuer) -> None:
    source.status = 302
    async with running(front), front.client() as client:
        headers = {**CALL_HEADERS, "Authorization": f"Bearer {sign(source.claims(NOW, AUDIENCE))}"}
        answer = await client.post("/mcp", json=CALL, headers=headers)
    assert (answer.status_code, "www-authenticate" in answer.headers) == (503, False)
    assert answer.json()["error"] == "temporarily_unavailable"
    assert answer.headers["retry-after"]
    assert "/jwks" not in source.asked, "redirects are not followed"
    assert "answered 302" in front.noted("unreachable")[0]["reason"]


@pytest.mark.parametrize("metadata", [{"issuer": "https://evil.example"}, {"jwks_uri": "https://evil.example/jwks"}])
async def test_metadata_that_leads_astray(source: Issuer, metadata: dict[str, str]) -> None:
    source.metadata = metadata
    with pytest.raises(Unreachable, match="another"):
        await Parts(source).holds(sign(source.claims(NOW, AUDIENCE)))


async def test_keys_may_be_elsewhere_when_a_person_says_so(source: Issuer) -> None:
    assert await Parts(source, f"{source.url}/jwks").holds(sign(source.claims(NOW, AUDIENCE)))
    assert list(source.asked) == ["/jwks"]


@pytest.fixture
async def asking(source: Issuer, tmp_path: Path) -> AsyncIterator[Front]:
    settings = OauthSettings(
        mode="external",
        issuer=source.url,
        introspection_url=f"{source.url}/introspect",
        client_id="front",
        client_secret_variable="THE_SECRET",
    )
    async with opened(tmp_path, settings, environ={"THE_SECRET": "front's secret"}) as made:
        yield made


async def test_a_token_asked_about(asking: Front, source: Issuer) -> None:
    source.tokens["opaque"] = {"active": True, **source.claims(NOW, AUDIENCE, iss=None)}
    async with running(asking):
        said = (await asking.whoami("opaque")).json()["result"]["content"][0]["text"]
        assert said.startswith("carol@127.0.0.1:")
        del source.tokens["opaque"]
        assert await asking.holds("opaque"), "an answer is believed for half a minute"
        asking.clock.now += 31
        assert not await asking.holds("opaque")
    assert source.asked["/introspect"] == 2


@pytest.mark.parametrize(
    "facts",
    [
        {"active": False},
        {"active": "true"},
        {"active": True, "aud": "https://other.example"},
        {"active": True, "aud": None},
        {"active": True, "exp": int(NOW) - 40},
        {"active": True, "exp": None},
        {"active": True, "iss": "https://evil.example"},
        {"active": True, "sub": None},
        {"active": True, "token_type": "refresh_token"},
        {"active": True, "nbf": int(NOW) + 60},
    ],
)
async def test_answers_that_do_not_hold(asking: Front, source: Issuer, facts: dict[str, Any]) -> None:
    source.tokens["opaque"] = source.claims(NOW, AUDIENCE, **facts)
    assert not await asking.holds("opaque")
    assert asking.noted("token_refused")


async def test_an_answer_is_not_believed_longer_than_the_token_holds(asking: Front, source: Issuer) -> None:
    source.tokens["opaque"] = {"active": True, **source.claims(NOW, AUDIENCE, exp=int(NOW) - 25)}
    assert await asking.holds("opaque")
    asking.clock.now += 6
    source.tokens.clear()
    assert not await asking.holds("opaque")


async def test_an_issuer_that_does_not_know_us_is_503(asking: Front, source: Issuer) -> None:
    source.credentials = ("front", "another")
    async with running(asking):
        assert (await asking.whoami("opaque")).status_code == 503
    assert "answered 401" in asking.noted("unreachable")[0]["reason"]


@pytest.mark.parametrize(
    "facts",
    [
        {"issuer": ""},
        {"issuer": "http://idp.example"},
        {"issuer": "ftp://127.0.0.1"},
        {"issuer": "https://idp.example", "jwks_url": "http://idp.example/jwks"},
        {"issuer": "https://idp.example", "introspection_url": "https://idp.example/introspect"},
        {"issuer": "https://idp.example", "introspection_url": "https://u@idp.example/", "client_id": "a"},
    ],
)
async def test_settings_that_cannot_be(tmp_path: Path, facts: dict[str, Any]) -> None:
    with pytest.raises(ConfigInvalid):
        async with opened(tmp_path, OauthSettings(mode="external", **facts)):
            raise AssertionError("it was taken")


async def test_the_secret_may_be_in_a_file_of_its_owners_alone(source: Issuer, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("front's secret\n")
    settings = OauthSettings(
        mode="external",
        issuer=source.url,
        introspection_url=f"{source.url}/introspect",
        client_id="front",
        client_secret_file=str(file),
    )
    file.chmod(0o644)
    with pytest.raises(ConfigInvalid, match="open to others"):
        async with opened(tmp_path, settings):
            raise AssertionError("it was taken")
    file.chmod(0o600)
    source.tokens["opaque"] = {"active": True, **source.claims(NOW, AUDIENCE)}
    async with opened(tmp_path, settings) as front:
        assert await front.holds("opaque")


def test_names_of_other_issuers_are_nobodys_here() -> None:
    expected = Expected("https://idp.example/realm", "a", "b")
    assert expected.subject("alice") == "alice@idp.example/realm"
    assert expected.subject("client:ci") == "client:ci@idp.example/realm"
