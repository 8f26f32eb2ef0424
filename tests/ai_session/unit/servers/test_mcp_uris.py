"""A URI means one thing or nothing, and is spelt in one way."""

from __future__ import annotations

import secrets
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AnyUrl

from ai_session.servers.mcp.uris import ResourceAddress, address_of
from tests.ai_session.unit.cli.test_session_names import NAMES

COMMANDS = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=64)
PLACES = st.one_of(
    st.just(ResourceAddress("list")),
    st.builds(ResourceAddress, st.sampled_from(["info", "screen", "recording"]), NAMES),
    st.builds(ResourceAddress, st.just("output"), NAMES, COMMANDS),
)


@given(PLACES)
def test_every_place_comes_back_from_its_uri(address: ResourceAddress) -> None:
    assert address_of(address.uri) == address


@given(st.one_of(st.text(max_size=80), st.text("session:/%.?#@\\ aA0_-\n", max_size=60).map("session://".__add__)))
def test_what_is_taken_is_spelt_in_one_way(uri: str) -> None:
    address = address_of(uri)
    assert address is None or address.uri == uri


@given(PLACES, st.integers(0, 200), st.characters())
def test_one_other_character_is_another_place_or_none(address: ResourceAddress, at: int, other: str) -> None:
    uri = address.uri
    at %= len(uri)
    changed = uri[:at] + other + uri[at + 1 :]
    found = address_of(changed)
    assert found is None or found.uri == changed


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "session:",
        "session://",
        "session:///",
        "session://list/",
        "session://list?x",
        "Session://list",
        "session:list",
        "file:///etc/passwd",
        "session://../info",
        "session://a/../info",
        "session://./info",
        "session://a/info/",
        "session://a//info",
        "session://a/%2e%2e/info",
        "session://%61/info",
        "session://a/info#x",
        "session://a/info?x=1",
        "session://u@a/info",
        "session://a:80/info",
        "session://a/output",
        "session://a/output/",
        "session://a/output/../../b",
        "session://a/output/x/y",
        "session://a/output/%2e",
        "session://a/nothing",
        "session://a b/info",
        "session://a\n/info",
        "session://a/info\n",
        "session://\u00e4/info",
        "session://%c3%a4/info",
        "session://a%CC%88/info",
        "session://%FF/info",
        "session://%2D/info",
        "session://-a/info",
        "session://" + "a" * 65 + "/info",
        "session://{id}/info",
        " session://list",
        "session://a\\info",
        "session://a/info\x00",
        "session://\uff0e\uff0e/info",
        "session://a/output/" + "c" * 65,
    ],
)
def test_odd_uris_are_none(uri: str) -> None:
    assert address_of(uri) is None


def test_clients_that_parse_urls_send_what_they_were_given() -> None:
    for session in ("Build.2-x_Y", "ses_" + secrets.token_urlsafe(16)):
        for address in (
            ResourceAddress("info", session),
            ResourceAddress("output", session, "cmd_" + secrets.token_urlsafe(16)),
        ):
            url: Any = AnyUrl(address.uri)
            assert str(url) == address.uri
    assert str(AnyUrl("session://list")) == "session://list"
