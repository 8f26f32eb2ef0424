"""How servers at an address are configured: what is refused, what stands for a secret, what is hidden of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ccswarm.clients._address import SecretScrubber, make_headers
from ccswarm.clients.mcp.elicitation import answer_elicitation, continue_call
from ccswarm.config import parsing
from ccswarm.config.settings import ServerSettings, in_clear
from ccswarm.errors import ConfigInvalid, ServerUnavailable


def parsed(server: str) -> ServerSettings:
    return parsing.parse(f'[mcp]\nservers = [{{ name = "s", {server} }}]').mcp.servers[0]


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ('url = "tools.example/mcp"', "url should begin with https://"),
        ('url = "ftp://tools.example"', "url should begin with https://"),
        ('url = "http://tools.example/mcp"', "url is plain http to another machine"),
        ('url = "http://127.0.0.1.example/mcp"', "url is plain http to another machine"),
        ('url = "https://me:pw@tools.example/mcp"', "url should not contain a user name or password"),
        ('url = "https://x", headers = { Authorization = "Bearer abc" }', "headers.Authorization should not be"),
        ('url = "https://x", headers = { X-Api-Key = "abc" }', "headers.X-Api-Key should not be written"),
        ('url = "https://x", headers = { Cookie = "a$$b" }', "headers.Cookie should not be written"),
        ('url = "https://x", auth = { client_secret = "abc" }', "auth.client_secret should not be written"),
        ('url = "https://x", auth = { private_key = "-----BEGIN" }', "auth.private_key should not be written"),
        ('url = "https://x", auth = { client_id = "a", client_secret = "env:A" }', "auth needs client_id and issuer"),
        ('url = "https://x", auth = { grant = "client_credentials" }', "needs client_secret or private_key"),
        ('url = "https://x", auth = { grant = "magic" }', "grant should be 'browser' or 'client_credentials'"),
    ],
)
def test_what_is_refused(server: str, said: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parsed(server)
    assert said in caught.value.message


@pytest.mark.parametrize(
    "server",
    [
        'url = "http://127.0.0.1:8000/mcp"',
        'url = "http://localhost:8000/mcp"',
        'url = "http://[::1]:8000/mcp"',
        'url = "http://tools.example/mcp", insecure = true',
        'url = "https://x", headers = { Authorization = "env:TOKEN", X-Team = "blue", X-Key = "file:~/key" }',
        'url = "https://x", headers = { Authorization = "Bearer $TOKEN", Cookie = "a=${B}" }',
        'url = "https://x", auth = { scopes = ["a"], keep = "keyring", redirect_port = 8765 }',
        'url = "https://x", auth = { client_id = "a", client_secret = "env:A", issuer = "https://as" }',
        'command = "x"',
    ],
)
def test_what_is_taken(server: str) -> None:
    assert parsed(server).name == "s"


@pytest.mark.parametrize(
    ("url", "clear"),
    [
        ("https://tools.example", False),
        ("http://tools.example", True),
        ("http://127.9.9.9:1", False),
        ("http://localhost.example", True),
        ("http://0.0.0.0", True),
        ("http://[::ffff:8.8.8.8]", True),
        ("javascript:alert(1)", True),
        ("", True),
    ],
)
def test_what_others_could_read_on_the_way(url: str, clear: bool) -> None:
    assert in_clear(url) is clear


def test_headers_name_their_secrets(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-a-file\n")
    headers = {
        "Authorization": "env:TOKEN",
        "X-Key": f"file:{tmp_path}/key",
        "Cookie": "id=${ID}; b",
        "X-Team": "$TEAM",
    }
    env = {"TOKEN": "Bearer abcdefgh", "ID": "session-1", "TEAM": "blue-team"}
    scrubber = SecretScrubber()
    sent = make_headers(ServerSettings(name="s", url="https://x", headers=headers), env, scrubber)
    assert sent == {
        "Authorization": "Bearer abcdefgh",
        "X-Key": "from-a-file",
        "Cookie": "id=session-1; b",
        "X-Team": "blue-team",
    }
    reported = {"a": ["abcdefgh", {"from-a-file": 1}], "b": "session-1 blue-team", "c": None}
    assert scrubber.value(reported) == {
        "a": ["[REDACTED:Authorization]", {"[REDACTED:X-Key]": 1}],
        "b": "[REDACTED:Cookie] blue-team",
        "c": None,
    }


@pytest.mark.parametrize("value", ["env:NOBODY", "file:/nowhere/at/all", "Bearer $NOBODY"])
def test_what_is_named_must_be_there(value: str) -> None:
    settings = ServerSettings(name="s", url="https://x", headers={"Authorization": value})
    with pytest.raises(ServerUnavailable, match=r"refers? to a variable that is not set"):
        make_headers(settings, {}, SecretScrubber())


def test_short_values_are_words() -> None:
    scrubber = SecretScrubber()
    scrubber.add("A", "yes")
    scrubber.add("B", None)
    assert scrubber.text("yes or no") == "yes or no"


async def blue(message: str, schema: Any) -> dict[str, Any] | None:
    return {"colour": "blue"} if message == "Which?" else None


FORM = {
    "message": "Which?",
    "requestedSchema": {"properties": {"colour": {"default": "red"}, "size": {"default": 3}, "x": {}}},
}


@pytest.mark.anyio
async def test_what_a_person_leaves_out_has_the_default() -> None:
    assert await answer_elicitation(FORM, blue) == {"action": "accept", "content": {"colour": "blue", "size": 3}}
    assert await answer_elicitation({**FORM, "message": "Why?"}, blue) == {"action": "decline"}
    assert await answer_elicitation({"message": "Which?", "url": "https://x"}, blue) == {"action": "decline"}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("result", "more"),
    [
        ({"content": []}, None),
        ({"resultType": "input_required"}, None),
        ({"resultType": "input_required", "requestState": "s"}, {"requestState": "s"}),
        ({"resultType": "input_required", "inputRequests": {"a": {"method": "roots/list"}}}, None),
        ({"resultType": "input_required", "inputRequests": [1]}, None),
        (
            {"resultType": "input_required", "inputRequests": {"a": {"method": "elicitation/create", "params": FORM}}},
            {"inputResponses": {"a": {"action": "accept", "content": {"colour": "blue", "size": 3}}}},
        ),
    ],
)
async def test_how_a_call_goes_on(result: dict[str, Any], more: dict[str, Any] | None) -> None:
    assert await continue_call(result, blue) == more


@pytest.mark.anyio
async def test_where_nobody_is_asked() -> None:
    asked = {"a": {"method": "elicitation/create", "params": FORM}}
    assert await continue_call({"resultType": "input_required", "inputRequests": asked}, None) is None
