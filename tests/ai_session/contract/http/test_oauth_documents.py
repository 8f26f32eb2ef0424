"""Clients named by the URL of a document (CIMD): a whole sign-in, and what a stranger's URL must not make us do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ai_session.config.settings import OauthSettings
from ai_session.http.oauth.authority import PER_MINUTE
from ai_session.http.oauth.fetch import MAX_BYTES, Fetcher, Unreachable
from tests.ai_session.support.oauth_issuer import Documents, documents
from tests.ai_session.support.oauth_servers import (
    CALLBACK,
    Browser,
    Front,
    Pkce,
    add_person,
    opened,
    redeeming,
    request_for,
)

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Documents]:
    async with documents(tmp_path_factory.mktemp("tls")) as made:
        yield made


@pytest.fixture
def host(server: Documents) -> Documents:
    server.answers.clear()
    server.asked.clear()
    server.hosts.clear()
    server.gate.set()
    return server


@pytest.fixture
async def front(host: Documents, tmp_path: Path) -> AsyncIterator[Front]:
    settings = OauthSettings(cimd_loopback=True)
    async with opened(tmp_path, settings, fetcher=Fetcher(tls=host.trust)) as made:
        await add_person(made)
        yield made


def described(host: Documents, **changes: Any) -> str:
    """The URL of a good document but for the changes."""
    url = host.base + "/client.json"
    facts = {"client_id": url, "client_name": "Desk", "redirect_uris": [CALLBACK], **changes}
    return host.put("/client.json", {name: value for name, value in facts.items() if value is not None})


async def test_a_client_with_a_document(front: Front, host: Documents) -> None:
    url, pkce = described(host), Pkce()
    async with Browser(front) as browser:
        page = await browser.sign_in(request_for(url, pkce))
        assert f"<strong>Desk</strong>, described at <code>{host.base.removeprefix('https://')}</code>" in page.text
        code = (await browser.consent(request_for(url, pkce)))["code"]
    host.answers.clear()  # its host may be away when the code is redeemed and whenever tokens are renewed
    tokens = await front.token(redeeming({"client_id": url}, code, pkce))
    assert tokens.status_code == 200
    renewal = {"grant_type": "refresh_token", "refresh_token": tokens.json()["refresh_token"], "client_id": url}
    assert (await front.token(renewal)).status_code == 200
    assert host.asked == ["/client.json"], "one reading serves them all"


@pytest.mark.parametrize(
    "changes",
    [
        {"client_id": "https://other.example/client.json"},
        {"client_id": None},
        {"redirect_uris": None},
        {"redirect_uris": ["https://elsewhere.example/callback"]},
        {"redirect_uris": ["javascript:alert(1)", CALLBACK]},
        {"client_secret": "x"},
        {"token_endpoint_auth_method": "client_secret_post"},
        {"token_endpoint_auth_method": "private_key_jwt"},
    ],
)
async def test_documents_that_are_not_taken(front: Front, host: Documents, changes: dict[str, Any]) -> None:
    async with front.client() as http:
        answer = await http.get(request_for(described(host, **changes), Pkce()))
    assert (answer.status_code, "location" in answer.headers) == (400, False)


async def test_the_token_endpoint_fetches_nothing(front: Front, host: Documents) -> None:
    form = redeeming({"client_id": described(host)}, "ais_code_guess", Pkce())
    assert (await front.token(form)).json()["error"] == "invalid_grant"
    assert host.asked == []


@pytest.mark.parametrize("path", ["", "/", "/a/../client.json", "/client.json#x"])
async def test_urls_that_are_not_read(front: Front, host: Documents, path: str) -> None:
    async with front.client() as http:
        answer = await http.get(request_for(host.base + path, Pkce()))
    assert (answer.status_code, host.asked) == (400, [])


async def test_redirects_are_not_followed(front: Front, host: Documents) -> None:
    good = described(host)
    url = host.put("/moved.json", status=302, Location=good)
    async with front.client() as http:
        assert (await http.get(request_for(url, Pkce()))).status_code == 400
    assert host.asked == ["/moved.json"]


@pytest.mark.parametrize(
    "body", [b"", b"not json", b"[]", b"null", b"[" * 60_000, b'{"a":"' + b"x" * MAX_BYTES + b'"}']
)
async def test_answers_that_are_no_document(front: Front, host: Documents, body: bytes) -> None:
    url = host.put("/odd.json", body=body)
    async with front.client() as http:
        answer = await http.get(request_for(url, Pkce()))
    assert (answer.status_code, "location" in answer.headers) == (400, False)


async def test_a_body_that_never_ends_is_cut(host: Documents) -> None:
    url = host.put("/big.json", body=b" " * (4 << 20))
    with pytest.raises(Unreachable, match="more than 64 KiB"):
        await Fetcher(tls=host.trust).stranger(url, loopback_too=True)


async def test_a_host_that_keeps_silent_is_left(host: Documents) -> None:
    host.gate.clear()
    url = described(host)
    with pytest.raises(Unreachable, match="longer than"):
        await Fetcher(tls=host.trust, seconds=0.2).stranger(url, loopback_too=True)
    assert host.asked == ["/client.json"]


async def test_the_certificate_is_for_the_name_that_was_asked(host: Documents) -> None:
    async def resolve(name: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    port = host.base.rpartition(":")[2]
    host.put("/client.json", {})
    fetcher = Fetcher(resolve, host.trust)
    assert await fetcher.stranger(f"https://client.example:{port}/client.json", loopback_too=True) == {}
    assert host.hosts == [f"client.example:{port}"]
    with pytest.raises(Unreachable, match="cannot be reached"):
        await fetcher.stranger(f"https://other.example:{port}/client.json", loopback_too=True)


PRIVATE = (
    *("127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"),
    *("192.0.2.1", "198.18.0.1", "224.0.0.1", "239.255.255.250", "255.255.255.255", "::1", "::", "fe80::1"),
    *("fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1"),
    *("64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a00:1::", "2001:0:1234::f5ff:fffe", "::127.0.0.1"),
)


@pytest.mark.parametrize("address", PRIVATE)
async def test_private_addresses_are_not_reached(host: Documents, address: str) -> None:
    """By name, by a name with a public address too, and (where a URL can say it) as it is."""
    answers = [[address], ["93.184.215.14", address]]

    async def resolve(name: str, port: int) -> list[str]:
        return answers.pop()

    fetcher = Fetcher(resolve, host.trust)
    for _ in range(2):
        with pytest.raises(Unreachable, match="not public"):
            await fetcher.stranger("https://client.example/client.json")
    literal = f"[{address}]" if ":" in address else address
    with pytest.raises(Unreachable):
        await fetcher.stranger(f"https://{literal}/client.json")
    assert host.asked == []


@pytest.mark.parametrize("name", ["localhost", "2130706433", "0x7f.1", "127.1", "0177.0.0.1"])
async def test_other_spellings_of_this_machine(host: Documents, name: str) -> None:
    port = host.base.rpartition(":")[2]
    with pytest.raises(Unreachable):
        await Fetcher(tls=host.trust).stranger(f"https://{name}:{port}/client.json")
    assert host.asked == []


async def test_this_machine_is_reached_only_in_development(host: Documents, tmp_path: Path) -> None:
    async with opened(tmp_path, fetcher=Fetcher(tls=host.trust)) as front, front.client() as http:
        answer = await http.get(request_for(described(host), Pkce()))
    assert (answer.status_code, host.asked) == (400, [])


@pytest.mark.parametrize("url", ["http://client.example/c.json", "file:///etc/passwd", "https:///x", "https://[::1/x"])
async def test_only_https(url: str) -> None:
    async def resolve(name: str, port: int) -> list[str]:
        raise AssertionError("nothing is looked up")

    with pytest.raises((Unreachable, ValueError)):
        await Fetcher(resolve).stranger(url)


async def test_names_that_cannot_be_found_and_too_many_documents(front: Front, host: Documents) -> None:
    async with front.client() as http:
        statuses = [
            (await http.get(request_for(f"{host.base}/{number}.json", Pkce()))).status_code
            for number in range(PER_MINUTE["documents_of_all"] + 1)
        ]
    assert statuses == [400] * PER_MINUTE["documents_of_all"] + [429]
    assert len(host.asked) == PER_MINUTE["documents_of_all"]


async def test_side_by_side_readers_of_one_document(front: Front, host: Documents) -> None:
    url = described(host)
    async with front.client() as http:
        pages = await asyncio.gather(*(http.get(request_for(url, Pkce())) for _ in range(4)))
    assert [page.status_code for page in pages] == [200] * 4
