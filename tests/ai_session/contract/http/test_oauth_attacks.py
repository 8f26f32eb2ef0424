"""What an attacker tries at the built-in authorization server, and what each try comes to."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ai_session.config.settings import OauthSettings
from ai_session.http.oauth import clients, users
from ai_session.http.oauth.authority import PER_MINUTE
from ai_session.http.oauth.authorize import MAX_PENDING, WRONG_TRIES
from tests.ai_session.support.oauth_servers import (
    CALLBACK,
    PASSWORD,
    Browser,
    Form,
    Front,
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


async def code_for(front: Front, client: dict[str, Any], pkce: Pkce, **changes: str | None) -> str:
    async with Browser(front) as browser:
        return (await browser.consent(request_for(client["client_id"], pkce, **changes)))["code"]


async def refused(front: Front, form: dict[str, Any], error: str) -> None:
    answer = await front.token(form)
    assert (answer.status_code, answer.json()["error"]) == (400, error), answer.text


def renewal(client: dict[str, Any], token: str) -> dict[str, str]:
    return {"grant_type": "refresh_token", "refresh_token": token, "client_id": client["client_id"]}


async def test_a_code_shown_twice_ends_what_came_of_it(front: Front) -> None:
    client, pkce = await front.register(), Pkce()
    form = redeeming(client, await code_for(front, client, pkce), pkce)
    tokens = (await front.token(form)).json()
    await refused(front, form, "invalid_grant")
    assert not await front.holds(tokens["access_token"])
    refresh = {
        "grant_type": "refresh_token",
        "refresh_token": tokens["refresh_token"],
        "client_id": client["client_id"],
    }
    await refused(front, refresh, "invalid_grant")
    assert "used twice" in front.noted("refused")[0]["note"]


async def test_a_code_shown_twice_at_once_gives_tokens_once(front: Front) -> None:
    client, pkce = await front.register(), Pkce()
    form = redeeming(client, await code_for(front, client, pkce), pkce)
    answers = await asyncio.gather(*(front.token(form) for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] + [400] * 7


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_verifier": Pkce().verifier}, "invalid_grant"),
        ({"redirect_uri": CALLBACK + "/other"}, "invalid_grant"),
        ({"redirect_uri": "http://127.0.0.1:33419/callback"}, "invalid_grant"),
        ({"redirect_uri": ""}, "invalid_grant"),
        ({"code_verifier": ""}, "invalid_request"),
        ({"code_verifier": "short"}, "invalid_request"),
        ({"resource": "https://elsewhere.example/mcp"}, "invalid_target"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
        ({"grant_type": "client_credentials"}, "unauthorized_client"),
    ],
)
async def test_a_code_with_something_else(front: Front, changes: dict[str, str], error: str) -> None:
    client, pkce = await front.register(), Pkce()
    form = redeeming(client, await code_for(front, client, pkce), pkce)
    await refused(front, {**form, **changes}, error)
    if error == "invalid_grant":
        await refused(front, form, "invalid_grant")  # one wrong try is all a code allows


async def test_a_code_at_another_client(front: Front) -> None:
    client, thief, pkce = await front.register(), await front.register(), Pkce()
    form = redeeming(client, await code_for(front, client, pkce), pkce)
    await refused(front, {**form, "client_id": thief["client_id"]}, "invalid_grant")
    await refused(front, form, "invalid_grant")


async def test_a_code_too_late(front: Front) -> None:
    client, pkce = await front.register(), Pkce()
    form = redeeming(client, await code_for(front, client, pkce), pkce)
    front.clock.now += 61
    await refused(front, form, "invalid_grant")


async def test_a_refresh_token_shown_twice_ends_the_family(front: Front) -> None:
    client, tokens = await granted(front)
    form = {"grant_type": "refresh_token", "client_id": client["client_id"]}
    second = (await front.token({**form, "refresh_token": tokens["refresh_token"]})).json()
    assert await front.holds(second["access_token"])
    await refused(front, {**form, "refresh_token": tokens["refresh_token"]}, "invalid_grant")
    await refused(front, {**form, "refresh_token": second["refresh_token"]}, "invalid_grant")
    assert not await front.holds(second["access_token"])


async def test_a_refresh_token_at_another_client_and_too_late(front: Front) -> None:
    (client, tokens), thief = await granted(front), await front.register()
    form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
    await refused(front, {**form, "client_id": thief["client_id"]}, "invalid_grant")
    front.clock.now += 31 * 86_400
    await refused(front, {**form, "client_id": client["client_id"]}, "invalid_grant")


async def test_a_refresh_cannot_widen(front: Front) -> None:
    client, tokens = await granted(front)
    form = renewal(client, tokens["refresh_token"])
    await refused(front, {**form, "scope": "sessions:read admin"}, "invalid_scope")
    narrowed = (await front.token({**form, "scope": "sessions:read"})).json()
    assert narrowed["scope"] == "sessions:read"


async def test_an_access_token_does_not_refresh_and_a_refresh_token_opens_nothing(front: Front) -> None:
    client, tokens = await granted(front)
    form = renewal(client, tokens["access_token"])
    await refused(front, form, "invalid_grant")
    assert not await front.holds(tokens["refresh_token"])
    front.clock.now += 3601
    assert not await front.holds(tokens["access_token"])


async def test_a_clients_secret_is_needed_and_right(front: Front) -> None:
    client, pkce = await front.register(token_endpoint_auth_method="client_secret_basic"), Pkce()
    form = redeeming(client, await code_for(front, client, pkce), pkce)
    for changes in (
        {"client_secret": ""},
        {"client_secret": client["client_secret"][:-1]},
        {"client_secret": "\u2603"},
    ):
        answer = await front.token({**form, **changes})
        assert (answer.status_code, answer.json()["error"]) == (401, "invalid_client")
    assert (await front.token(form)).status_code == 200, "none of these touched the code"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge_method": None}, "invalid_request"),
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge": "x" * 42}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"resource": "https://elsewhere.example/mcp"}, "invalid_target"),
        ({"scope": "root everything"}, "invalid_scope"),
        ({"state": "x" * 5000}, "invalid_request"),
    ],
)
async def test_an_invalid_request_is_shown_to_the_person_and_not_redirected(
    front: Front, changes: dict[str, str | None], error: str
) -> None:
    """Anybody can register a client; whoever follows its link must not be sent on by this server's good name."""
    for uri in (CALLBACK, "https://elsewhere.example/callback", "cursor://anysphere.cursor-mcp/oauth/callback"):
        client = await front.register(redirect_uris=[uri])
        async with front.client() as http:
            answer = await http.get(request_for(client["client_id"], Pkce(), redirect_uri=uri, **changes))
        assert answer.status_code == 400
        assert "location" not in answer.headers
        assert front.noted("refused")[-1]["error"].startswith(error)
        links = re.findall(r'href="([^"]*)"', answer.text)
        assert [link.partition("?")[0] for link in links] == ([] if uri.startswith("https:") else [uri])
        assert all(f"error={error}" in link and "code=" not in link for link in links)
        assert not re.search(r"<(form|meta http-equiv|script|img)", answer.text)


