"""The console's port, as everything but its own page finds it."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import os
import re
import socket
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from ai_session.audit.files import segments
from ai_session.http.console.logins import MOST_TABS, Logins, browser_of
from ai_session.http.console.server import MAX_MESSAGE_BYTES, OwnProtocol
from scripts import vendor
from tests.ai_session.support.consoles import Console, Tab, console
from tests.ai_session.support.mcp_client import living_in, runtime
from tests.ai_session.support.person_client import Person
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS

OTHER = "http://127.0.0.1:1"
CROSS = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "script"}


def test_other_names_pages_and_proxies_are_refused(here: Console) -> None:
    name = f"127.0.0.1:{here.port}"
    for host in (f"localhost:{here.port}", "127.0.0.1", f"rebound.example:{here.port}", f"{name}.example", ""):
        assert here.request("GET", "/", Host=host)[0] in (421, 400), host
    for origin in (OTHER, "null", f"https://{name}", "http://127.0.0.1", f"{here.origin}.example"):
        assert here.request("POST", "/login", {"code": "x"}, Origin=origin)[0] == 403, origin
        with Tab(here, Origin=origin) as tab:
            assert tab.status == 403, origin
    with Tab(here, Origin="") as tab:
        assert tab.status == 403, "a browser always names the page that opens a WebSocket"
    with Tab(here, Host=f"rebound.example:{here.port}") as tab:
        assert tab.status == 421
    assert here.request("GET", "/app.js", **CROSS)[0] == 403
    assert here.request("GET", "/tabs", Sec_Fetch_Site="same-site", Sec_Fetch_Mode="cors")[0] == 403
    assert (
        here.request("GET", "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="iframe")[0]
        == 403
    )
    assert (
        here.request("GET", "/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document")[0]
        == 200
    )
    assert here.request("GET", "/", X_Forwarded_For="192.0.2.1")[0] == 403


def test_the_page_allows_its_own_files_and_nothing_inline(here: Console) -> None:
    status, body, headers = here.request("GET", "/")
    text, policy = body.decode(), headers["content-security-policy"]
    digest = base64.b64encode(hashlib.sha256(text.split('"importmap">')[1].split("</script>")[0].encode()).digest())
    assert (status, headers["cache-control"], headers["x-frame-options"]) == (200, "no-store", "DENY")
    assert f"script-src 'self' 'sha256-{digest.decode()}';" in policy
    assert not {"unsafe", "http"} & set(re.findall(r"unsafe|http", policy))
    assert policy.startswith("default-src 'none'; ")
    nonces = {re.search(r"'nonce-([\w-]+)'", here.request("GET", "/")[2]["content-security-policy"]) for _ in range(2)}
    assert len({found and found[1] for found in nonces}) == 2
    tag = here.request("GET", "/app.js")[2]["etag"]
    assert here.request("GET", "/app.js", If_None_Match=tag)[:2] == (304, b"")
    for path in (
        "/index.html",
        "/vendor/../index.html",
        "/../app.py",
        "/vendor/LICENSES",
        "/vendor/vendor.sha256",
        "//app.js",
    ):
        assert here.request("GET", path)[0] == 404, path


def test_a_code_signs_in_once_and_a_token_is_needed_for_all_else(here: Console) -> None:
    code = here.code()
    assert here.request("POST", "/login", {"code": "x" * 43})[0] == 401
    assert here.request("POST", "/login", {"code": None})[0] == 401
    assert here.request("POST", "/login", "x" * 9000)[0] == 401
    status, body, _ = here.request(
        "POST", "/login", {"code": code}, User_Agent="Mozilla/5.0 (X11; Linux) Firefox/150.0"
    )
    token = json.loads(body)["token"]
    here.says("has signed in: Firefox on Linux.")
    assert status == 200
    assert here.request("POST", "/login", {"code": code})[0] == 401, "it was used"
    for shown in ("", "Bearer ", f"Bearer {token}x", f"Basic {token}"):
        assert here.request("GET", "/tabs", **({"Authorization": shown} if shown else {}))[0] == 401, shown
    assert here.request("POST", "/sign-out", {"tab": 1})[0] == 401
    rows = json.loads(here.request("GET", "/tabs", Authorization=f"Bearer {token}")[1])["tabs"]
    assert [row["browser"] for row in rows if row["own"]] == ["Firefox on Linux"]
    with Tab(here) as tab:
        tab.say("no token")
        assert (tab.hear(), tab.closed) == (None, 4401)


def test_a_tab_that_is_signed_out_is_cut_off_at_once(here: Console) -> None:
    first, second = here.token(), here.token()
    with Tab(here) as tab:
        tab.say(first)
        assert "ai_session" in (tab.hear() or {})
        rows = json.loads(here.request("GET", "/tabs", Authorization=f"Bearer {first}")[1])["tabs"]
        (own,) = (row for row in rows if row["own"])
        assert own["live"]
        bearer = f"Bearer {second}"
        assert here.request("POST", "/sign-out", {"tab": own["tab"]}, Authorization=bearer)[0] == 200
        assert here.request("POST", "/sign-out", {"tab": own["tab"]}, Authorization=bearer)[0] == 404
        assert (tab.hear(), tab.closed) == (None, 4401)
    assert here.request("GET", "/tabs", Authorization=f"Bearer {first}")[0] == 401


@pytest.mark.parametrize(
    "message",
    [
        '{"id": 1, "method": "stop", "params": {}}',
        '{"id": 1, "method": "share", "params": {"session": "s", "names": ["everyone"]}}',
        '{"id": 1, "method": "attach", "params": {"session": "s"}}',
        '{"id": 1, "method": "policy", "params": {"mode": "trusted"}}',
        '{"id": 1, "method": "call", "params": {"name": "execute_command", "arguments": {}}}',
        '{"id": 1, "method": "call", "params": {"name": "list_sessions", "arguments": {}, "profile": "trusted"}}',
        '{"id": 1, "method": ["stop"]}',
        "[]",
        "{",
        "[" * 100_000,
    ],
)
def test_a_tab_reaches_only_what_the_page_needs(here: Console, message: str) -> None:
    with Tab(here) as tab:
        tab.say(here.token())
        assert "ai_session" in (tab.hear() or {})
        tab.say(message)
        assert (tab.hear(), tab.closed) == (None, 1008)


def frame(payload: bytes, *, first: int = 0x81, masked: bool = True, length: int | None = None) -> bytes:
    """One of the WebSocket protocol; ``length`` is what it claims."""
    size = len(payload) if length is None else length
    key = b"\1\2\3\4" if masked else b""
    body = bytes(byte ^ key[at % 4] for at, byte in enumerate(payload)) if masked else payload
    return struct.pack("!BBQ", first, 127 | (128 if masked else 0), size) + key + body


def test_frames_that_no_page_sends_end_their_connection_alone(here: Console) -> None:
    """Compressed ones, endless ones, broken ones; nothing is unpacked, and no more is kept than a message may have."""
    bomb = zlib.compress(bytes(1 << 24), wbits=-15)
    sent = {
        "compressed, although that was not agreed to": frame(bomb, first=0xC1),
        "longer than a message may be": frame(bytes(MAX_MESSAGE_BYTES + 1), first=0x82, length=1 << 40),
        "longer in pieces": frame(b"x" * MAX_MESSAGE_BYTES, first=0x01) + frame(b"x", first=0x80),
        "no text": frame(b"\xff\xfe"),
        "not masked": frame(b"{}", masked=False),
    }
    with Tab(here) as quiet:
        quiet.say(here.token())
        assert "ai_session" in (quiet.hear() or {})
        for what, data in sent.items():
            with Tab(here, Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits") as tab:
                tab.say(here.token())
                assert "ai_session" in (tab.hear() or {}), "and without compression"
                tab.raw(data)
                assert tab.hear() is None, what
        assert "result" in quiet.ask("policy"), "others notice nothing"


def test_texts_come_with_nothing_hidden_in_them(daemon_home: Path, here: Console) -> None:
    with Person(daemon_home) as agent, Tab(here) as tab:
        agent.call("create_session", name="plain", shell="bash", backend="pty")
        hidden = "printf 'a\\tb\\n' # \u202egnp.exe\u200b\x1b[8m"
        agent.call("execute_command", session_id="plain", command=hidden)
        tab.say(here.token())
        tab.hear()
        asked = {"name": "query_commands", "arguments": {"session_id": "plain"}}
        (row,) = tab.ask("call", **asked)["result"]["structured"]["commands"]
        assert row["command"].endswith(r"# \u202egnp.exe\u200b\x1b[8m")
        asked = {"name": "read_output", "arguments": {"session_id": "plain"}}
        assert tab.ask("call", **asked)["result"]["structured"]["output"] == "a       b\n"
        agent.call("close_session", session_id="plain")


def test_a_read_only_console_shows_and_replays_but_types_and_answers_nothing(daemon_home: Path) -> None:
    with console(daemon_home, "--read-only") as only, Person(daemon_home) as agent, Tab(only) as tab:
        agent.call("create_session", name="quiet", shell="bash", backend="pty")
        tab.say(only.token())
        tab.hear()
        assert tab.ask("stream", session="quiet")["result"]["name"] == "quiet"
        for method, params in (("take_over", {"session": "quiet", "who": "me"}), ("approve", {"question_id": "x"})):
            assert tab.ask(method, **params)["error"]["code"] == "insufficient_scope"

        def replayed(method: str, **params: object) -> str:
            return tab.ask(f"replay.{method}", **params).get("error", {}).get("code", "done")

        assert [replayed("screen", at=0), replayed("open", session="nowhere")] == ["no_recording", "session_not_found"]
        assert replayed("open", session="quiet") == "done"
        assert not list(daemon_home.rglob("*.cast")), "a recording is nobody else's to read"
        good = [replayed("screen", at=1e9), replayed("piece", number=0), replayed("places", clocks=[0, 1e9])]
        assert good == ["done", "done", "done"]
        strange = (("screen", {"at": "1"}), ("screen", {"at": 10**400}), ("screen", {"command": "cmd_x"}))
        beyond = (("piece", {"number": -1}), ("piece", {"number": 9}), ("piece", {}), ("places", {"clocks": [True]}))
        for method, params in (*strange, *beyond, ("places", {"clocks": [0] * 3000}), ("open", {"session": 3})):
            assert replayed(method, **params) == "invalid_arguments", (method, params)
        agent.call("close_session", session_id="quiet")


def test_the_whole_audit_log_is_judged_by_a_program_of_its_own(daemon_home: Path) -> None:
    with console(daemon_home, "--read-only") as here, Tab(here) as tab:
        tab.say(here.token())
        assert "result" in tab.ask("policy"), "which a person's record is kept of"
        first = tab.ask("audit.verify")["result"]
        assert first["sound"]
        assert first["records"] >= 4
        segment = segments(runtime(daemon_home) / "audit")[0]
        with segment.open("r+b", buffering=0) as log:
            position = segment.read_bytes().index(b'"person"')
            os.pwrite(log.fileno(), b'"nobody"', position)
            second = tab.ask("audit.verify")["result"]
            os.pwrite(log.fileno(), b'"person"', position)
        assert not second["sound"]
        assert second["problems"][0]["what"]


def test_a_console_proves_that_it_is_the_one_that_signed_a_tab_in(here: Console) -> None:
    _, body, _ = here.request("POST", "/login", {"code": here.code()})
    signed_in = json.loads(body)
    with Tab(here) as tab:
        tab.say("who goes there?")
        proof = hmac.new(signed_in["proof_key"].encode(), b"goes there?", "sha256").hexdigest()
        assert tab.text() == proof
        tab.say(signed_in["token"])
        assert "ai_session" in (tab.hear() or {})


def test_whoever_asks_slowly_is_cut_off() -> None:
    class Impatient(OwnProtocol):
        seconds = 0.05

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] == "http.request":
            pass

    def cut_off(sent: bytes) -> bytes:
        with socket.create_connection(listener.getsockname(), timeout=BOUND_SECONDS) as link:
            link.sendall(sent)
            with contextlib.suppress(ConnectionError):
                return link.recv(1 << 10)
            return b""

    async def all_of_them() -> list[bytes]:
        config = uvicorn.Config(answer, http=Impatient, lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        slow = (b"", b"GET / HTT", b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        found = await asyncio.gather(*(asyncio.to_thread(cut_off, sent) for sent in slow))
        server.should_exit = True
        await serving
        return found

    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert asyncio.run(all_of_them()) == [b"", b"", b""]


def test_a_port_that_is_taken_is_named(daemon_home: Path, here: Console) -> None:
    words = ["console", "--no-open", "--port", str(here.port)]
    code, _, errors = forked.run("ai_session", words, cwd=daemon_home, env=living_in(daemon_home))
    assert code != 0
    assert f"port {here.port}" in errors.decode()
    assert "--port" in errors.decode()


def test_files_of_others_are_those_that_were_pinned_and_come_with_their_licences() -> None:
    digests = vendor.DIGESTS.read_text()
    names = [line.split()[1] for line in digests.splitlines()]
    assert vendor.digest_lines({name: (vendor.VENDOR / name).read_bytes() for name in names}) == digests
    assert {path.name for path in vendor.VENDOR.iterdir()} == {*names, vendor.DIGESTS.name, vendor.LICENSES.name}
    assert sorted(name for package in vendor.PACKAGES for name in package.files) == sorted(names)
    licences = vendor.LICENSES.read_text()
    assert all(f"{package.name} {package.version}\n" in licences for package in vendor.PACKAGES)


def test_a_box_does_not_reach_the_port(daemon_home: Path, here: Console) -> None:
    workspace = daemon_home / "project"
    workspace.mkdir()
    reach = f"(exec 3<>/dev/tcp/127.0.0.1/{here.port}) 2>/dev/null"
    with Person(daemon_home) as agent:
        for name, profile, reached in (("outside", "", 0), ("boxed", "workspace", 1)):
            given = {"name": name, "shell": "bash", "backend": "pty", "working_directory": str(workspace)}
            chosen = {"profile": profile} if profile else {}
            made = agent.done("call", name="create_session", arguments=given, **chosen)
            assert not made["is_error"], made
            ran = agent.call("execute_command", session_id=name, command=reach)["structured"]
            assert ran["exit_code"] == reached, (name, ran)
            agent.call("close_session", session_id=name)


def test_a_code_is_good_for_its_time_and_the_oldest_tab_goes_for_a_new_one() -> None:
    now = 100.0
    logins = Logins(60, lambda: now)
    late, early = logins.code(), logins.code()
    now += 59.9
    token = logins.sign_in(early, "")
    assert logins.tab(token)
    now += 0.1
    assert logins.sign_in(late, "") == ""
    ended: list[int] = []
    logins.tabs()[0].ends.add(lambda: ended.append(1))
    others = [logins.sign_in(logins.code(), "") for _ in range(MOST_TABS)]
    assert (ended, logins.tab(token), len(logins.tabs())) == ([1], None, MOST_TABS)
    assert all(logins.tab(other) for other in others)
    assert [browser_of(agent) for agent in ("curl/8", "Mozilla/5.0 (Macintosh) Safari/1", "")] == [
        "curl/8",
        "Safari on macOS",
        "a program",
    ]
