"""A client's conversation goes on over daemons that are killed, restarted and stopped, at any moment."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from agentwire import plugins
from ai_session.client import relay
from ai_session.client.resume import (
    MOST_PENDING,
    MOST_STORED_BYTES,
    READ_ONLY,
    Conversation,
    Lines,
    Memory,
    interrupted,
    repeatable,
)
from tests.ai_session.support.mcp_client import BOUND_SECONDS, Client, Message, daemon_pids, stop_daemons
from tests.support import forked
from tests.support.process_ends import kill_process
from tests.support.products import first


def environ() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(forked.ROOT)}


def verb(home: Path, *words: str) -> None:
    """As a person types it."""
    assert forked.run("ai_session", words, cwd=home, env=environ())[0] == 0


@pytest.fixture(autouse=True)
def nothing_left(home: Path) -> Iterator[None]:
    yield
    if (home / ".local/state/ai-session/sessions").exists():
        forked.daemon(environ())  # it finds the sessions of those that were killed
    stop_daemons()


@pytest.fixture
def client(home: Path) -> Iterator[Client]:
    """Has shaken hands and opened a session ``work``."""
    with Client(cwd=home) as client:
        client.initialize()
        assert client.call("create_session", name="work")["structuredContent"]["state"] == "ready"
        yield client


def kill() -> None:
    """The daemon, at once; returns when it is gone."""
    (pid,) = daemon_pids()
    kill_process(pid)


def run(client: Client, command: str, **more: Any) -> Message:
    return client.call("execute_command", session_id="work", command=command, **more)["structuredContent"]


def answer(client: Client, wanted: int) -> Message:
    """The response to a request, whatever comes before."""
    while (message := client.read()).get("id") != wanted or "method" in message:
        pass
    return message


def test_nothing_is_noticed_of_a_daemon_that_was_killed_between_two_calls(client: Client) -> None:
    assert run(client, "export SEEN=1")["exit_code"] == 0
    kill()
    assert run(client, "echo $SEEN; (exit 7)")["exit_code"] == 7
    assert run(client, "echo $SEEN")["output"] == "1\n"
    kill()
    assert client.result("tools/list")["tools"]
    assert client.end()[0] == 0


def test_a_call_under_way_is_not_made_again_and_its_answer_says_how_to_go_on(client: Client, home: Path) -> None:
    os.mkfifo(home / "gate")
    arguments = {"session_id": "work", "command": f"echo x >>{home}/ran; read -r line <{home}/gate; echo $line"}
    number = client.request("tools/call", {"name": "execute_command", "arguments": arguments})
    with (home / "gate").open("w") as gate:
        kill()
        result = answer(client, number)["result"]
        assert result["isError"]
        assert result["_meta"]["ai-session/error"]["code"] == "call_interrupted"
        assert "get_session_info(session_id='work')" in result["content"][0]["text"]
        assert client.call("get_session_info", session_id="work")["structuredContent"]["state"] != "ready"
        gate.write("through\n")
    done = client.call("read_output", session_id="work", wait_for="finish")["structuredContent"]
    assert (done["exit_code"], done["output"]) == (0, "through\n")
    assert (home / "ran").read_text() == "x\n"


def test_a_call_with_a_key_is_repeated_and_runs_once(client: Client, home: Path) -> None:
    os.mkfifo(home / "gate")
    command = f"echo x >>{home}/ran; read -r line <{home}/gate; echo $line"
    arguments = {"session_id": "work", "command": command, "call_key": "k1"}
    number = client.request("tools/call", {"name": "execute_command", "arguments": arguments})
    with (home / "gate").open("w") as gate:
        kill()
        gate.write("through\n")
    facts = answer(client, number)["result"]["structuredContent"]
    assert (facts["exit_code"], facts["output"]) == (0, "through\n")
    assert (home / "ran").read_text() == "x\n"


def test_a_wait_goes_on_with_the_next_daemon(client: Client, home: Path) -> None:
    os.mkfifo(home / "gate")
    assert run(client, f"cat {home}/gate", timeout_seconds=0)["status"] == "running"
    wanted = {"name": "read_output", "arguments": {"session_id": "work", "wait_for": "finish"}}
    number = client.request("tools/call", wanted)
    with (home / "gate").open("w") as gate:
        kill()
        gate.write("late\n")
    assert answer(client, number)["result"]["structuredContent"]["output"] == "late\n"


@pytest.mark.parametrize("when", first(("initialize", "tools/list", "half a line", "many"), "half a line", "many"))
def test_a_daemon_killed_while_anything_is_asked_is_not_noticed(home: Path, when: str) -> None:
    with Client(cwd=home) as warm, Client(cwd=home) as client:
        assert warm.result("ping") == {}
        if when == "initialize":
            info = {"name": "wire", "version": "1"}
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
            number = client.request("initialize", params)
            kill()
            assert answer(client, number)["result"]["serverInfo"]["name"] == "ai-session"
            client.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
            assert client.result("tools/list")["tools"]
            return
        client.initialize()
        client.call("list_sessions")
        if when == "half a line":
            client.write(b'{"jsonrpc":"2.0","id":77,"me')
            kill()
            client.write(b'thod":"tools/list"}\n')
            assert len(answer(client, 77)["result"]["tools"]) > 5
            return
        numbers = [client.request("tools/list") for _ in range(20 if when == "many" else 1)]
        kill()
        answers = [client.read() for _ in numbers]
        assert sorted(one["id"] for one in answers) == numbers
        assert all(len(one["result"]["tools"]) > 5 for one in answers)


def test_what_was_subscribed_to_is_told_by_the_next_daemon(client: Client) -> None:
    uri = "session://work/screen"
    client.result("resources/subscribe", {"uri": uri})
    kill()
    reported = client.read()  # what changed meanwhile nobody knows
    assert (reported["method"], reported["params"]["uri"]) == ("notifications/resources/updated", uri)
    number = client.request(
        "tools/call", {"name": "execute_command", "arguments": {"session_id": "work", "command": "echo x"}}
    )
    seen: list[Message] = [client.read(), client.read()]
    while not {"id", "method"} <= {name for one in seen for name in one}:
        seen.append(client.read())
    assert number in [one.get("id") for one in seen]
    assert any(one.get("params", {}).get("uri") == uri for one in seen)
    client.result("resources/unsubscribe", {"uri": uri})
    kill()
    assert client.result("ping") == {}


ASKING = '[sandbox]\nprofile = "workspace"\n\n[policy]\nmode = "ask-all"\n'


def test_a_question_of_a_daemon_that_is_gone_is_withdrawn_and_its_answer_counts_for_nothing(home: Path) -> None:
    (home / ".config/ai-session/config.toml").write_text(ASKING)
    (home / "project").mkdir()
    with Client(cwd=home / "project") as client:
        info = {"name": "wire", "version": "1"}
        capabilities = {"elicitation": {}}
        client.result("initialize", {"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info})
        client.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        wanted = {"name": "create_session", "arguments": {"name": "work"}}
        first = client.request("tools/call", wanted)
        asked = client.read()
        assert asked["method"] == "elicitation/create"
        kill()
        withdrawn = client.read()
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == asked["id"]
        assert answer(client, first)["result"]["isError"]
        second = client.request("tools/call", wanted)
        yes = {"action": "accept", "content": {"decision": "always"}}
        client.write({"jsonrpc": "2.0", "id": asked["id"], "result": yes})
        again = client.read()
        assert (again["method"], again["id"] != asked["id"]) == ("elicitation/create", True)
        client.write({"jsonrpc": "2.0", "id": asked["id"], "result": yes})
        client.write({"jsonrpc": "2.0", "id": again["id"], "result": {"action": "decline"}})
        refused = answer(client, second)["result"]
        assert refused["isError"]
        assert "denied" in refused["content"][0]["text"] or "declin" in refused["content"][0]["text"]


def busy(client: Client, home: Path) -> int:
    """A call that waits for a command which waits for somebody to write."""
    os.mkfifo(home / "gate")
    arguments = {"session_id": "work", "command": f": <{home}/gate"}
    number = client.request("tools/call", {"name": "execute_command", "arguments": arguments})
    while client.call("get_session_info", session_id="work")["structuredContent"]["state"] != "running":
        pass
    return number


def test_a_daemon_that_a_person_stopped_comes_back_when_it_is_asked(client: Client, home: Path) -> None:
    running = busy(client, home)
    verb(home, "daemon", "stop")
    stopped = answer(client, running)["result"]
    assert "was stopped while execute_command" in stopped["content"][0]["text"]
    assert stopped["content"][0]["text"].endswith("\nnext: create_session opens another")
    assert daemon_pids() == []
    assert client.call("list_sessions")["structuredContent"]["sessions"] == []
    assert len(daemon_pids()) == 1
    assert client.process.stderr
    said = b"ai-session: the daemon was stopped, and its sessions ended; a new one took over\n"
    assert client.process.stderr.readline() == said


@pytest.mark.torture  # above it is stopped, and comes back
def test_a_daemon_that_a_person_restarts_is_followed(client: Client, home: Path) -> None:
    assert run(client, "export SEEN=1")["exit_code"] == 0
    before = daemon_pids()
    verb(home, "daemon", "restart")
    assert run(client, "echo $SEEN")["output"] == "1\n"
    assert len(daemon_pids()) == 1
    assert daemon_pids() != before


def test_where_no_daemon_can_be_had_the_client_is_answered_before_the_end(client: Client, home: Path) -> None:
    number = busy(client, home)
    state = home / ".local/state/ai-session"
    state.chmod(0o755)
    kill()
    assert "no new one can be reached" in answer(client, number)["result"]["content"][0]["text"]
    assert client.process.wait(BOUND_SECONDS) == 1
    assert client.process.stderr
    assert b"is open to others (mode 0755); chmod 700" in client.process.stderr.read()
    state.chmod(0o700)


def test_long_lines_go_through_and_are_refused_only_when_their_daemon_goes(client: Client, home: Path) -> None:
    text = "x" * 3_000_000
    sent = {"session_id": "work", "command": "wc -c", "stdin": text}
    assert client.call("execute_command", **sent)["structuredContent"]["output"].strip() == "3000000"
    kill()
    assert client.call("execute_command", **sent)["structuredContent"]["output"].strip() == "3000000"


def test_the_client_may_leave_while_there_is_no_daemon(client: Client) -> None:
    kill()
    assert client.end()[0] == 0
    assert daemon_pids() == []


HELLO, CALL = b'{"id":1,"method":"initialize"}\n', b'{"id":2,"method":"tools/list"}\n'


Daemon = Callable[[Iterator[bytes], Callable[[bytes], None]], None]
"""What a daemon does with its lines, and a way to send; it ends when this returns."""


@contextmanager
def resuming(*daemons: Daemon) -> Generator[tuple[BinaryIO, BinaryIO]]:
    """A client's ends of a conversation with these daemons, one after the other."""
    coming, links = iter(daemons), list[socket.socket]()

    def dial() -> socket.socket:
        near, far = socket.socketpair()
        daemon = next(coming)

        def serve() -> None:
            with far, far.makefile("rb") as lines:
                daemon(lines, far.sendall)

        threading.Thread(target=serve).start()
        links.append(near)
        return near

    (source, client_out), (client_in, target) = os.pipe(), os.pipe()
    first = dial()
    first.setblocking(False)
    conversation = Conversation(first, source, target, dial, RuntimeError, str)
    relaying = threading.Thread(target=conversation.run)
    relaying.start()
    with open(client_out, "wb", buffering=0) as asks, open(client_in, "rb") as answered:
        yield asks, answered
        asks.close()
        relaying.join(BOUND_SECONDS)
    links[-1].close()
    os.close(source)
    os.close(target)
    assert not relaying.is_alive()


