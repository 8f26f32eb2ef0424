"""Who may use what ai-session listens at: this user's programs, whoever has a token, and no page and nobody else."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentwire.http.access_token import FILE
from tests.ai_session.support.command_line import CommandLine
from tests.ai_session.support.mcp_client import BOUND_SECONDS, runtime, stop_daemons
from tests.ai_session.support.rpc_servers import RpcHome, new_rpc_home
from tests.support import forked
from tests.support.browser_bytes import Target, by_pages, by_smugglers
from tests.support.products import first
from tests.support.strangers import IS_ROOT, USERS, as_user, exchange, exchange_as

WRITE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "filesystem.writeFile",
    "params": {"path": "made", "content": "by a page"},
}
LISTED = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
GREETING = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "page", "version": "1"}},
}
REGISTRATION = {"redirect_uris": ["http://127.0.0.1:1/callback"]}
FORM = b"grant_type=client_credentials&client_id=x&client_secret=y"
NAMES = [*by_pages(Target(1, "/", b"{}")), *by_smugglers(Target(1, "/", b"{}"))]
TELLING = ("ses_", "Traceback", "daemon", "/tmp/", "root")
"""Of what goes on, and of this machine."""

Talk = Callable[..., bytes]


@dataclass
class Served:
    """A server that runs as a process of its own."""

    port: int
    talk: Talk

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port


@contextmanager
def serving(rpc_home: RpcHome, *words: str, script: str = "", talk: Talk = exchange, port: int = 0) -> Iterator[Served]:
    env, line = {**CommandLine(rpc_home.home).env, "HOME": str(rpc_home.home)}, [*words, "--port", str(port)]
    process = forked.piped("ai_session", line, cwd=rpc_home.workspace, env=env, script=script)
    try:
        assert process.stdout
        first = process.stdout.readline().decode()
        found = re.search(r":(\d+)/", first)
        assert found or port, first
        yield Served(int(found[1]) if found else port, talk)
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_SECONDS) == 0
    finally:
        process.close()


UNKNOWING = str(Path(__file__).parents[3] / "data/start_unknowing.py")
"""What begins a server on a system that does not tell whose connections are."""
RPC, FRONT = ("serve", "--rpc"), ("mcp-server", "--http")


@pytest.fixture(scope="module")
def rpc_home(homes: Path) -> Iterator[RpcHome]:
    rpc_home = new_rpc_home(homes)
    yield rpc_home
    stop_daemons(rpc_home.home)


@pytest.fixture(scope="module")
def rpc(rpc_home: RpcHome) -> Iterator[Served]:
    with serving(rpc_home, *RPC) as served:
        yield served


@pytest.fixture(scope="module")
def front(rpc_home: RpcHome) -> Iterator[Served]:
    with serving(rpc_home, *FRONT) as served:
        yield served


def statuses(found: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1.1 (\d+) ", found)]


@pytest.mark.parametrize("name", NAMES)
def test_no_page_has_a_tool_called(rpc_home: RpcHome, rpc: Served, name: str) -> None:
    target = Target(rpc.port, "/rpc", json.dumps(WRITE).encode())
    found = exchange(rpc.address, (by_pages(target) | by_smugglers(target))[name], over=False)
    assert len(statuses(found)) == 1, found
    assert statuses(found)[0] in (400, 403, 405, 415, 421), found
    assert not (rpc_home.workspace / "made").exists()


def test_a_program_has(rpc_home: RpcHome, rpc: Served) -> None:
    """What the test above must not see is what happens where nobody forges anything."""
    target = Target(rpc.port, "/rpc", json.dumps({**WRITE, "params": {"path": "own", "content": "x"}}).encode())
    assert statuses(exchange(rpc.address, target.allowed(), over=False)) == [200]
    assert (rpc_home.workspace / "own").read_text() == "x"


@pytest.mark.parametrize("path", first(("/mcp", "/register"), "/mcp"))
@pytest.mark.parametrize("name", NAMES)
def test_no_page_reaches_the_front(front: Served, name: str, path: str) -> None:
    target = Target(front.port, path, json.dumps({"/mcp": GREETING, "/register": REGISTRATION}[path]).encode())
    found = exchange(front.address, (by_pages(target) | by_smugglers(target))[name], over=False)
    assert len(statuses(found)) == 1, found
    assert statuses(found)[0] in (400, 403, 405, 415, 421), found


def test_pages_of_others_read_nothing_that_signing_in_needs(front: Served) -> None:
    for path in ("/.well-known/oauth-authorization-server", "/.well-known/oauth-protected-resource/mcp", "/health"):
        target = Target(front.port, path, b"")
        assert statuses(exchange(front.address, target.head("GET", Content_Length=None), over=False)) == [403]
    form = Target(front.port, "/token", FORM)
    kind = {"Content_Type": "application/x-www-form-urlencoded"}
    assert statuses(exchange(front.address, form.head(**kind) + FORM, over=False)) == [403]
    assert statuses(exchange(front.address, form.allowed(**kind), over=False)) == [401]
    assert statuses(exchange(front.address, form.allowed(), over=False)) == [415]


def test_another_site_may_send_a_persons_browser_to_sign_in(front: Served) -> None:
    target = Target(front.port, "/authorize?client_id=nobody", b"")
    visit = {"Origin": None, "Content_Length": None, "Content_Type": None, "Connection": "close"}
    modes = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    found = exchange(front.address, target.head("GET", **visit, **modes), over=False)
    assert (statuses(found), b"is not known here" in found) == ([400], True)
    assert statuses(exchange(front.address, target.head("GET", **visit), over=False)) == [403]


STRANGERS = (*(USERS if IS_ROOT else ()), "unidentified")


@pytest.fixture(params=[pytest.param(one, marks=pytest.mark.torture if one in USERS[1:] else ()) for one in STRANGERS])
def stranger(request: pytest.FixtureRequest) -> Any:
    """Another user, which only root can become; or any user, on a system that does not report who connects."""
    return request.param


@contextmanager
def shared(rpc_home: RpcHome, stranger: Any, *words: str) -> Iterator[Served]:
    """Yield a server, and how another user talks to it."""
    if isinstance(stranger, int):

        def talk(address: tuple[str, int], data: bytes, *, over: bool = True) -> bytes:
            return exchange_as(stranger, "ai_session", address, data, over=over)

        with serving(rpc_home, *words, talk=talk) as served:
            yield served
    else:
        with serving(rpc_home, *words, script=UNKNOWING) as served:
            yield served


def said(served: Served, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
    """Return the status and body that the stranger receives."""
    target = Target(served.port, path, body or b"")
    bare = dict.fromkeys(("Origin", "Sec_Fetch_Site", "Sec_Fetch_Mode", "Sec_Fetch_Dest", "Referer"))
    length = {"Content_Length": None, "Content_Type": None} if body is None else {"Content_Type": "application/json"}
    given: dict[str, Any] = {**bare, **length, "Connection": "close", **headers}
    found = served.talk(served.address, target.head(method, **given) + (body or b""), over=False)
    head, _, rest = found.partition(b"\r\n\r\n")
    assert not [word for word in TELLING if word.encode() in rest], rest
    return int(head.split()[1]), rest


def test_nobody_else_has_a_tool_called_or_listed(rpc_home: RpcHome, stranger: Any) -> None:
    with shared(rpc_home, stranger, *RPC) as served:
        for body in (WRITE, LISTED, [LISTED]):
            for shown in ({}, {"Authorization": "Bearer guess"}, {"X_Api_Key": "guess"}):
                status, rest = said(served, "POST", "/rpc", json.dumps(body).encode(), **shown)
                assert status == 401
                assert "ai-session token" in json.loads(rest)["error"]["message"]
        assert not (rpc_home.workspace / "made").exists()
        assert said(served, "GET", "/health") == (200, b'{"status":"ok"}')
        for method, path in (("GET", "/"), ("GET", "/mcp"), ("GET", "/docs"), ("POST", "/sse")):
            assert said(served, method, path)[0] == 404
        token = (runtime(rpc_home.home) / FILE).read_text().strip()
        for shown in ({"Authorization": f"Bearer {token}"}, {"X_Api_Key": token}):
            status, rest = said(served, "POST", "/rpc", json.dumps(LISTED).encode(), **shown)
            assert (status, b"filesystem.readFile" in rest) == (200, True)
        reported = CommandLine(rpc_home.home).json("token", "--renew")
        assert said(served, "POST", "/rpc", json.dumps(LISTED).encode(), X_Api_Key=token)[0] == 401
        found = served.talk(
            served.address, Target(served.port, "/rpc", b"[]").allowed(X_Api_Key=reported["token"]), over=False
        )
        assert statuses(found) == [400]


@pytest.mark.either("stranger")
def test_nobody_else_gets_more_of_the_front_than_how_to_sign_in(rpc_home: RpcHome, stranger: Any) -> None:
    with shared(rpc_home, stranger, *FRONT) as served:
        for shown in ({}, {"Authorization": "Bearer guess"}):
            for method, body in (("POST", json.dumps(GREETING).encode()), ("GET", None), ("DELETE", None)):
                assert said(served, method, "/mcp", body, **shown)[0] == 401
        public = {
            "/health": {"status"},
            "/.well-known/oauth-protected-resource/mcp": {"resource", "authorization_servers", "scopes_supported"},
        }
        for path, names in public.items():
            status, rest = said(served, "GET", path)
            assert (status, names <= set(json.loads(rest))) == (200, True)
        CommandLine(rpc_home.home).run("token")
        token = (runtime(rpc_home.home) / FILE).read_text().strip()
        assert said(served, "POST", "/mcp", json.dumps(GREETING).encode(), Authorization=f"Bearer {token}")[0] == 401


def test_at_the_front_this_users_programs_sign_in_too(front: Served) -> None:
    assert said(front, "POST", "/mcp", json.dumps(GREETING).encode())[0] == 401


def test_what_a_proxy_sends_on_is_nobodys(rpc_home: RpcHome, rpc: Served) -> None:
    assert said(rpc, "POST", "/rpc", json.dumps(LISTED).encode())[0] == 200
    for header in ("X_Forwarded_For", "Forwarded", "Via", "X_Real_IP"):
        assert said(rpc, "POST", "/rpc", json.dumps(LISTED).encode(), **{header: "192.0.2.1"})[0] == 401
    file = rpc_home.home / ".config/ai-session/config.toml"
    before = file.read_text()
    for setting in ('public_url = "https://mcp.example.org"', 'trusted_proxies = ["127.0.0.1"]'):
        file.write_text(f"{before}\n[http]\n{setting}\n")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with serving(rpc_home, *RPC, port=port) as served:
            assert said(served, "POST", "/rpc", json.dumps(LISTED).encode())[0] == 401
    file.write_text(before)


def test_a_program_that_shows_a_token_that_does_not_hold_is_refused(rpc: Served) -> None:
    """It says whom it wants to be taken for."""
    assert said(rpc, "POST", "/rpc", json.dumps(LISTED).encode(), Authorization="Bearer of yesterday")[0] == 401


def test_code_in_a_box_does_not_reach_the_server_that_runs_it(rpc: Served) -> None:
    code = f"""