@pytest.mark.parametrize("uri", [CALLBACK, "https://elsewhere.example/callback"])
async def test_declining_before_signing_in_leads_nowhere_either(front: Front, uri: str) -> None:
    client = await front.register(redirect_uris=[uri])
    async with Browser(front) as browser:
        page = await browser.http.get(request_for(client["client_id"], Pkce(), redirect_uri=uri))
        answer = await browser.send(page, "deny")
    assert (answer.status_code, "location" in answer.headers) == (200, False)
    assert ("elsewhere.example" in answer.text) is False
    assert ("error=access_denied" in answer.text) is (uri == CALLBACK)
    assert front.noted("denied")


async def test_a_client_of_before_gets_no_code_where_none_may_be_sent_now(front: Front) -> None:
    """What was registered under older rules is judged by those of today."""
    client = await front.register()
    for uri in ("ms-msdt:/id", "javascript:alert(1)", "notlisted://x"):
        kept = json.dumps([uri])
        await stored(front, lambda db, kept=kept: db.execute("UPDATE clients SET redirect_uris = ?", (kept,)))
        async with front.client() as http:
            for named in (uri, None):
                answer = await http.get(request_for(client["client_id"], Pkce(), redirect_uri=named))
                assert (answer.status_code, "<form" in answer.text, "href" in answer.text) == (400, False, False)