def greets(lines: Iterator[bytes], send: Callable[[bytes], None]) -> None:
    assert next(lines) == HELLO
    send(b'{"id":1,"result":{}}\n')
    assert next(lines) == CALL


def answers(lines: Iterator[bytes], send: Callable[[bytes], None]) -> None:
    for line in lines:
        send(b'{"id":%d,"result":{"by":3}}\n' % json.loads(line)["id"])


def test_half_a_line_of_a_daemon_that_ends_while_it_is_greeted_is_forgotten() -> None:
    def ends_at_the_greeting(lines: Iterator[bytes], send: Callable[[bytes], None]) -> None:
        assert next(lines) == HELLO
        send(b'{"id":1,"resu')

    with resuming(greets, ends_at_the_greeting, answers) as (asks, answered):
        asks.write(HELLO)
        assert json.loads(answered.readline()) == {"id": 1, "result": {}}
        asks.write(CALL)
        assert json.loads(answered.readline()) == {"id": 2, "result": {"by": 3}}


def test_an_answer_to_a_daemon_that_is_gone_reaches_no_other() -> None:
    received: list[bytes] = []

    def asks_and_ends(lines: Iterator[bytes], send: Callable[[bytes], None]) -> None:
        greets(lines, send)
        send(b'{"jsonrpc":"2.0","id":9,"method":"elicitation/create"}\n')

    def remembers(lines: Iterator[bytes], send: Callable[[bytes], None]) -> None:
        answers((line for line in lines if not received.append(line)), send)

    with resuming(asks_and_ends, remembers) as (asks, answered):
        asks.write(HELLO)
        asks.write(CALL)
        said = [json.loads(answered.readline()) for _ in range(4)]
        assert [one.get("method") for one in said] == [None, "elicitation/create", "notifications/cancelled", None]
        asks.write(b'{"jsonrpc":"2.0","id":9,"result":{"action":"accept"}}\n')
        asks.write(b'{"id":3,"method":"tools/list"}\n')
        assert json.loads(answered.readline())["id"] == 3
    assert [json.loads(line)["id"] for line in received] == [1, 2, 3]


