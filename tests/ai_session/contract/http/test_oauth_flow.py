"""The whole way of a client: discovery, registration, sign-in, consent, tokens, refresh, revocation, restart."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from pydantic import AnyUrl

from ai_session.config.settings import OauthSettings
from ai_session.http.oauth import clients
from ai_session.http.oauth.challenges import Challenges
from ai_session.http.oauth.store import FILE
from tests.ai_session.support.oauth_servers import (
    BASE,
    CALL,
    CALL_HEADERS,
    CALLBACK,
    Browser,
    Form,
    Front,
    Memory,
    Pkce,
    add_person,
    granted,
    opened,
    redeeming,
    redirected,
    request_for,
    running,
    stored,
)

pytestmark = pytest.mark.anyio


def provider(front: Front, browser: Browser, memory: Memory, scopes: list[str] | None = None) -> OAuthClientProvider:
    """The SDK's client, whose person is ``browser``."""
    answers: list[dict[str, str]] = []

    async def redirect(url: str) -> None:
        answers.append(await browser.consent(url.removeprefix(front.base), scopes))

    async def callback() -> AuthorizationCodeResult:
        answer = answers.pop()
        return AuthorizationCodeResult(code=answer["code"], state=answer["state"], iss=answer["iss"])

    metadata = OAuthClientMetadata(redirect_uris=[AnyUrl(CALLBACK)], client_name="The SDK")
    return OAuthClientProvider(f"{front.base}/mcp", metadata, memory, redirect, callback)


async def call(front: Front, auth: OAuthClientProvider) -> str:
    async with front.client(auth=auth) as client:
        answer = await client.post("/mcp", json=CALL, headers=CALL_HEADERS)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]["content"][0]["text"]


async def test_the_sdks_client_finds_its_way_alone(front: Front) -> None:
    async with running(front), Browser(front) as browser:
        memory = Memory()
        auth = provider(front, browser, memory)
        assert await call(front, auth) == "alice sessions:read sessions:write sessions:execute"
        first = memory.tokens
        assert first is not None
        assert first.refresh_token is not None
        assert first.expires_in == 3600

        front.clock.now += 3601
        auth.context.token_expiry_time = 1  # as after an hour of its own clock
        assert await call(front, auth) == "alice sessions:read sessions:write sessions:execute"
        assert memory.tokens is not None
        assert memory.tokens.refresh_token != first.refresh_token
    assert [facts["grant_type"] for facts in front.noted("token")] == ["authorization_code", "refresh_token"]


async def test_the_person_takes_scopes_away(front: Front) -> None:
    async with running(front), Browser(front) as browser:
        memory = Memory()
        assert await call(front, provider(front, browser, memory, ["sessions:read"])) == "alice sessions:read"
        assert memory.tokens is not None
        assert memory.tokens.scope == "sessions:read"


async def test_everybodys_sessions_are_not_ticked_beforehand(front: Front) -> None:
    client = await front.register()
    async with Browser(front) as browser:
        page = await browser.sign_in(request_for(client["client_id"], Pkce(), scope="sessions:read admin"))
    assert (Form(page.text).ticked, Form(page.text).free) == (["sessions:read"], ["admin"])


async def test_a_person_grants_no_more_than_they_may(tmp_path: Path) -> None:
    async with opened(tmp_path) as front:
        await add_person(front, "bob", ("sessions:read",))
        client, pkce = await front.register(), Pkce()
        async with Browser(front) as browser:
            url = request_for(client["client_id"], pkce, scope="sessions:read sessions:execute admin")
            page = await browser.sign_in(url, "bob")
            assert (Form(page.text).ticked, Form(page.text).disabled) == (
                ["sessions:read"],
                ["sessions:execute", "admin"],
            )
            answer = redirected(await browser.send(page, "allow", scope=["sessions:read", "admin", "sessions:write"]))
        tokens = (await front.token(redeeming(client, answer["code"], pkce))).json()
        assert tokens["scope"] == "sessions:read"


async def test_without_people_the_terminal_shows_a_code(tmp_path: Path) -> None:
    async with opened(tmp_path) as front:
        client, pkce = await front.register(), Pkce()
        async with Browser(front) as browser:
            page = await browser.http.get(request_for(client["client_id"], pkce))
            code = front.said[0].split()[2]
            wrong = await browser.send(page, "sign-in", password="AAAAA-AAAAA")
            assert wrong.status_code == 403
            page = await browser.send(wrong, "sign-in", password=code.lower())
            assert "Signed in as" in page.text
            answer = redirected(await browser.send(page, "allow", scope=Form(page.text).ticked))
            assert (await front.token(redeeming(client, answer["code"], pkce))).status_code == 200

            page = await browser.http.get(request_for(client["client_id"], pkce))
            assert len(front.said) == 2, "a code is good for one sign-in"
            assert (await browser.send(page, "sign-in", password=code)).status_code == 403
    assert not [line for _, facts in front.events for line in facts.values() if code in str(line)]


async def test_declining_tells_the_client(front: Front) -> None:
    client, pkce = await front.register(), Pkce()
    async with Browser(front) as browser:
        page = await browser.sign_in(request_for(client["client_id"], pkce))
        answer = redirected(await browser.send(page, "deny"))
    assert answer == {
        "error": "access_denied",
        "error_description": "the person declined",
        "state": "st&te",
        "iss": BASE,
    }
    assert front.noted("denied")


