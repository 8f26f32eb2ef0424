"""Who may use what ``ccswarm serve`` listens at: this user's programs, whoever has the token, and no page and nobody
else."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agentwire.http.access_token import FILE
from ccswarm.servers.base import ways_to_show
from ccswarm.servers.visionflow.plugin import UNKNOWN_ADVICE
from tests.ccswarm.support import a2a_standard_server, visionflow_server
from tests.ccswarm.support.runs import RunVerbs
from tests.ccswarm.support.serve_process import BOUND_SECONDS, Serving
from tests.ccswarm.support.verbs import ROOT
from tests.conftest import client_environment, environment
from tests.support.browser_bytes import Target, by_pages, by_smugglers
from tests.support.forked import Forked, piped
from tests.support.strangers import IS_ROOT, USERS, acting_as, as_user, exchange, exchange_as

INIT = {"jsonrpc": "2.0", "id": "1", "method": "swarm_init", "params": {"topology": "mesh"}}
PING = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
SENT = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "SendMessage",
    "params": {
        "message": a2a_standard_server.text_message("work for a page"),
        "configuration": {"returnImmediately": True},
    },
}
CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tasks/send",
    "params": {
        "message": {
            "role": "user",
            "parts": [
                {
                    "type": "data",
                    "content": {"target_mcp_server_id": "small", "tool_name": "echo", "arguments": {"text": "x"}},
                }
            ],
        }
    },
}
TEXT = a2a_standard_server.TEXT + '[a2a]\nagent = "bob"\n'
SECRETS = ("ada", "bob", "researcher", "analysis", "0.", "small", "swarm-", "run_")
"""Of the configuration, and of what went on."""


def first_line(token: str) -> str:
    """What a client of VisionFlow sends first."""
    return ways_to_show(token)["visionflow"]


def lines(*messages: Any) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def swarms(verbs: RunVerbs) -> int:
    """How many were made."""
    return len(list((verbs.state / "visionflow").glob("swarm-*")))


def tasks(server: Serving) -> int:
    with a2a_standard_server.Wire(server.port) as wire:
        return wire.ask("ListTasks")["totalSize"]


@pytest.fixture(scope="module")
def verbs(shared_home: Path) -> RunVerbs:
    return RunVerbs(shared_home, TEXT)


@pytest.fixture(scope="module")
def tcp(verbs: RunVerbs) -> Iterator[Serving]:
    with visionflow_server.served(verbs) as server:
        yield server


@pytest.fixture(scope="module")
def a2a(verbs: RunVerbs) -> Iterator[Serving]:
    with a2a_standard_server.served(verbs) as server:
        yield server


LINES, HTTP = (Target(port, "/", json.dumps(message).encode()) for port, message in ((9500, INIT), (41241, SENT)))
"""For the names of what is tried."""


@pytest.mark.parametrize("name", [*by_pages(LINES), *by_smugglers(LINES)])
def test_no_page_has_a_swarm_made(verbs: RunVerbs, tcp: Serving, name: str) -> None:
    target = Target(tcp.port, "/", lines(INIT))
    found = exchange(("127.0.0.1", tcp.port), (by_pages(target) | by_smugglers(target))[name])
    assert swarms(verbs) == 0
    answers = [json.loads(line) for line in found.splitlines()]
    assert all(answer["error"]["code"] == -32700 for answer in answers), answers
    if name not in ("http/0.9", "turn over tcp", "pipelined after a bad head"):
        assert found == b""


def test_the_lines_themselves_do(home: Path) -> None:
    """What the test above must not see is what happens where nobody forges anything."""
    verbs = RunVerbs(home, TEXT)
    with visionflow_server.served(verbs) as server:
        found = exchange(("127.0.0.1", server.port), lines(INIT))
        assert json.loads(found)["result"]["topology"] == "mesh"
        assert swarms(verbs) == 1


@pytest.mark.parametrize("first", [b"hello\n", b"\n\n{nonsense}\n", b"\x80\x01\x02\n", b"[]\n", b'{"id":1}\n', b"5\n"])
def test_until_the_first_message_whatever_is_none_ends_the_connection(tcp: Serving, first: bytes) -> None:
    found = exchange(("127.0.0.1", tcp.port), first + lines(PING))
    answers = [json.loads(line) for line in found.splitlines()]
    assert [answer["error"]["code"] in (-32700, -32600) for answer in answers] == [True]
    found = exchange(("127.0.0.1", tcp.port), b"\r\n \n" + lines(PING) + first + lines(PING))
    assert [json.loads(line)["id"] for line in (found.splitlines()[0], found.splitlines()[-1])] == [2, 2]


def test_a_line_that_is_too_long_is_no_first_message(tcp: Serving) -> None:
    found = exchange(("127.0.0.1", tcp.port), b'{"id":7,"x":"' + b"x" * (2 << 20) + b'"}\n' + lines(PING))
    assert [json.loads(line)["error"]["code"] for line in found.splitlines()] in ([-32600], [])


@pytest.mark.parametrize("path", ["/", "/a2a", "/message:send"])
@pytest.mark.parametrize("name", [*by_pages(HTTP), *by_smugglers(HTTP)])
@pytest.mark.corners
def test_no_page_has_a_task_begun(a2a: Serving, name: str, path: str) -> None:
    body = {"/": SENT, "/a2a": CALL, "/message:send": SENT["params"]}[path]
    target = Target(a2a.port, path, json.dumps(body).encode())
    found = exchange(("127.0.0.1", a2a.port), (by_pages(target) | by_smugglers(target))[name], over=False)
    statuses = [int(status) for status in re.findall(rb"HTTP/1.1 (\d+) ", found)]
    assert len(statuses) == 1, found
    assert statuses[0] in (400, 403, 405, 415, 421), found
    assert b'"result"' not in found
    assert not [secret for secret in SECRETS if secret.encode() in found.partition(b"\r\n\r\n")[2]]


def test_nothing_of_that_was_begun(verbs: RunVerbs, a2a: Serving) -> None:
    assert tasks(a2a) == 0
    assert verbs.json("runs", "list") == []


def test_a_program_is_answered_where_a_page_is_not(a2a: Serving) -> None:
    for path, body in (("/", SENT), ("/a2a", CALL)):
        target = Target(a2a.port, path, json.dumps(body).encode())
        assert b'"result"' in exchange(("127.0.0.1", a2a.port), target.allowed(), over=False)
    assert tasks(a2a) == 1


def test_gets_of_pages_have_no_effect(a2a: Serving) -> None:
    for path in ("/", "/a2a", "/message:send", "/tasks/x:cancel", "/tasks/x:subscribe", "/extendedAgentCard"):
        target = Target(a2a.port, path, b"")
        found = exchange(("127.0.0.1", a2a.port), target.head("GET", Content_Length=None), over=False)
        assert found.startswith(b"HTTP/1.1 403 "), (path, found)


@dataclass
class Shared:
    """Yield a server, and how another user talks to it."""

    port: int
    directory: Path
    talk: Any


BLIND = """
from ccswarm.__main__ import main
from tests.support.strangers import ask_of_no_sockets