def test_daemons_that_end_as_soon_as_they_have_started_are_reported() -> None:
    first, far = socket.socketpair()

    def ends_at_the_call() -> None:
        with far, far.makefile("rb") as lines:
            assert next(lines) == HELLO
            far.sendall(b'{"id":1,"result":{}}\n')
            assert next(lines) == CALL

    def dial() -> socket.socket:
        near, gone = socket.socketpair()
        gone.close()
        return near

    (source, client_out), (client_in, target) = os.pipe(), os.pipe()
    first.setblocking(False)
    words: list[str] = []
    ended: list[int] = []
    conversation = Conversation(first, source, target, dial, relay.Unreachable, words.append)
    relaying = threading.Thread(target=lambda: ended.append(conversation.run()))
    daemon = threading.Thread(target=ends_at_the_call)
    daemon.start()
    relaying.start()
    with open(client_out, "wb", buffering=0) as asks, open(client_in, "rb") as answered:
        asks.write(HELLO)
        assert json.loads(answered.readline()) == {"id": 1, "result": {}}
        asks.write(CALL)
        relaying.join(BOUND_SECONDS)
        assert json.loads(answered.readline())["id"] == 2
    daemon.join(BOUND_SECONDS)
    first.close()
    os.close(source)
    os.close(target)
    assert ended == [1]
    assert words == [
        "new daemons end as soon as they have started; ai-session daemon run shows why; sessions stay alive"
    ]