@pytest.mark.parametrize(
    "uri",
    [
        "https://evil.example/callback",
        CALLBACK + "/",
        CALLBACK + "?a=1",
        CALLBACK + "#x",
        "http://127.0.0.1:33418@evil.example/callback",
        "http://127.0.0.1.evil.example:33418/callback",
        "http://localhost:33418/callback",
        "https://127.0.0.1:33418/callback",
        "http://127.0.0.1:33418/callback/../x",
        "http://127.0.0.1:1/callback\r\nSet-Cookie: a=b",
        "http://127.0.0.1:99999999/callback",
        "",
    ],
)
async def test_the_answer_goes_nowhere_else(front: Front, uri: str) -> None:
    client = await front.register()
    async with front.client() as http:
        answer = await http.get(request_for(client["client_id"], Pkce(), redirect_uri=uri))
    assert answer.status_code == 400
    assert "location" not in answer.headers
    assert "set-cookie" not in answer.headers
    assert "<form" not in answer.text


async def test_this_machines_ports_are_free(front: Front) -> None:
    client, pkce = await front.register(redirect_uris=["http://127.0.0.1/callback"]), Pkce()
    uri = "http://127.0.0.1:45321/callback"
    code = await code_for(front, client, pkce, redirect_uri=uri)
    assert (await front.token(redeeming(client, code, pkce, redirect_uri=uri))).status_code == 200


@pytest.mark.parametrize("name", ["client_id", "redirect_uri", "state", "code_challenge", "scope"])
async def test_parameters_come_once(front: Front, name: str) -> None:
    client = await front.register()
    async with front.client() as http:
        answer = await http.get(request_for(client["client_id"], Pkce()) + f"&{name}=again")
    assert answer.status_code == 400
    assert "location" not in answer.headers


async def test_a_form_from_elsewhere_is_not_heard(front: Front) -> None:
    client = await front.register()
    async with Browser(front) as victim, Browser(front) as attacker:
        page = await attacker.sign_in(request_for(client["client_id"], Pkce()))
        fields = {**Form(page.text).fields, "action": "allow", "scope": "sessions:read"}
        cross = await attacker.http.post("/authorize", data=fields, headers={"Origin": "https://evil.example"})
        opaque = await attacker.http.post("/authorize", data=fields, headers={"Origin": "null"})
        # The attacker's own request, sent by the victim's browser, which has another cookie or none.
        none = await victim.http.post("/authorize", data=fields)
        await victim.http.get(request_for(client["client_id"], Pkce()))
        other = await victim.http.post("/authorize", data=fields)
        wordless = await attacker.http.post("/authorize", data={**fields, "word": "guess"})
        for answer in (cross, opaque, none, other, wordless):
            assert answer.status_code == 400
            assert "location" not in answer.headers
        assert redirected(await attacker.http.post("/authorize", data=fields))["code"]
        again = await attacker.http.post("/authorize", data=fields)
        assert again.status_code == 400, "a form is heard once"


async def test_consent_comes_after_sign_in(front: Front) -> None:
    client = await front.register()
    async with Browser(front) as browser:
        page = await browser.http.get(request_for(client["client_id"], Pkce()))
        answer = await browser.send(page, "allow", scope="sessions:read")
    assert answer.status_code == 400
    assert not front.noted("granted")


