"""Parts of signing in that need no server: names, passwords, the terminal's code, addresses, words."""

from __future__ import annotations

import base64
import hashlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from ai_session.config.settings import OauthSettings
from ai_session.errors import ConfigInvalid, InvalidArguments, RateLimited
from ai_session.gate.rate_limits import RateLimiter
from ai_session.http.oauth import users
from ai_session.http.oauth.authority import PER_MINUTE
from ai_session.http.oauth.claims import Expected
from ai_session.http.oauth.clients import checked_client_name
from ai_session.http.oauth.fetch import acceptable
from ai_session.http.oauth.grants import proves
from ai_session.http.oauth.jwt import metadata_urls
from ai_session.http.oauth.pages import STYLE, STYLE_HASH, page
from ai_session.http.oauth.redirects import RESERVED, Redirects, is_on_this_machine
from ai_session.http.oauth.scopes import SCOPES, USUAL, known
from ai_session.http.oauth.store import Refused
from ai_session.http.oauth.tries import Attempter, attempter_of_cookie, cookie_for, name_in, source_of, trying
from ai_session.http.oauth.users import CODE_SECONDS, NOBODY, TerminalCode
from ai_session.sessions import ownership


def test_scopes_are_those_the_gate_asks_for() -> None:
    assert set(USUAL) == set(ownership.SCOPES.values())
    assert set(SCOPES) == {*USUAL, ownership.ADMIN}
    assert known(["admin", "openid", "sessions:read", "admin"]) == ("sessions:read", "admin")


def test_passwords() -> None:
    stored = users.hashed("correct horse battery", (4, 8, 1))
    assert users.matches("correct horse battery", stored)
    assert not users.matches("correct horse batterz", stored)
    assert stored != users.hashed("correct horse battery", (4, 8, 1)), "each has a salt of its own"
    assert not users.matches("", NOBODY)
    assert not users.matches("x" * 100_000, stored)
    for wrong in ("", "short", "x" * 1025):
        with pytest.raises(InvalidArguments):
            users.hashed(wrong)