def test_tools_that_are_asked_again_change_nothing() -> None:
    known = [tool for name in plugins.names("ai_session.tools") for tool in plugins.load("ai_session.tools", name)]
    assert {tool.name for tool in known if tool.read_only and tool.listed} == READ_ONLY


REQUEST = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "execute_command", "arguments": {}}}


@pytest.mark.parametrize(
    ("message", "again"),
    [
        (REQUEST, False),
        ({**REQUEST, "params": {"name": "execute_command", "arguments": {"call_key": "k"}}}, True),
        ({**REQUEST, "params": {"name": "execute_command", "arguments": {"call_key": ""}}}, False),
        ({**REQUEST, "params": {"name": "read_output"}}, True),
        ({**REQUEST, "params": {"name": "read_output", "arguments": "odd"}}, True),
        ({**REQUEST, "params": ["odd"]}, False),
        ({**REQUEST, "params": None}, False),
        ({**REQUEST, "method": "resources/read"}, True),
    ],
)
def test_what_is_asked_again(message: Message, again: bool) -> None:
    assert repeatable(message) is again
    reported = interrupted(1, message, "ended")
    assert ("error" in reported) == (message["method"] != "tools/call")
    if "result" in reported:
        told = reported["result"]["content"][0]["text"]
        assert ("a call with a call_key is repeated" in told) is not again
        assert "list_sessions shows what there is" in told


def test_lines_are_whole_whatever_pieces_they_come_in() -> None:
    text = b"".join(b'{"id":%d}\n' % number for number in range(50))
    for size in (1, 2, 3, 7, 64, 1000):
        lines, found = Lines(), bytearray()
        for start in range(0, len(text), size):
            for part, whole in lines.feed(text[start : start + size]):
                assert whole
                assert part.endswith(b"\n")
                found += part
        assert found == text
        assert lines.rest() == b""


def test_what_went_through_is_remembered_as_long_as_it_matters() -> None:
    memory = Memory()

    def said(message: Any, *, of_client: bool) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message, separators=(",", ":")).encode() + b"\n"
        memory.note(line, of_client=of_client)
        memory.understand()

    for number in (1, 'a"b', -5):
        said({**REQUEST, "id": number}, of_client=True)
    assert list(memory.pending) == [1, 'a"b', -5]
    said({"jsonrpc": "2.0", "id": 'a"b', "result": {"id": 1, "method": "x"}}, of_client=False)
    said({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"id": 1}}, of_client=False)
    said({"result": {}, "id": -5, "jsonrpc": "2.0"}, of_client=False)
    assert list(memory.pending) == [1]
    said({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}, of_client=True)
    assert not memory.pending
    said({"jsonrpc": "2.0", "id": 9, "method": "elicitation/create", "params": {"result": 1}}, of_client=False)
    assert memory.questions == {9}
    said({"jsonrpc": "2.0", "id": 9, "result": {}}, of_client=True)
    assert not memory.questions
    for odd in (
        b"\n",
        b"[]\n",
        b"nonsense\n",
        b'{"id":\n',
        b'{"jsonrpc":"2.0","id":\n',
        b"\xff\n",
        b"[" * 5000 + b"\n",
    ):
        said(odd, of_client=True)
        said(odd, of_client=False)
    assert not memory.pending
    for number, chars in ((1, 0), (2, MOST_STORED_BYTES)):
        said(
            {**REQUEST, "id": number, "params": {"arguments": {"call_key": "k", "command": chars * "x"}}},
            of_client=True,
        )
    assert [one.line is None for one in memory.pending.values()] == [False, True]
    for number in range(MOST_PENDING + 1):
        memory.note(b'{"id":%d,"method":"tools/call"}' % number, of_client=True)
    memory.understand()
    assert len(memory.pending) == MOST_PENDING
