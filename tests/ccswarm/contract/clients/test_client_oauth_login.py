"""Logging in at a tool server, as its authorization server sees it."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ccswarm.clients.mcp.plugin import McpClients
from ccswarm.config.settings import ServerSettings
from ccswarm.errors import LoginNeeded, ServerUnavailable, UsageInvalid
from tests.ccswarm.support.oauth_servers import Browser, LoginServers, login_servers, query
from tests.support.products import first

pytestmark = pytest.mark.anyio
DOCUMENT = "https://ccswarm.example/client.json"


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[LoginServers]:
    async with login_servers(tmp_path) as made:
        yield made


async def test_a_login_serves_every_process_of_the_user(here: LoginServers) -> None:
    with pytest.raises(LoginNeeded, match="server web requires a login: ccswarm login web") as caught:
        await here.client().list_tools()
    assert caught.value.suggestion == "ccswarm login web"
    found = await here.log_in()
    assert (found.issuer, found.scopes, found.renewable) == (here.authorities.url, ("tools:read",), True)
    assert (await here.client().call("echo", {}, meta={})).text == "echo"
    (file,) = (path for path in (here.state / "logins").iterdir() if path.suffix == ".json")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


async def test_what_is_asked_for(here: LoginServers) -> None:
    await here.log_in()
    (asked,) = here.authorities.asked
    assert asked["code_challenge_method"] == "S256"
    assert asked["resource"] == here.guarded.url
    assert asked["redirect_uri"].startswith("http://127.0.0.1:")
    (exchange,) = here.authorities.seen
    assert (exchange["resource"], exchange["client_id"]) == (here.guarded.url, "client-1")
    (registered,) = here.authorities.registered
    assert registered["application_type"] == "native"
    assert registered["redirect_uris"] == [asked["redirect_uri"]]


async def test_the_way_back_takes_only_the_answer_to_this_login(here: LoginServers) -> None:
    await here.log_in()
    guessed, elsewhere, right = here.person.pages
    assert (guessed.status_code, elsewhere.status_code, right.status_code) == (400, 404, 200)
    assert "not the address of this login" in guessed.text
    assert "You are logged in" in right.text


async def test_an_address_is_pasted_where_there_is_no_way_back(here: LoginServers) -> None:
    here.person = Browser(pastes=True)
    await here.log_in()
    assert "paste the whole one" in here.person.heard[0]
    assert (await here.client().call("echo", {}, meta={})).text == "echo"


async def test_the_client_that_was_registered_is_used_again(here: LoginServers) -> None:
    await here.log_in()
    await here.log_in()
    assert len(here.authorities.registered) == 1
    assert here.authorities.asked[0]["redirect_uri"] == here.authorities.asked[1]["redirect_uri"]


async def test_a_document_names_the_client_where_that_is_taken(here: LoginServers) -> None:
    here.auth = {"client_metadata_url": DOCUMENT}
    await here.log_in()
    assert here.authorities.asked[0]["client_id"] == "client-1"
    here.authorities.metadata["client_id_metadata_document_supported"] = True
    await McpClients().log_out(here.settings, {}, here.state)
    await here.log_in()
    assert here.authorities.asked[1]["client_id"] == DOCUMENT
    assert len(here.authorities.registered) == 1


async def test_a_client_that_was_registered_beforehand(here: LoginServers) -> None:
    here.authorities.clients["ours"] = "s3cret-of-ours"
    here.env = {"OUR_SECRET": "s3cret-of-ours"}
    here.auth = {"client_id": "ours", "client_secret": "env:OUR_SECRET", "issuer": here.authorities.url}
    await here.log_in()
    assert here.authorities.seen[0]["client_secret"] == "s3cret-of-ours"  # sent as this server takes it
    assert not here.authorities.registered
    (file,) = (here.state / "logins").glob("*.json")
    assert "s3cret-of-ours" not in file.read_text()
    here.authorities.tokens.clear()
    assert (await here.client().call("echo", {}, meta={})).text == "echo"
    assert here.authorities.seen[1]["client_secret"] == "s3cret-of-ours"
    assert await McpClients().log_out(here.settings, here.env, here.state) == (True, True)


async def test_a_secret_goes_to_no_other_authorization_server(here: LoginServers) -> None:
    here.env = {"OUR_SECRET": "s3cret-of-ours"}
    here.auth = {"client_id": "ours", "client_secret": "env:OUR_SECRET", "issuer": "https://elsewhere.example"}
    await here.log_in()  # as a stranger, who registers
    assert [form.get("client_secret") for form in here.authorities.seen] == [None]
    assert here.authorities.seen[0]["client_id"] == "client-1"


async def test_more_scopes_are_added_to_those_there_were(here: LoginServers) -> None:
    await here.log_in()
    with pytest.raises(LoginNeeded, match=r"requires a login with more scopes \(tools:write\)") as caught:
        await here.client().call("write", {}, meta={})
    assert caught.value.suggestion == "ccswarm login web --scope tools:write"
    assert here.guarded.calls == []
    await here.log_in("tools:write")
    assert set(here.authorities.asked[1]["scope"].split()) == {"tools:read", "tools:write"}
    assert (await here.client().call("write", {}, meta={})).text == "write"


@pytest.mark.parametrize(
    ("back", "problem"),
    [
        ({"iss": "https://elsewhere.example"}, "iss mismatch"),
        ({"iss": ""}, "missing iss"),
        ({"code": "", "error": "access_denied", "error_description": "Not you."}, "says: Not you"),
        pytest.param({"code": "", "error": "access_denied"}, "says: access_denied", marks=pytest.mark.torture),
        ({"code": "forged"}, "invalid_grant"),
    ],
)
async def test_what_does_not_come_from_who_was_asked(here: LoginServers, back: dict[str, str], problem: str) -> None:
    here.authorities.back = back
    with pytest.raises(LoginNeeded, match=problem):
        await here.log_in()
    with pytest.raises(LoginNeeded):
        await here.client().list_tools()


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"issuer": "https://elsewhere.example"}, "issuer mismatch"),
        pytest.param({"code_challenge_methods_supported": None}, "PKCE", marks=pytest.mark.torture),
        ({"code_challenge_methods_supported": ["plain"]}, "PKCE"),
        ({"authorization_endpoint": "http://elsewhere.example/authorize"}, "plain http to another machine"),
        ({"token_endpoint": "http://elsewhere.example/token"}, "plain http to another machine"),
        pytest.param(
            {"registration_endpoint": "http://elsewhere.example/register"},
            "plain http to another machine",
            marks=pytest.mark.torture,
        ),
    ],
)
async def test_an_authorization_server_that_is_not_to_be_trusted(
    here: LoginServers, changed: dict[str, object], problem: str
) -> None:
    metadata = {**here.authorities.metadata, **changed}
    here.authorities.metadata = {name: value for name, value in metadata.items() if value is not None}
    with pytest.raises(LoginNeeded, match=problem):
        await here.log_in()
    assert here.authorities.seen == []


async def test_a_server_that_claims_to_be_another(here: LoginServers) -> None:
    here.guarded.metadata["resource"] = "https://bank.example/mcp"
    with pytest.raises(LoginNeeded, match="does not match"):
        await here.log_in()
    assert here.authorities.asked == []


@pytest.mark.parametrize(
    "where",
    first(
        ["::::", "there", "javascript:alert(1)", "http://[", "http://elsewhere.example/a", "//x"],
        "javascript:alert(1)",
        "http://elsewhere.example/a",
    ),
)
async def test_an_address_that_is_none(here: LoginServers, where: str) -> None:
    here.guarded.where = where
    with pytest.raises(LoginNeeded, match="the login to web failed"):
        await here.log_in()
    here.auth = {"grant": "client_credentials", "client_id": "a", "client_secret": "env:A", "issuer": "https://b"}
    here.env = {"A": "a-secret-of-ours"}
    with pytest.raises(LoginNeeded, match="which failed"):
        await here.client().list_tools()
    assert here.authorities.seen == []


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", marks=pytest.mark.torture),
        pytest.param(b"[]", marks=pytest.mark.torture),
        pytest.param(b'{"access_token": 3}', marks=pytest.mark.torture),
        b'{"access_token": "x", "token_type": "mac"}',
        pytest.param(b"{", marks=pytest.mark.torture),
    ],
)
async def test_a_token_that_is_none(here: LoginServers, said: bytes) -> None:
    here.authorities.instead = said
    with pytest.raises(LoginNeeded, match="the login to web failed"):
        await here.log_in()
    assert await McpClients().login(here.settings, here.state) is None


async def test_a_state_directory_that_cannot_be_written(here: LoginServers) -> None:
    (here.state / "logins").write_text("a file")
    with pytest.raises(ServerUnavailable, match="the login to web cannot be stored"):
        await here.log_in()


async def test_nobody_comes(here: LoginServers) -> None:
    class Asleep:
        def go_to(self, url: str) -> None:
            assert query(url)["state"]

        def show(self, message: str) -> None:
            raise AssertionError(message)

        async def pasted(self) -> str:
            return await asyncio.get_running_loop().create_future()

    with pytest.raises(LoginNeeded, match=r"the login to web was not completed within 0\.2 s"):
        await McpClients().log_in(here.settings, {}, here.state, Asleep(), seconds=0.2)


async def test_logging_out(here: LoginServers) -> None:
    await here.log_in()
    assert await McpClients().login(here.settings, here.state) is not None
    assert await McpClients().log_out(here.settings, {}, here.state) == (True, True)
    assert here.authorities.refreshing == {}
    assert await McpClients().login(here.settings, here.state) is None
    assert await McpClients().log_out(here.settings, {}, here.state) == (False, False)
    with pytest.raises(LoginNeeded):
        await here.client().list_tools()


async def test_a_server_that_is_started_here_knows_no_login(tmp_path: Path) -> None:
    settings = ServerSettings(name="small", command="true")
    with pytest.raises(UsageInvalid, match="started here"):
        await McpClients().log_out(settings, {}, tmp_path)
