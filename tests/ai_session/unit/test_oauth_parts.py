"""Parts of signing in that need no server: names, passwords, the terminal's code, addresses, words."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_session import oauth_people, ownership
from ai_session.errors import InvalidArguments
from ai_session.oauth_claims import Expected
from ai_session.oauth_clients import Client, checked_client_name
from ai_session.oauth_fetch import acceptable
from ai_session.oauth_grants import proves
from ai_session.oauth_jwt import metadata_urls
from ai_session.oauth_pages import STYLE, STYLE_HASH, page
from ai_session.oauth_people import CODE_SECONDS, NOBODY, TerminalCode
from ai_session.oauth_scopes import SCOPES, USUAL, known


def test_scopes_are_those_the_gate_asks_for() -> None:
    assert set(USUAL) == set(ownership.SCOPES.values())
    assert set(SCOPES) == {*USUAL, ownership.ADMIN}
    assert known(["admin", "openid", "sessions:read", "admin"]) == ("sessions:read", "admin")


def test_passwords() -> None:
    stored = oauth_people.hashed("correct horse battery", (4, 8, 1))
    assert oauth_people.fits("correct horse battery", stored)
    assert not oauth_people.fits("correct horse batterz", stored)
    assert stored != oauth_people.hashed("correct horse battery", (4, 8, 1)), "each has a salt of its own"
    assert not oauth_people.fits("", NOBODY)
    assert not oauth_people.fits("x" * 100_000, stored)
    for wrong in ("", "short", "x" * 1025):
        with pytest.raises(InvalidArguments):
            oauth_people.hashed(wrong)


@pytest.mark.parametrize("name", ["", "A", "a b", "a/b", "-a", "a" * 65, "a@b", "client:x", "ä", "a\n"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(InvalidArguments):
        oauth_people.checked_name(name)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_terminals_code() -> None:
    said: list[str] = []
    clock = Clock()
    code = TerminalCode(said.append, clock)
    assert not code.takes("")
    code.show()
    code.show()
    assert len(said) == 1, "what stands there is still good"
    word = said[0].split()[2]
    clock.now = CODE_SECONDS
    assert not code.takes(word)
    code.show()
    word = said[1].split()[2]
    assert code.takes(word.replace("-", " ").lower())
    assert not code.takes(word)


@pytest.mark.parametrize(
    ("registered", "uri", "taken"),
    [
        ("http://127.0.0.1/cb", "http://127.0.0.1:5/cb", True),
        ("http://127.0.0.1:9/cb", "http://127.0.0.1/cb", True),
        ("http://[::1]:9/cb", "http://[::1]:8/cb", True),
        ("http://localhost/cb?a=1", "http://localhost:8/cb?a=1", True),
        ("http://localhost/cb", "http://127.0.0.1/cb", False),
        ("http://127.0.0.1/cb", "http://127.0.0.1:5/cb?x", False),
        ("http://127.0.0.1/cb", "http://127.0.0.1:5/cb#", False),
        ("http://127.0.0.1/cb", "http://127.0.0.1:5/cb;x", False),
        ("http://127.0.0.1/cb", "http://127.0.0.1:5\t/cb", False),
        ("http://127.0.0.1/cb", "HTTP://127.0.0.1:5/CB", False),
        ("https://a.example/cb", "https://a.example:444/cb", False),
        ("https://a.example/cb", "https://a.example/cb", True),
        ("cursor://host/cb", "cursor://host/cb", True),
        ("cursor://host/cb", "cursor://host:1/cb", False),
    ],
)
def test_where_codes_go(registered: str, uri: str, taken: bool) -> None:
    assert Client("c", "registered", "", (registered,)).takes_codes_at(uri) is taken


@given(st.text(max_size=300))
def test_client_names_are_one_short_line(name: str) -> None:
    shown = checked_client_name(name)
    assert len(shown) <= 80
    assert shown.isprintable()


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_names_of_an_issuer_are_told_apart(one: str, other: str) -> None:
    expected, elsewhere = Expected("https://a.example/x", "", ""), Expected("https://b.example", "", "")
    assert (expected.subject(one) == expected.subject(other)) == (one == other)
    assert expected.subject(one) != elsewhere.subject(other)
    assert not oauth_people.NAME.match(expected.subject(one))


def test_pkce_is_rfc_7636() -> None:
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert proves(verifier, "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM")
    assert not proves(verifier, verifier)
    assert not proves(verifier, "\u2603")


def test_metadata_lies_where_the_rfcs_say() -> None:
    assert metadata_urls("https://a.example/t/1") == [
        "https://a.example/.well-known/oauth-authorization-server/t/1",
        "https://a.example/t/1/.well-known/openid-configuration",
    ]
    assert metadata_urls("https://a.example")[0] == "https://a.example/.well-known/oauth-authorization-server"


@pytest.mark.parametrize(
    ("url", "fit"),
    [
        ("https://idp.example", True),
        ("http://127.0.0.1:8080/x", True),
        ("http://[::1]:8080", True),
        ("http://localhost", True),
        ("http://idp.example", False),
        ("http://127.0.0.1.evil.example", False),
        ("https://u:p@idp.example", False),
        ("https://", False),
        ("https://[x", False),
        ("ftp://localhost", False),
        ("", False),
    ],
)
def test_configured_addresses(url: str, fit: bool) -> None:
    assert acceptable(url) is fit


@pytest.mark.parametrize(
    ("uri", "targets"),
    [
        ("", "form-action 'self'"),
        ("https://a.example/cb", "form-action 'self' https:"),
        ("http://127.0.0.1:8/cb", "form-action 'self' https: http://127.0.0.1:8"),
        ("http://[::1]:8/cb", "form-action 'self' https: http:"),
        ("cursor://x/cb", "form-action 'self' https: cursor:"),
    ],
)
def test_forms_may_lead_to_the_client_and_no_further(uri: str, targets: str) -> None:
    """Browsers hold the redirect a form is answered with against form-action too."""
    policy = page("t", "b", redirect_uri=uri).headers["content-security-policy"]
    assert policy.split("; ")[-1] == targets
    assert base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode() == STYLE_HASH
