"""Tokens of a login while it is used: renewed once, by whoever comes first; never where others could read them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from ccswarm.clients.mcp.login_store import Logins
from ccswarm.clients.mcp.plugin import McpClients
from ccswarm.errors import LoginNeeded, ServerUnavailable
from tests.ccswarm.support.oauth_servers import BOUND_SECONDS, LoginServers, login_servers
from tests.support.products import first

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[4]
MACHINE = {"grant": "client_credentials", "client_id": "robot", "client_secret": "env:ROBOT", "scopes": ["tools:read"]}


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[LoginServers]:
    async with login_servers(tmp_path) as made:
        yield made


async def ended(here: LoginServers) -> None:
    """The server no longer knows the token of the login, though it should still hold."""
    here.authorities.tokens.clear()


async def about_to_end(here: LoginServers) -> None:
    login = await here.login()
    await here.keep(login.model_copy(update={"expires_at": 1.0}))


@pytest.mark.parametrize("change", [ended, pytest.param(about_to_end, marks=pytest.mark.torture)])
async def test_a_token_that_ends_is_renewed(here: LoginServers, change: object) -> None:
    await here.log_in()
    before = await here.login()
    assert callable(change)
    await change(here)
    assert (await here.client().call("echo", {}, meta={})).text == "echo"
    after = await here.login()
    assert [form["grant_type"] for form in here.authorities.seen] == ["authorization_code", "refresh_token"]
    assert here.authorities.seen[1]["resource"] == here.guarded.url
    assert after.token != before.token
    assert after.tokens.refresh_token != before.tokens.refresh_token
    assert after.expires_at is not None
    assert after.expires_at > 1


async def test_one_renews_for_all(here: LoginServers) -> None:
    await here.log_in()
    clients = [here.client() for _ in range(4)]
    for client in clients:
        await client.list_tools()
    await ended(here)
    answers = await asyncio.gather(*(client.call("echo", {}, meta={}) for client in clients for _ in range(4)))
    assert {answer.text for answer in answers} == {"echo"}
    assert [form["grant_type"] for form in here.authorities.seen] == ["authorization_code", "refresh_token"]


@pytest.mark.torture
async def test_one_process_renews_for_all(here: LoginServers) -> None:
    await here.log_in()
    await about_to_end(here)
    line = """
import asyncio, sys
from pathlib import Path
from ccswarm.clients.mcp.plugin import McpClients
from ccswarm.config.settings import ServerSettings
async def main():
    settings = ServerSettings.model_validate_json(sys.argv[1])
    client = McpClients().open(settings, env={}, state_directory=Path(sys.argv[2]))
    print((await client.call("echo", {}, meta={})).text)
    await client.close()
