"""Calls that take long on the wire: progress, cancellation, side by side, and what a starting daemon answers."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentwire.mcp.first_answers import FirstAnswers
from ai_session import __version__
from ai_session.servers.base import Connection
from ai_session.servers.mcp.plugin import FIRST_ANSWERS, McpServer
from tests.ai_session.contract.servers.test_control import PERSON, MemoryHost
from tests.ai_session.support.mcp_client import ENVELOPE, Client, Message, double
from tests.ai_session.support.sessions import spin
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS

ROOT = Path(__file__).parents[4]


@pytest.fixture
def client(warm: dict[str, str]) -> Iterator[Client]:
    with Client(env=warm) as client:
        yield client


def wait_begun(client: Client, text: str, *, modern: bool = False, token: int | str | None = None) -> int:
    """The id of a `wait` call that the gate has got."""
    params: Message = {"name": "wait", "arguments": {"text": text}}
    if token is not None:
        params["_meta"] = {"progressToken": token}
    return client.request("tools/call", params, modern=modern)


@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("token", [0, "t-1"])
def test_progress_rises_until_the_answer_and_stops(client: Client, modern: bool, token: int | str) -> None:
    waiting = wait_begun(client, "p", modern=modern, token=token)
    beats = [client.read() for _ in range(5)]
    assert {beat["method"] for beat in beats} == {"notifications/progress"}
    assert {beat["params"]["progressToken"] for beat in beats} == {token}
    values = [beat["params"]["progress"] for beat in beats]
    assert values == sorted(set(values))
    assert "still running" in beats[0]["params"]["message"]
    released = client.request("tools/call", {"name": "release"})
    answered: list[int] = []
    while len(answered) < 2:
        message = client.read()
        if "id" in message:
            answered.append(message["id"])
        else:
            assert (message["method"], waiting in answered) == ("notifications/progress", False)
    assert {*answered} == {waiting, released}
    assert client.ask("ping")["result"] == {}
    with pytest.raises(TimeoutError):
        client.line(0.1)


def test_without_a_token_there_is_no_progress(client: Client) -> None:
    waiting = wait_begun(client, "silent")
    with pytest.raises(TimeoutError):
        client.line(0.1)
    client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": waiting}})


def test_cancelled_call_is_given_up_and_never_answered(client: Client) -> None:
    waiting = [wait_begun(client, f"cancel {number}", modern=number % 2 == 0) for number in range(100)]
    assert client.result("ping") == {}
    for request_id in waiting:
        client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}})
        client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": request_id}})
    cancelled = client.call("seen")["structuredContent"]["cancelled"]
    assert {f"cancel {number}" for number in range(100)} <= set(cancelled)
    client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": waiting[0]}})
    client.call("release")
    with pytest.raises(TimeoutError):
        client.line(0.1)


def test_ping_and_other_calls_are_answered_while_one_waits(client: Client) -> None:
    waiting = wait_begun(client, "long")
    for number in range(50):
        assert client.result("ping") == {}
        assert client.call("echo", text=str(number))["structuredContent"]["text"] == str(number)
        assert client.result("tools/list", modern=True)["tools"]
    client.request("tools/call", {"name": "release"})
    answers = {client.read()["id"], client.read()["id"]}
    assert waiting in answers


def test_answers_come_in_the_order_calls_end(client: Client) -> None:
    waiting = wait_begun(client, "first")
    echoes = [client.request("tools/call", {"name": "echo", "arguments": {"text": "x"}}) for _ in range(50)]
    assert [client.read()["id"] for _ in echoes] == echoes
    client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": str(waiting)}})


def test_a_gone_client_has_its_calls_given_up_at_once(warm: dict[str, str]) -> None:
    with Client(env=warm) as client:
        wait_begun(client, "end of input")
        client.result("ping")
        assert client.end()[0] == 0
    with Client(env=warm) as client:
        wait_begun(client, "killed relay")
        client.result("ping")
        client.process.kill()
    with Client(env=warm) as client:
        gone = {"end of input", "killed relay"}
        # The kernel tells the daemon of the end before it can read what a later client writes.
        assert gone <= set(client.call("seen")["structuredContent"]["cancelled"])


def test_slow_reader_gets_everything_and_delays_nobody(warm: dict[str, str]) -> None:
    with Client(env=warm) as slow, Client(env=warm) as quick:
        wanted = [slow.request("tools/call", {"name": "big"}) for _ in range(20)]
        for _ in range(20):
            assert quick.result("ping") == {}
        answers = [slow.read() for _ in wanted]
        assert [answer["id"] for answer in answers] == wanted
        assert {len(answer["result"]["content"][0]["text"]) for answer in answers} == {200_000}


def test_writer_that_never_reads_until_the_end_is_no_deadlock(warm: dict[str, str]) -> None:
    """A client that sends 2 MB of requests first and reads the 4 MB of answers afterwards."""
    with Client(env=warm) as client:
        for _ in range(200):
            client.request("tools/call", {"name": "echo", "arguments": {"text": "a" * 10_000}})
        assert len([client.read() for _ in range(200)]) == 200


STRANGE: list[tuple[str, Message, int]] = [
    ("initialize", {"protocolVersion": "2025-11-25"}, -32602),
    ("initialize", {}, -32602),
    ("server/discover", {}, -32602),
    ("tools/list", {"_meta": {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}}, -32022),
    ("ping", {"_meta": ENVELOPE}, -32601),
]
"""What the recording does not fit, and the code of its answer."""


def test_starting_daemon_answers_first_questions_then_does_the_rest_in_order() -> None:
    """One write with all openings at once; the SDK is still to be imported when the first answer leaves. What another
    client asks, which the recording does not fit, waits for the real answer."""
    handshake = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "early", "version": "1"}}
    lines: list[Message] = [
        {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": ENVELOPE}},
        {"jsonrpc": "2.0", "id": 2, "method": "initialize", "params": handshake},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "wait", "arguments": {"text": "no"}}},
        {"jsonrpc": "2.0", "id": 4, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 5, "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}},
        {"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": {"name": "echo"}},
        {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "seen"}},
        {"jsonrpc": "2.0", "id": 8, "method": "foo/bar"},
    ]
    with double(), Client() as client, Client() as strange:
        client.write("garbage\n" + "".join(json.dumps(line) + "\n" for line in lines))
        answers = [client.read()]  # recorded lists are answered only until a first client's gate is known
        for method, params, _ in STRANGE:
            strange.request(method, params)
        answers += [client.read() for _ in range(7)]
        assert [answer["id"] for answer in answers[:5]] == [None, 1, 2, 4, 5]
        later = {answer["id"]: answer for answer in answers[5:]}
        assert set(later) == {6, 7, 8}
        assert answers[0]["error"]["code"] == -32700
        assert answers[2]["result"]["protocolVersion"] == "2024-11-05"
        assert later[7]["result"]["structuredContent"]["client"] == "early"
        assert later[8]["error"]["code"] == -32601
        recorded = FirstAnswers(FIRST_ANSWERS, __version__).answer(lines[0])
        assert answers[1] == recorded
        assert client.result("server/discover", modern=True) == answers[1]["result"]
        with pytest.raises(TimeoutError):
            client.line(0.1)
        assert [strange.read()["error"]["code"] for _ in STRANGE] == [code for _, _, code in STRANGE]


def test_recorded_answers_are_what_the_server_answers() -> None:
    script = str(ROOT / "scripts/first_answers.py")
    code, _, errors = forked.run("ai_session", ["--check"], cwd=ROOT, env=os.environ, script=script)
    assert (code, errors.decode()) == (0, "")


def test_daemon_that_cannot_start_says_why_to_every_call() -> None:
    with double("--broken"), Client() as client:
        client.initialize()
        for _ in range(2):
            result = client.call("echo")
            assert result["isError"] is True
            assert result["_meta"]["ai-session/error"]["code"] == "config_invalid"
            assert "session.rows: too many" in result["content"][0]["text"]
        assert "session.rows: too many" in client.ask("tools/list")["error"]["message"]


@pytest.mark.anyio
async def test_garbage_is_collected_once_the_sdk_is_loaded() -> None:
    here, there = socket.socketpair()
    host: Any = MemoryHost()
    connection = Connection(*await asyncio.open_connection(sock=there), PERSON, {}, host)
    serving = asyncio.ensure_future(McpServer().serve(connection))
    reader, writer = await asyncio.open_connection(sock=here)
    writer.write(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"any"}}\n')
    async with asyncio.timeout(BOUND_SECONDS):
        answer = json.loads(await reader.readline())
        # It is loaded once nobody waits for an answer.
        await asyncio.to_thread(spin, lambda: "ai_session.servers.mcp.dispatch" in sys.modules and gc.isenabled())
        writer.close()
        await serving
    assert (answer["id"], answer["result"]["isError"]) == (1, False)