async def test_a_machine_asks_with_its_secret(front: Front) -> None:
    machine, secret = await stored(
        front, lambda db: clients.add_machine(db, front.clock(), "ci", ("sessions:read", "sessions:execute"))
    )
    form = {"grant_type": "client_credentials", "resource": f"{BASE}/mcp", "scope": "sessions:read"}
    async with running(front):
        answer = await front.token(form, auth=(machine.client_id, secret))
        assert answer.status_code == 200
        assert "refresh_token" not in answer.json()
        said = (await front.whoami(answer.json()["access_token"])).json()
        assert said["result"]["content"][0]["text"] == "client:ci sessions:read"
    assert (await front.token({**form, "scope": "admin"}, auth=(machine.client_id, secret))).json()[
        "error"
    ] == "invalid_scope"
    assert (await front.token(form, auth=(machine.client_id, secret + "x"))).status_code == 401


async def test_discovery(front: Front) -> None:
    async with front.client() as client:
        resource = (await client.get("/.well-known/oauth-protected-resource/mcp")).json()
        assert resource["resource"] == f"{BASE}/mcp"
        assert resource["authorization_servers"] == [BASE], "an issuer is compared letter by letter"
        assert resource["scopes_supported"] == ["sessions:read", "sessions:write", "sessions:execute"]
        server = (await client.get("/.well-known/oauth-authorization-server")).json()
        assert server == (await client.get("/.well-known/openid-configuration")).json()
    assert server["issuer"] == BASE
    assert server["code_challenge_methods_supported"] == ["S256"]
    assert server["client_id_metadata_document_supported"] is True
    assert server["authorization_response_iss_parameter_supported"] is True
    assert {urlsplit(url).netloc for name, url in server.items() if name.endswith("_endpoint")} == {"127.0.0.1:8765"}


async def test_what_may_be_turned_off_is_off(tmp_path: Path) -> None:
    async with opened(tmp_path, OauthSettings(registration=False, cimd=False)) as front, front.client() as client:
        server = (await client.get("/.well-known/oauth-authorization-server")).json()
        assert "registration_endpoint" not in server
        assert server["client_id_metadata_document_supported"] is False
        assert (await client.post("/register", json={"redirect_uris": [CALLBACK]})).status_code == 404
        page = await client.get(request_for("https://client.example/client.json", Pkce()))
        assert page.status_code == 400
        assert "location" not in page.headers


async def test_tokens_outlive_the_front(tmp_path: Path) -> None:
    async with opened(tmp_path) as front:
        await add_person(front)
        client, tokens = await granted(front)
    async with opened(tmp_path) as front:
        async with running(front):
            assert (await front.whoami(tokens["access_token"])).status_code == 200
        renewal = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
        assert (await front.token({**renewal, "client_id": client["client_id"]})).status_code == 200


async def test_a_token_given_back_ends_all_of_its_grant(front: Front) -> None:
    client, tokens = await granted(front)
    async with front.client() as http, running(front):
        form = {"token": tokens["refresh_token"], "client_id": client["client_id"]}
        assert (await http.post("/revoke", data=form)).status_code == 200
        assert (await http.post("/revoke", data=form)).status_code == 200, "unknown tokens are no error"
        assert (await front.whoami(tokens["access_token"])).status_code == 401


async def test_nothing_secret_is_kept_or_noted(front: Front) -> None:
    client, tokens = await granted(front, token_endpoint_auth_method="client_secret_post")
    kept = (front.directory / FILE).read_bytes()
    noted = json.dumps(front.events).encode()
    for secret in (client["client_secret"], tokens["access_token"], tokens["refresh_token"], "correct horse"):
        assert secret.encode() not in kept
        assert secret.encode() not in noted
    assert (front.directory / FILE).stat().st_mode & 0o777 == 0o600
    assert {name for name, _ in front.events} == {"registered", "signed_in", "granted", "token"}


async def test_401_says_where_and_what_to_ask_for(front: Front) -> None:
    prm = f'resource_metadata="{BASE}/.well-known/oauth-protected-resource/mcp"'
    scope = 'scope="sessions:read sessions:write sessions:execute"'
    async with running(front), front.client() as client:
        bare = await client.post("/mcp", json=CALL, headers=CALL_HEADERS)
        assert (bare.status_code, bare.headers["www-authenticate"]) == (401, f"Bearer {prm}, {scope}")
        wrong = await front.whoami("ais_at_nonsense")
    assert wrong.status_code == 401
    assert wrong.headers["www-authenticate"].startswith('Bearer error="invalid_token", ')
    assert prm in wrong.headers["www-authenticate"]
    assert scope in wrong.headers["www-authenticate"]


def test_stepping_up_keeps_what_was_granted() -> None:
    challenges = Challenges(f"{BASE}/.well-known/oauth-protected-resource/mcp")
    reported = challenges.insufficient_scope("sessions:execute", ["sessions:read"])
    assert 'error="insufficient_scope"' in reported
    assert 'scope="sessions:read sessions:execute"' in reported


async def test_pages_have_no_scripts_and_cannot_be_framed(front: Front) -> None:
    client = await front.register(client_name='<script>alert(1)</script>"\u202eevil')
    async with Browser(front) as browser:
        first = await browser.http.get(request_for(client["client_id"], Pkce()))
        second = await browser.send(first, "sign-in", name="alice", password="wrong horse battery")
        third = await browser.sign_in(request_for(client["client_id"], Pkce()))
    for page in (first, second, third):
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["x-frame-options"] == "DENY"
        assert page.headers["cache-control"] == "no-store"
        assert Form(page.text).scripts == 0
        assert "\u202e" not in page.text
    assert "<code>127.0.0.1:33418</code>" in third.text
    assert "alice" in third.text
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