async def test_nothing_ticked_is_nothing_granted(front: Front) -> None:
    client = await front.register()
    async with Browser(front) as browser:
        page = await browser.sign_in(request_for(client["client_id"], Pkce()))
        answer = await browser.send(page, "allow", scope=["admin", "sessions:write"])  # neither was asked for
    assert answer.status_code == 400
    assert not front.noted("granted")


async def guess(front: Front, address: str, name: str = "alice", password: str = "a guess of mine") -> int:
    """The status of a try in a pending authorization of its own."""
    client = (await stored(front, clients.listed))[0]
    async with Browser(front, address) as browser:
        page = await browser.http.get(request_for(client["client_id"], Pkce()))
        if page.status_code != 200:
            return page.status_code
        return (await browser.send(page, "sign-in", name=name, password=password)).status_code


async def lock(front: Front, *names: str) -> None:
    """All tries that strangers have for these people, from many addresses."""
    url = request_for((await stored(front, clients.listed))[0]["client_id"], Pkce())
    for name in names:
        statuses: list[int] = []
        while 429 not in statuses:
            async with Browser(front, f"192.0.2.{len(statuses)}") as browser:
                page = await browser.http.get(url)
                for _ in range(WRONG_TRIES - 1):
                    if page.status_code != 429:
                        page = await browser.send(page, "sign-in", name=name, password="a guess of mine")
                        statuses.append(page.status_code)
        assert statuses == [403] * PER_MINUTE["sign_ins_of_name"] + [429]


async def test_guessing_passwords_is_slow_and_the_person_gets_in_meanwhile(front: Front) -> None:
    await front.register()
    statuses = [await guess(front, "192.0.2.7", name) for name in ("nobody", *["alice"] * PER_MINUTE["sign_ins"])]
    assert statuses == [403] * PER_MINUTE["sign_ins"] + [429]
    assert await guess(front, "192.0.2.8", password="a slip of mine") == 403
    assert await guess(front, "192.0.2.8", password=PASSWORD) == 200
    assert await guess(front, "192.0.2.7", password=PASSWORD) == 429
    front.clock.now += 60 / PER_MINUTE["sign_ins"]
    assert await guess(front, "192.0.2.7", password=PASSWORD) == 200
    assert len(front.noted("sign_in_failed")) == PER_MINUTE["sign_ins"] + 1


async def test_what_is_right_does_not_count(front: Front) -> None:
    await front.register()
    for number in range(PER_MINUTE["sign_ins_of_all"] + 1):
        assert await guess(front, f"192.0.2.{number % 40}", password=PASSWORD) == 200
    assert await guess(front, "192.0.2.1") == 403


async def test_tries_at_once_are_no_more_than_tries_one_after_the_other(front: Front) -> None:
    await front.register()
    statuses = await asyncio.gather(*(guess(front, "192.0.2.7") for _ in range(3 * PER_MINUTE["sign_ins"])))
    assert sorted(statuses) == [403] * PER_MINUTE["sign_ins"] + [429] * 2 * PER_MINUTE["sign_ins"]


async def test_guessing_from_everywhere_is_slow_too(front: Front) -> None:
    await front.register()
    for name in ("bob", "carol"):
        await add_person(front, name)
    await lock(front, "alice", "bob")
    assert await guess(front, "198.51.100.1", password=PASSWORD) == 429, "strangers cannot be told from each other"
    assert await guess(front, "198.51.100.1", "carol", PASSWORD) == 429, "all of them together have so many"
    front.clock.now += 61
    assert await guess(front, "198.51.100.1", password=PASSWORD) == 200


async def test_addresses_of_one_host_are_one(front: Front) -> None:
    await front.register()
    for addresses in ("127.0.0.{}", "2001:db8:1:2::{}"):
        statuses = [await guess(front, addresses.format(number + 1)) for number in range(PER_MINUTE["sign_ins"] + 1)]
        assert statuses == [403] * PER_MINUTE["sign_ins"] + [429]
    assert await guess(front, "2001:db8:1:3::1") == 403