asyncio.run(main())
"""
    words = ["-c", line, here.settings.model_dump_json(), str(here.state)]
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
        for _ in range(2)
    ]
    async with asyncio.timeout(BOUND_SECONDS * 3):
        said = [(await process.communicate())[0] for process in processes]
    assert said == [b"echo\n"] * 2
    assert [form["grant_type"] for form in here.authorities.seen] == ["authorization_code", "refresh_token"]


async def test_a_login_that_was_taken_back(here: LoginServers) -> None:
    await here.log_in()
    client = here.client()
    await client.list_tools()
    await ended(here)
    here.authorities.refreshing.clear()
    with pytest.raises(LoginNeeded, match="server web requires a new login: ccswarm login web"):
        await client.call("echo", {}, meta={})
    assert here.guarded.calls == []
    await here.log_in()
    assert (await client.call("echo", {}, meta={})).text == "echo"


async def test_an_authorization_server_that_is_away_costs_no_login(here: LoginServers) -> None:
    await here.log_in()
    client = here.client()
    await client.list_tools()
    tokens = dict(here.authorities.tokens)
    await ended(here)
    here.authorities.down = True
    with pytest.raises(ServerUnavailable, match="the authorization server of web answers HTTP 503"):
        await client.call("echo", {}, meta={})
    here.authorities.down = False
    assert (await client.call("echo", {}, meta={})).text == "echo"
    assert set(tokens) & set(here.authorities.tokens) == set()


async def test_a_token_that_cannot_be_renewed_yet_is_used_to_its_end(here: LoginServers) -> None:
    await here.log_in()
    await about_to_end(here)
    here.authorities.down = True
    assert (await here.client().call("echo", {}, meta={})).text == "echo"


async def test_a_long_call_holds_up_no_other(here: LoginServers) -> None:
    await here.log_in()
    client = here.client()
    long = asyncio.create_task(client.call("hold", {}, meta={}))
    async with asyncio.timeout(BOUND_SECONDS):
        await here.guarded.held.wait()
        assert (await client.call("echo", {}, meta={})).text == "echo"
        here.guarded.released.set()
        assert (await long).text == "hold"


async def test_a_server_cannot_tell_agents_its_token(here: LoginServers) -> None:
    await here.log_in()
    answer = await here.client().call("tell", {}, meta={})
    assert answer.text == "Bearer [REDACTED:access_token]"
    assert answer.structured == {"said": "Bearer [REDACTED:access_token]"}


async def test_another_address_is_sent_nothing(here: LoginServers) -> None:
    await here.log_in()
    elsewhere = here.settings.model_copy(update={"url": here.guarded.url.replace("127.0.0.1", "localhost")})
    assert await Logins(elsewhere, here.state).read() is None


async def test_ccswarm_itself_logs_in_with_a_secret(here: LoginServers) -> None:
    here.authorities.clients["robot"] = "s3cret-of-robot"
    here.env = {"ROBOT": "s3cret-of-robot"}
    here.auth = {**MACHINE, "issuer": here.authorities.url}
    client = here.client()
    assert (await client.call("echo", {}, meta={})).text == "echo"
    (asked,) = here.authorities.seen
    assert asked["client_secret"] == "s3cret-of-robot"
    assert (asked["scope"], asked["resource"]) == ("tools:read", here.guarded.url)
    await ended(here)
    assert (await client.call("echo", {}, meta={})).text == "echo"


async def test_more_scopes_for_ccswarm_itself(here: LoginServers) -> None:
    here.authorities.clients["robot"] = "s3cret-of-robot"
    here.env = {"ROBOT": "s3cret-of-robot"}
    here.auth = {**MACHINE, "issuer": here.authorities.url}
    assert (await here.client().call("write", {}, meta={})).text == "write"
    assert set(here.authorities.seen[-1]["scope"].split()) == {"tools:read", "tools:write"}


async def test_ccswarm_itself_logs_in_with_a_key(here: LoginServers, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "key.pem").write_bytes(pem)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    here.authorities.clients["robot"] = ""
    here.authorities.public_key = public.decode()
    here.auth = {**MACHINE, "client_secret": "", "private_key": f"file:{tmp_path}/key.pem", "algorithm": "ES256"}
    here.auth["issuer"] = here.authorities.url
    assert (await here.client().call("echo", {}, meta={})).text == "echo"


@pytest.mark.parametrize(
    ("env", "issuer", "problem"),
    [
        ({}, "", "auth.client_secret refers to something missing: env:ROBOT"),
        ({"ROBOT": "wrong-secret"}, "", "which failed: Token exchange failed"),
        ({"ROBOT": "s3cret-of-robot"}, "https://elsewhere.example", "which failed: .*elsewhere.example"),
    ],
)
async def test_a_secret_that_is_not_taken(here: LoginServers, env: dict[str, str], issuer: str, problem: str) -> None:
    here.authorities.clients["robot"] = "s3cret-of-robot"
    here.env = env
    here.auth = {**MACHINE, "issuer": issuer or here.authorities.url}
    with pytest.raises(ServerUnavailable, match=problem) as caught:
        await here.client().call("echo", {}, meta={})
    assert "s3cret" not in str(caught.value)
    assert "wrong-secret" not in str(caught.value)
    assert here.guarded.calls == []


@pytest.mark.parametrize("content", first(["", "{", '{"tokens": 3}', "\udcff"], '{"tokens": 3}'))
async def test_a_login_that_cannot_be_read_is_none(here: LoginServers, content: str) -> None:
    await here.log_in()
    (file,) = (here.state / "logins").glob("*.json")
    file.write_bytes(content.encode(errors="surrogateescape"))
    assert await McpClients().login(here.settings, here.state) is None
    with pytest.raises(LoginNeeded):
        await here.client().list_tools()


KEYRING = """
import json, pathlib
FILE = pathlib.Path(__file__).with_name("kept.json")
def _all():
    return json.loads(FILE.read_text()) if FILE.exists() else {}
def get_password(service, name):
    return _all().get(f"{service} {name}")
def set_password(service, name, value):
    FILE.write_text(json.dumps({**_all(), f"{service} {name}": value}))
def delete_password(service, name):
    FILE.write_text(json.dumps({key: value for key, value in _all().items() if key != f"{service} {name}"}))
"""


async def test_a_keyring_keeps_it_where_that_is_configured(here: LoginServers, tmp_path: Path) -> None:
    (tmp_path / "keyring.py").write_text(KEYRING)
    here.auth = {"keep": "keyring"}
    sys.path.insert(0, str(tmp_path))
    try:
        await here.log_in()
        assert (await here.client().call("echo", {}, meta={})).text == "echo"
        assert [*(here.state / "logins").glob("*.json")] == []
        kept = json.loads((tmp_path / "kept.json").read_text())
        assert [name.startswith("ccswarm web-") for name in kept] == [True]
        await McpClients().log_out(here.settings, {}, here.state)
        assert json.loads((tmp_path / "kept.json").read_text()) == {}
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("keyring", None)