@pytest.mark.parametrize("name", ["", "A", "a b", "a/b", "-a", "a" * 65, "a@b", "client:x", "ä", "a\n"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(InvalidArguments):
        users.checked_name(name)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_terminals_code() -> None:
    said: list[str] = []
    clock = Clock()
    code = TerminalCode(said.append, clock)
    assert not code.accepts("")
    code.show()
    code.show()
    assert len(said) == 1, "what stands there is still good"
    word = said[0].split()[2]
    clock.now = CODE_SECONDS
    assert not code.accepts(word)
    code.show()
    word = said[1].split()[2]
    assert not any(code.accepts("AAAAAAAAAA") for _ in range(100)), "which makes nothing void"
    assert code.accepts(word.replace("-", " ").lower())
    assert not code.accepts(word)


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
    assert Redirects(frozenset({"cursor"})).accepts((registered,), uri) is taken


DEFAULT = Redirects.of(OauthSettings().redirect_schemes)


@pytest.mark.parametrize(
    "uri",
    [
        "https://claude.ai/api/mcp/auth_callback",
        "https://claude.com/api/mcp/auth_callback",
        "http://localhost:3118/callback",  # Claude Code
        "http://127.0.0.1:37819/callback/x",  # Codex
        "cursor://anysphere.cursor-mcp/oauth/callback",
        "https://www.cursor.com/agents/mcp/oauth/callback",
        "http://127.0.0.1:33418",  # VS Code
        "http://127.0.0.1:33418/",
        "https://vscode.dev/redirect",
        "https://insiders.vscode.dev/redirect",
        "vscode://saoudrizwan.claude-dev/mcp-auth/callback/x",
        "vscode-insiders://saoudrizwan.claude-dev/mcp-auth/callback/x",
        "windsurf://saoudrizwan.claude-dev/mcp-auth/callback/x",
        "http://127.0.0.1:19876/mcp/oauth/callback",  # OpenCode
        "https://chatgpt.com/connector_platform_oauth_redirect",
        "https://antigravity.google/oauth-callback",
        "warp://mcp/oauth2callback",
        "com.raycast:/oauth",
        "http://localhost:6274/oauth/callback",  # the Inspector
        "http://[::1]:8/cb",
    ],
)
def test_clients_that_there_are_can_register(uri: str) -> None:
    assert DEFAULT.checked([uri]) == (uri,)


@pytest.mark.parametrize(
    "uri",
    [
        *(f"{scheme}:x" for scheme in sorted(RESERVED - {"http", "https"})),
        *("ms-msdt:/id", "ms-settings:display", "ms-appinstaller:?source=https://x", "search-ms:query=x"),
        *("intent://x#Intent;end", "intent://x", "view-source:https://x", "view-source:x", "ssh://x"),
        *("JavaScript:alert(1)", "javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "blob:https://x/1"),
        *("moz-extension://x/y", "chrome-extension://x/y", "x-ms-x:y", "web+x:y"),
        *("notlisted://x", "app:/x", "a.:x", ".a:x", "a..b:x", "com.:x", "cursor", "//x/y", "", "http://192.0.2.1/x"),
        *("http://localhost.evil.example/x", "http://127.0.0.2/x", "https:///x", "https://a@b/x", "https://b/x#y"),
    ],
)
def test_codes_are_sent_nowhere_else(uri: str) -> None:
    assert DEFAULT.problem(uri)
    assert not DEFAULT.accepts([uri], uri)
    with pytest.raises(Refused):
        DEFAULT.checked([uri])


def test_schemes_can_be_listed_but_not_those_of_browsers_and_systems() -> None:
    assert not Redirects.of(["notlisted"]).problem("notlisted://x")
    assert Redirects.of([]).problem("cursor://x")
    for scheme in (*RESERVED, "ms-msdt", "JavaScript", "a b", ""):
        with pytest.raises(ConfigInvalid, match=r"oauth\.redirect_schemes"):
            Redirects.of([scheme])


def test_what_leads_to_this_machine() -> None:
    here = ("http://127.0.0.1:1/x", "http://localhost/x", "cursor://x", "com.raycast:/x")
    assert [is_on_this_machine(uri) for uri in (*here, "https://a.example/x", "https://localhost/x")] == [True] * 4 + [
        False
    ] * 2


def asked_by(host: str, user: int | None = None, **headers: str) -> Attempter:
    """Whom tries of such a request count against."""
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "headers": given, "client": (host, 5), "state": {"peer_user": user}}
    return source_of(Request(scope))


def test_tries_are_counted_by_user_on_this_machine_and_by_address_elsewhere() -> None:
    own, other = os.getuid(), os.getuid() + 1
    assert asked_by("127.0.0.1", own) == Attempter(f"user {own}", is_stranger=False)
    assert asked_by("127.0.0.1", other) == Attempter(f"user {other}", is_stranger=True)
    assert asked_by("192.0.2.1", own, x_forwarded_for="192.0.2.1") == Attempter("192.0.2.1", is_stranger=True)
    assert asked_by("127.0.0.9") == asked_by("::1") == Attempter("loopback", is_stranger=True)
    assert (
        asked_by("2001:db8::1:2:3:4")
        == asked_by("2001:db8::ffff:2:3:4")
        == Attempter("2001:db8::/64", is_stranger=True)
    )
    assert asked_by("unknown").is_stranger


def test_this_user_gets_in_while_all_others_guess() -> None:
    clock = Clock()
    limits = RateLimiter(PER_MINUTE, clock)
    own, other = asked_by("127.0.0.1", os.getuid()), asked_by("127.0.0.1", os.getuid() + 1)
    for number in range(PER_MINUTE["sign_ins_of_all"]):
        with trying(limits, Attempter(f"192.0.2.{number}", is_stranger=True), f"name{number // 30}"):
            pass
    with pytest.raises(RateLimited), trying(limits, other, "alice"):
        raise AssertionError
    for _ in range(100):
        with trying(limits, own, "alice") as one:
            one.right = True
    for _ in range(PER_MINUTE["sign_ins"]):
        with trying(limits, own, "alice"):
            pass
    with pytest.raises(RateLimited), trying(limits, own, "alice"):
        raise AssertionError
    clock.now += 60
    with trying(limits, other, "alice"):
        pass


def test_a_try_that_is_refused_counts_against_nobody() -> None:
    limits = RateLimiter(PER_MINUTE, Clock())
    for number in range(PER_MINUTE["sign_ins_of_name"]):
        with trying(limits, Attempter(f"192.0.2.{number}", is_stranger=True), "alice"):
            pass
    stranger = Attempter("198.51.100.1", is_stranger=True)
    for _ in range(100):
        with pytest.raises(RateLimited), trying(limits, stranger, "alice"):
            raise AssertionError
    with trying(limits, stranger, "bob"):
        pass


@given(st.text(max_size=500))
def test_any_cookie_is_read_and_none_but_the_right_one_believed(cookie: str) -> None:
    assert isinstance(name_in(cookie), str)
    assert attempter_of_cookie(cookie, "scrypt$x", 1000.0) is None
    right = cookie_for("alice", "scrypt$x", 1000.0)
    assert name_in(right) == "alice"
    assert attempter_of_cookie(right, "scrypt$x", 1000.0)
    assert attempter_of_cookie(right, "scrypt$y", 1000.0) is None


@given(st.text(max_size=300))
def test_client_names_are_one_short_line(name: str) -> None:
    shown = checked_client_name(name)
    assert len(shown) <= 80
    assert shown.isprintable()


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_names_of_an_issuer_are_distinguished(one: str, other: str) -> None:
    expected, elsewhere = Expected("https://a.example/x", "", ""), Expected("https://b.example", "", "")
    assert (expected.subject(one) == expected.subject(other)) == (one == other)
    assert expected.subject(one) != elsewhere.subject(other)
    assert not users.NAME.match(expected.subject(one))


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