async def test_a_browser_that_is_known_gets_in_while_others_guess(front: Front) -> None:
    client = await front.register()
    async with Browser(front, "192.0.2.1") as alice:
        page = await alice.sign_in(request_for(client["client_id"], Pkce()))
        assert page.status_code == 200
        (cookie,) = [each for each in page.headers.get_list("set-cookie") if each.startswith("ai_session_known=")]
        assert "httponly" in cookie.lower()
        assert "samesite=lax" in cookie.lower()
        assert "Max-Age=15552000" in cookie
        await add_person(front, "bob")
        await lock(front, "alice", "bob")
        for _ in range(3):
            assert (await alice.sign_in(request_for(client["client_id"], Pkce()))).status_code == 200
        tries = [await alice.sign_in(request_for(client["client_id"], Pkce()), password="no") for _ in range(11)]
        statuses = [each.status_code for each in tries]
        assert statuses == [403] * 10 + [429], "a browser that was stolen guesses no faster than others"
        wrong = await alice.sign_in(request_for(client["client_id"], Pkce()), name="bob")
        assert wrong.status_code == 429, "it is known for one person only"
    assert not [facts for _, facts in front.events if cookie.partition("=")[2][:40] in str(facts)]


async def test_a_browser_is_known_only_by_what_it_was_given(front: Front) -> None:
    client = await front.register()
    await add_person(front, "bob")
    async with Browser(front, "192.0.2.1") as alice:

        async def shows(cookie: str, name: str = "alice") -> int:
            alice.http.cookies.set("ai_session_known", cookie, domain="127.0.0.1")
            return (await alice.sign_in(request_for(client["client_id"], Pkce()), name=name)).status_code

        await alice.sign_in(request_for(client["client_id"], Pkce()))
        given = alice.http.cookies["ai_session_known"]
        name, nonce, made, signature = given.split(".")
        await lock(front, "alice", "bob")
        assert await shows(given) == 200
        for forged in (given[:-2], ".".join((name, nonce, str(int(made) + 1), signature)), f"{name}.{nonce}.{made}."):
            assert await shows(forged) == 429
        assert await shows(".".join((base64.urlsafe_b64encode(b"bob").decode(), nonce, made, signature)), "bob") == 429
        front.clock.now += 181 * 86_400
        await lock(front, "alice")
        assert await shows(given) == 429, "too old"


async def test_with_another_password_no_browser_is_known(front: Front) -> None:
    client = await front.register()
    async with Browser(front, "192.0.2.1") as alice:
        await alice.sign_in(request_for(client["client_id"], Pkce()))
        await stored(front, lambda db: users.remove(db, front.clock(), "alice"))
        await add_person(front)
        other = users.hashed(PASSWORD, (4, 8, 1))
        await stored(front, lambda db: db.execute("UPDATE people SET password = ?", (other,)))
        await lock(front, "alice")
        assert (await alice.sign_in(request_for(client["client_id"], Pkce()))).status_code == 429


async def test_a_pending_authorization_ends_after_some_wrong_tries(front: Front) -> None:
    client = await front.register()
    async with Browser(front) as browser:
        page = await browser.http.get(request_for(client["client_id"], Pkce()))
        first = page
        for _ in range(4):
            page = await browser.send(page, "sign-in", name="alice", password="no")
            assert page.status_code == 403
        over = await browser.send(page, "sign-in", name="alice", password="no")
        assert (over.status_code, "Too many wrong" in over.text) == (400, True)
        assert (await browser.send(first, "sign-in", name="alice", password=PASSWORD)).status_code == 400


async def authorization_page(front: Front, url: str, address: str) -> int:
    """The status of a page, without what a client takes for it."""
    path, _, query = url.partition("?")
    said: list[Any] = []

    async def ask() -> dict[str, str]:
        return {"type": "http.request"}

    async def say(message: Any) -> None:
        said.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "query_string": query.encode(), "client": (address, 5)}
    await front.app({**scope, "headers": [(b"host", front.base.rpartition("/")[2].encode())]}, ask, say)
    return said[0]["status"]