import socket
try:
    socket.create_connection(("127.0.0.1", {rpc.port}), 5)
except OSError as error:
    print("no", error)
"""
    body = {"jsonrpc": "2.0", "id": 1, "method": "code.runPython", "params": {"code": code}}
    status, rest = said(rpc, "POST", "/rpc", json.dumps(body).encode())
    assert (status, json.loads(rest)["result"]["content"][0]["stdout"][:3]) == (200, "no ")


def test_with_no_auth_everybody_of_this_machine_is_this_user(rpc_home: RpcHome) -> None:
    for user in USERS[:1] if IS_ROOT else ():
        with shared(rpc_home, user, *RPC, "--no-auth") as served:
            assert said(served, "POST", "/rpc", json.dumps(LISTED).encode())[0] == 200


if IS_ROOT:  # nobody else can be somebody else

    @pytest.mark.either("user")
    @pytest.mark.parametrize("user", USERS)
    def test_nobody_else_reads_the_token_or_reaches_a_socket(homes: Path, user: int) -> None:
        rpc_home = new_rpc_home(homes)
        line = CommandLine(rpc_home.home)
        open_to_all = [homes, rpc_home.home, rpc_home.home / ".local", rpc_home.home / ".local/state"]
        modes = [path.stat().st_mode for path in open_to_all if path.exists()]
        with line:
            line.run("token")
            line.run("new", "kept", "--backend", "pty")
            for path in open_to_all:
                path.chmod(0o755)
            directory = runtime(rpc_home.home)
            assert ((directory / FILE).stat().st_mode & 0o777, directory.stat().st_mode & 0o777) == (0o600, 0o700)
            assert as_user(user, (directory / FILE).read_bytes).startswith(b"PermissionError")
            sockets = [path for path in directory.rglob("*") if path.is_socket()]
            assert {"sock", "holder.sock"} <= {path.name for path in sockets}
            for path in sockets:
                assert as_user(user, partial(greeted, path)).startswith(b"PermissionError"), path
            line.end_sessions()
        homes.chmod(modes[0])


def greeted(path: Path) -> bytes:
    with socket.socket(socket.AF_UNIX) as there:
        there.connect(str(path))
        there.sendall(b'{"ai_session":1,"role":"control"}\n')
        return there.recv(1 << 12)


def test_the_token_is_shown_at_a_terminal_when_it_is_made_and_not_again(homes: Path) -> None:
    rpc_home = new_rpc_home(homes)
    line = CommandLine(rpc_home.home)
    with line:
        for first in (True, False):
            person = line.spawn("serve", "--rpc", "--port", "0", "-w", str(rpc_home.workspace))
            person.expect(b"Ctrl-C ends it")
            token = (runtime(rpc_home.home) / FILE).read_bytes().strip()
            assert (token in (person.before or b"")) is first
            person.send(b"\x03")
            assert person.wait() == 0
            person.close()