ask_of_no_sockets()
main()
"""


@contextmanager
def blind(verbs: RunVerbs, flag: str) -> Iterator[int]:
    """A server that cannot find out who connects."""
    words, script = ["serve", flag, "--port", "0", "--workspace", str(verbs.home)], verbs.home / "blind.py"
    script.write_text(BLIND)
    env = {**client_environment(verbs.home), "PYTHONPATH": str(ROOT)}
    with closing(piped("ccswarm", words, cwd=verbs.home, env=env, script=str(script))) as process:
        assert process.stderr
        while not (found := re.search(rb" is served at \S+ port (\d+)", process.stderr.readline())):
            assert process.poll() is None
        yield int(found[1])
        process.terminate()
        process.communicate(timeout=BOUND_SECONDS)


def direct(address: tuple[str, int], data: bytes, over: bool = True) -> bytes:
    return exchange(address, data, over=over)


def of(user: int) -> Any:
    return lambda address, data, over=True: exchange_as(user, "ccswarm", address, data, over=over)


STRANGERS = (*(USERS if IS_ROOT else ()), "unidentified")


@pytest.fixture(params=[pytest.param(one, marks=pytest.mark.torture if one in USERS[1:] else ()) for one in STRANGERS])
def stranger(request: pytest.FixtureRequest) -> Any:
    """Another user, which only root can become; or any user, on a system that does not report who connects."""
    return request.param


@contextmanager
def shared(home: Path, stranger: Any, kind: Any) -> Iterator[Shared]:
    verbs = RunVerbs(home, TEXT)
    if isinstance(stranger, int):
        with kind.served(verbs) as server:
            yield Shared(server.port, verbs.state, of(stranger))
    else:
        with blind(verbs, kind.Served.flag) as port:
            yield Shared(port, verbs.state, direct)


@pytest.mark.either("stranger")
def test_strangers_get_only_refusals(home: Path, stranger: Any) -> None:
    with shared(home, stranger, visionflow_server) as there:
        address = ("127.0.0.1", there.port)
        asked = [
            {**INIT, "method": method, "params": {"topology": "mesh", "name": "server_info", "token": "guess"}}
            for method in (
                "swarm_init",
                "tools/list",
                "tools/call",
                "ping",
                "server_info",
                "agents/list",
                "metrics.get",
            )
        ]
        found = there.talk(address, lines({**INIT, "method": "initialize", "params": {}}, *asked))
        greeting, *answers = [json.loads(line) for line in found.splitlines()]
        assert greeting["result"]["serverInfo"] == {"name": "ccswarm", "version": ""}
        required = {"code": -32000, "message": "Authentication required", "data": {"message": UNKNOWN_ADVICE}}
        assert [answer["error"] for answer in answers] == [required] * len(asked)
        guesses = [json.loads(first_line(guess)) for guess in ("", "x", "ccswarm_", "\x00", "ccswarm_" + "A" * 43) * 9]
        found = there.talk(address, lines(*guesses))
        answers = [json.loads(line) for line in found.splitlines()]
        assert [one["error"] for one in answers] == [{"code": -32000, "message": "Authentication failed"}] * 5
        assert not (there.directory / "visionflow").exists() or not list((there.directory / "visionflow").iterdir())
        token = (there.directory / FILE).read_text().strip()
        found = there.talk(address, first_line(token).encode() + b"\n" + lines(INIT))
        assert [json.loads(line)["id"] for line in found.splitlines() if b'"result"' in line] == [0, "1"]


def asked(port: int, method: str, path: str, body: Any = None, **headers: str) -> bytes:
    target = Target(port, path, b"" if body is None else json.dumps(body).encode())
    length = {"Content_Length": None, "Content_Type": None} if body is None else {}
    bare = dict.fromkeys(("Origin", "Sec_Fetch_Site", "Sec_Fetch_Mode", "Sec_Fetch_Dest", "Referer"))
    given: dict[str, Any] = {"Content_Type": "application/json", "Connection": "close", **bare, **length, **headers}
    return target.head(method, **given) + target.body


def status_and_body(found: bytes) -> tuple[int, Any]:
    head, _, body = found.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_nobody_else_gets_a_request_answered_but_the_public_card(home: Path, stranger: Any) -> None:
    with shared(home, stranger, a2a_standard_server) as there:
        address = ("127.0.0.1", there.port)

        def answer(*request: Any, **headers: str) -> tuple[int, Any]:
            return status_and_body(there.talk(address, asked(there.port, *request, **headers), False))

        for method, path, body in (
            ("POST", "/", SENT),
            ("POST", "/", {**SENT, "method": "GetExtendedAgentCard", "params": {}}),
            ("POST", "/a2a", CALL),
            ("POST", "/a2a/", CALL),
            ("POST", "/message:send", SENT["params"]),
            ("GET", "/tasks", None),
            ("GET", "/extendedAgentCard", None),
            ("GET", "/nowhere", None),
        ):
            guesses: tuple[dict[str, str], ...] = ({"Authorization": "Bearer guess"}, {"X_Api_Key": "guess"})
            for shown in ({}, *(guesses if path == "/" else ())):
                status, said = answer(method, path, body, **shown)
                assert (status, said["error"]["message"]) == (401, "Authentication required"), (path, said)
                assert "ccswarm token" in said["error"]["data"]["message"]
        for path in ("/.well-known/agent-card.json", "/.well-known/agent.json", "/agent-card.json"):
            status, card = answer("GET", path)
            assert status == 200
            assert not [
                secret
                for secret in ("ada", "bob", "researcher", "analysis")
                if f'"{secret}"' in json.dumps(card) or f"{secret} (" in json.dumps(card)
            ]
            assert card.get("version", card.get("agentVersion")) == "unknown"
            assert "none" not in [scheme["scheme"] for scheme in card.get("authSchemes", ())]
        token = (there.directory / FILE).read_text().strip()
        for shown in ({"Authorization": f"Bearer {token}"}, {"X_Api_Key": token}):
            assert answer("POST", "/", SENT, **shown)[1]["result"]["task"]["id"]
            assert "ada" in json.dumps(answer("GET", "/.well-known/agent-card.json", **shown)[1])
            assert "ada" in json.dumps(answer("GET", "/extendedAgentCard", **shown)[1])


def test_a_program_of_this_user_behind_a_proxy_is_nobody(a2a: Serving) -> None:
    for header in ("X-Forwarded-For", "Forwarded", "Via", "CF-Connecting-IP"):
        found = exchange(
            ("127.0.0.1", a2a.port), asked(a2a.port, "GET", "/tasks", **{header: "for=192.0.2.1"}), over=False
        )
        assert status_and_body(found)[0] == 401


def test_what_the_token_begins_is_this_users(verbs: RunVerbs, a2a: Serving) -> None:
    token = (verbs.state / FILE).read_text().strip()
    key = {"X-Forwarded-For": "192.0.2.1", "X-Api-Key": token}
    with a2a_standard_server.Wire(a2a.port) as own, httpx2.Client(base_url=own.url, headers=key) as other:
        task = own.done(a2a_standard_server.text_message("mine"))
        assert other.get(f"/tasks/{task['id']}").json()["id"] == task["id"]


if IS_ROOT:  # nobody else can be somebody else

    @pytest.mark.parametrize("user", USERS)
    def test_nobody_else_reads_the_token(home: Path, user: int) -> None:
        verbs = RunVerbs(home, TEXT)
        home.chmod(0o755)
        home.parent.chmod(0o755)
        verbs.run("token")
        file = verbs.state / FILE
        assert (file.stat().st_mode & 0o777, verbs.state.stat().st_mode & 0o777) == (0o600, 0o700)
        for path in (verbs.state / "..").iterdir(), [file]:
            for each in path:
                assert as_user(user, each.read_bytes).startswith((b"PermissionError", b"IsADirectoryError"))
        home.parent.chmod(0o700)


def test_the_token_is_shown_renewed_and_then_the_old_one_is_worth_nothing(home: Path) -> None:
    verbs = RunVerbs(home, TEXT)
    token = verbs.json("token")["token"]
    assert verbs.run("token").rows[0] == ["token", token]
    with visionflow_server.served(verbs) as server:
        assert not [line for line in server.said if token in line]
        other = verbs.json("token", "--renew")["token"]
        assert other != token
        assert (verbs.state / FILE).stat().st_mode & 0o777 == 0o600
        (verbs.state / FILE).chmod(0o640)
        assert "is open to others" in verbs.run("token", code=1).err


def started(verbs: RunVerbs, *words: str) -> str:
    """What it says at a terminal until it is told to end."""
    terminal, line = pty.openpty()
    words = ("serve", *words, "--port", "0", "--workspace", str(verbs.home))
    env = {**client_environment(verbs.home), "PYTHONPATH": str(ROOT)}
    with closing(Forked("ccswarm", words, cwd=verbs.home, env=env, streams=[line] * 3)) as process:
        os.close(line)
        said = b""
        while said.count(b"\n") < 2 and select.select([terminal], [], [], BOUND_SECONDS)[0]:
            said += os.read(terminal, 1 << 12)
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_SECONDS) == 0
    os.close(terminal)
    return said.decode()


def test_at_a_terminal_the_token_is_shown_when_it_is_made_and_not_again(home: Path) -> None:
    verbs = RunVerbs(home)
    verbs.rewrite(TEXT)
    said = started(verbs, "--tcp")
    token = (verbs.state / FILE).read_text().strip()
    assert f"your own programs need no token, all others do: {first_line(token)}\r\n" in said
    said = started(verbs, "--a2a")
    assert token not in said
    assert "all others do: ccswarm token shows it" in said


def test_whoever_asks_for_no_token_is_told_what_that_means(home: Path) -> None:
    verbs = RunVerbs(home, TEXT)
    with visionflow_server.served(verbs, "--no-auth") as server:
        for user in USERS if IS_ROOT else ():
            found = of(user)(("127.0.0.1", server.port), lines(INIT))
            assert json.loads(found)["result"]["topology"] == "mesh"
        assert server.end() == 0
    assert server.said[1].startswith("no token is required (--no-auth): every user of this machine can give the agents")
    assert not (verbs.state / FILE).exists()
    with environment({**client_environment(home), "TCP_AUTH_TOKEN": "x"}):
        said = verbs.run("serve", "--tcp", "--no-auth", "-w", str(home), code=2)
        assert "--no-auth and TCP_AUTH_TOKEN exclude each other" in said.err
    with environment(client_environment(home)):
        for flag in ("--tcp", "--a2a"):
            said = verbs.run("serve", flag, "--no-auth", "--host", "0.0.0.0", "-w", str(home), code=2)
            assert "anybody who can reach 0.0.0.0 could give the agents work" in said.err


def test_tokens_of_the_environment_are_everybodys(home: Path) -> None:
    verbs = RunVerbs(home, TEXT)
    with a2a_standard_server.served(verbs, "--host", "0.0.0.0", A2A_AUTH_TOKEN="first second") as server:
        assert (
            status_and_body(exchange(("127.0.0.1", server.port), asked(server.port, "GET", "/tasks"), over=False))[0]
            == 401
        )
        assert not (verbs.state / FILE).exists()
        assert server.end() == 0
    assert server.said[1] == "every client needs a token of A2A_AUTH_TOKEN"
    assert "cross the network unencrypted" in server.said[2]


if IS_ROOT:  # nobody else can be somebody else

    @pytest.mark.parametrize("user", USERS[:1])
    def test_strangers_keep_nobody_out(home: Path, user: int) -> None:
        """They have half of the connections at most."""
        verbs = RunVerbs(home, TEXT)
        for kind, refusal in ((visionflow_server, b"Too many connections"), (a2a_standard_server, b"HTTP/1.1 503 ")):
            with kind.served(verbs, "--connections", "6") as server:
                address = ("127.0.0.1", server.port)
                with ExitStack() as there:
                    with acting_as(user):
                        crowd = [socket.create_connection(address, timeout=BOUND_SECONDS) for _ in range(5)]
                    for end in crowd:
                        there.enter_context(end)
                    assert [refusal in end.recv(1 << 12) for end in crowd[3:]] == [True, True]
                    own = lines(PING) if kind is visionflow_server else asked(server.port, "GET", "/tasks")
                    for _ in range(3):
                        assert b"result" in exchange(address, own) or b"HTTP/1.1 200 " in exchange(
                            address, own, over=False
                        )