async def test_a_crowd_of_authorizations_ends_none_of_a_known_browser(front: Front) -> None:
    client = await front.register()
    async with Browser(front, "192.0.2.1") as alice:
        await alice.sign_in(request_for(client["client_id"], Pkce()))
        page = await alice.http.get(request_for(client["client_id"], Pkce()))
        url = request_for(client["client_id"], Pkce())
        for number in range(0, MAX_PENDING + 5, PER_MINUTE["pages"]):
            for _ in range(PER_MINUTE["pages"]):
                assert await authorization_page(front, url, f"198.51.100.{number // PER_MINUTE['pages']}") == 200
        assert (await alice.send(page, "sign-in", name="alice", password=PASSWORD)).status_code == 200


async def test_guessing_the_terminals_code_does_not_make_it_void(tmp_path: Path) -> None:
    async with opened(tmp_path) as front, Browser(front) as browser, Browser(front, "192.0.2.7") as guesser:
        client = await front.register()
        page = await browser.http.get(request_for(client["client_id"], Pkce()))
        code = front.said[0].split()[2]
        other = await guesser.http.get(request_for(client["client_id"], Pkce()))
        for _ in range(5):
            other = await guesser.send(other, "sign-in", password="AAAAAAAAAA")
        assert other.status_code == 400
        assert len(front.said) == 1
        assert (await browser.send(page, "sign-in", password=code)).status_code == 200


async def test_the_terminals_code_is_no_way_in_once_there_are_people(tmp_path: Path) -> None:
    async with opened(tmp_path) as front, Browser(front) as browser:
        client = await front.register()
        page = await browser.http.get(request_for(client["client_id"], Pkce()))
        await add_person(front)
        assert (await browser.send(page, "sign-in", password=front.said[0].split()[2])).status_code == 403


@pytest.mark.parametrize("path", ["/token", "/register", "/revoke", "/authorize"])
async def test_bodies_have_a_limit(front: Front, path: str) -> None:
    async with front.client() as http:
        answer = await http.post(path, content=b"a=" + b"x" * (64 << 10))
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [
        ("/token", b"{}", "application/json"),
        ("/token", b"", "application/x-www-form-urlencoded"),
        ("/token", b"client_id=a&client_id=b", "application/x-www-form-urlencoded"),
        ("/token", b"client_id=%ff%00&grant_type=x", "application/x-www-form-urlencoded"),
        ("/register", b"[" * 50_000, "application/json"),
        ("/register", b"[]", "application/json"),
        ("/revoke", b"token=x", "application/x-www-form-urlencoded"),
        ("/authorize", b"pending=x&word=y", "application/x-www-form-urlencoded"),
        ("/authorize", b"--x\r\n", "multipart/form-data; boundary=x"),
    ],
)
async def test_nonsense_is_answered(front: Front, path: str, body: bytes, kind: str) -> None:
    async with front.client() as http:
        answer = await http.post(path, content=body, headers={"Content-Type": kind})
    assert answer.status_code in (400, 401)


async def test_a_front_of_another_address_takes_no_token_of_this_one(front: Front) -> None:
    client, tokens = await granted(front)
    other = "http://127.0.0.1:9999"
    async with opened(front.directory, OauthSettings(), clock=front.clock, base=other) as moved, running(moved):
        assert (await moved.whoami(tokens["access_token"])).status_code == 401
        form = {
            "grant_type": "refresh_token",
            "refresh_token": tokens["refresh_token"],
            "client_id": client["client_id"],
        }
        await refused(moved, form, "invalid_grant")


async def test_removing_a_person_ends_what_they_granted(front: Front) -> None:
    _, tokens = await granted(front)
    assert await stored(front, lambda db: users.remove(db, front.clock(), "alice"))
    assert not await front.holds(tokens["access_token"])
