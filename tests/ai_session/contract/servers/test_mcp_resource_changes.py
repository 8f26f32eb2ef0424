"""What subscribers hear on the wire: in the handshake era, and on streams since 2026-07-28."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.ai_session.support import asking
from tests.ai_session.support.command_line import CommandLine
from tests.ai_session.support.mcp_client import Client, Message, daemon_pids, living_in, stop_daemons
from tests.conftest import new_home

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
QUIET_SECONDS = 0.4
"""Longer than the gap between two notifications: what has not come by then does not come."""


@pytest.fixture(scope="module")
def module_home(homes: Path) -> Iterator[Path]:
    home = new_home(homes)
    with Client(env=living_in(home), cwd=home) as client:
        for name in ("build", "other"):
            client.call("create_session", name=name, backend="pty", working_directory=str(home))
    yield home
    stop_daemons(home)


@contextmanager
def greeted(module_home: Path, version: str = "2025-11-25") -> Iterator[Client]:
    with Client(env=living_in(module_home), cwd=module_home) as client:
        client.initialize(version)
        yield client


@pytest.fixture
def client(module_home: Path) -> Iterator[Client]:
    with greeted(module_home) as client:
        yield client


def worker(module_home: Path) -> Client:
    """Somebody else, who greets nobody and hears nothing."""
    return Client(env=living_in(module_home), cwd=module_home)


def listen(client: Client, **wanted: Any) -> tuple[int, Message]:
    """A stream: its id, and what is heeded."""
    number = client.request("subscriptions/listen", {"notifications": wanted}, modern=True)
    first = until(client, lambda message: message.get("params", {}).get("_meta") == {SUBSCRIPTION: number})[-1]
    assert first["method"] == "notifications/subscriptions/acknowledged"
    return number, first["params"]["notifications"]


def until(client: Client, holds: Callable[[Message], bool]) -> list[Message]:
    """What comes up to the first message of which it holds."""
    seen = [client.message()]
    while not holds(seen[-1]):
        seen.append(client.message())
    return seen


def reported(uri: str, stream: int | None = None) -> Callable[[Message], bool]:
    def holds(message: Message) -> bool:
        params: Message = message.get("params", {})
        mine = params.get("_meta", {}).get(SUBSCRIPTION) == stream
        return message.get("method") == "notifications/resources/updated" and params["uri"] == uri and mine

    return holds


def method(name: str) -> Callable[[Message], bool]:
    return lambda message: message.get("method") == name


def quiet(client: Client) -> None:
    with pytest.raises(TimeoutError):
        client.line(QUIET_SECONDS)


def drained(client: Client) -> list[Message]:
    """What still comes before it is quiet."""
    seen: list[Message] = []
    while True:
        try:
            seen.append(client.message(QUIET_SECONDS))
        except TimeoutError:
            return seen


@pytest.mark.either("version")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25"])
def test_26_a_subscriber_of_the_handshake_era_hears_of_its_resources_only(module_home: Path, version: str) -> None:
    with greeted(module_home, version) as client, worker(module_home) as other:
        assert client.ask("resources/subscribe", {"uri": "session://build/screen"})["result"] == {}
        other.call("execute_command", session_id="other", command="echo unheard")
        quiet(client)
        other.call("execute_command", session_id="build", command="echo heard")
        until(client, reported("session://build/screen"))
        drained(client)
        assert client.ask("resources/unsubscribe", {"uri": "session://build/screen"})["result"] == {}
        other.call("execute_command", session_id="build", command="echo unheard")
        quiet(client)
        assert client.ask("resources/unsubscribe", {"uri": "session://build/screen"})["result"] == {}


def test_26_a_stream_begins_with_what_is_heeded_and_every_message_names_it(client: Client, module_home: Path) -> None:
    wanted = ["session://build/info", "session://build/screen", "bad://x", "session://../info"]
    first, heeded = listen(client, resourceSubscriptions=wanted)
    assert heeded == {"resourceSubscriptions": wanted[:2]}
    second, heeded = listen(client, resourcesListChanged=True, toolsListChanged=False)
    assert heeded == {"resourcesListChanged": True}
    with worker(module_home) as other:
        other.call("execute_command", session_id="build", command="cd /")
        seen = until(client, reported("session://build/info", first))
        seen += drained(client)
        assert all(message["params"]["_meta"] == {SUBSCRIPTION: first} for message in seen)
        assert {message["params"]["uri"] for message in seen} == set(wanted[:2])
        other.call("create_session", name="brief", backend="pty")
        other.call("close_session", session_id="brief")
        changed = until(client, lambda message: message.get("params", {}).get("_meta") == {SUBSCRIPTION: second})[-1]
        assert changed["method"] == "notifications/resources/list_changed"
    assert client.result("ping") == {}


def test_26_a_stream_that_is_given_up_is_not_answered_and_tells_no_more(client: Client, module_home: Path) -> None:
    number, _ = listen(client, resourceSubscriptions=["session://build/screen"])
    client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
    assert client.result("ping") == {}
    with worker(module_home) as other:
        other.call("execute_command", session_id="build", command="echo unheard")
    quiet(client)


def test_26_changed_lists_are_announced_after_a_handshake(client: Client, module_home: Path) -> None:
    with worker(module_home) as other, worker(module_home) as mute:
        other.call("create_session", name="brief", backend="pty")
        until(client, method("notifications/resources/list_changed"))
        CommandLine(module_home).run("rename", "brief", "renamed")
        until(client, method("notifications/resources/list_changed"))
        other.call("close_session", session_id="renamed")
        until(client, method("notifications/resources/list_changed"))
        drained(client)
        quiet(mute)


def test_26_output_of_a_command_is_announced_until_it_ends(client: Client, module_home: Path) -> None:
    with worker(module_home) as other:
        made = other.call("execute_command", session_id="build", command="read line; echo $line", timeout_seconds=0)
        command = made["structuredContent"]["command_id"]
        first = f"session://build/output/{command}"
        number, _ = listen(client, resourceSubscriptions=[first, "session://build/output/all"])
        other.call("send_input", session_id="build", text="here", keys=["Enter"])
        until(client, reported(first, number))
        other.call("read_output", session_id="build", command_id=command, wait_for="finish")
        drained(client)
        assert client.call("read_output", session_id="build", command_id=command)["structuredContent"]["exit_code"] == 0
        other.call("execute_command", session_id="build", command="echo next")
        heard = {message["params"]["uri"] for message in drained(client)}
        assert heard == {"session://build/output/all"}, "the first command has ended"


def test_26_a_flood_of_output_is_announced_four_times_a_second(client: Client, module_home: Path) -> None:
    listen(client, resourceSubscriptions=["session://build/screen"])
    with worker(module_home) as other:
        printing = "for i in $(seq 20000); do echo $i; done"
        result = other.call("execute_command", session_id="build", command=printing, timeout_seconds=40)
    seconds = result["structuredContent"]["duration_seconds"]
    heard = len(drained(client))
    assert 1 <= heard <= 4 * seconds + 4


def test_26_the_end_of_a_session_is_announced_once(client: Client, module_home: Path) -> None:
    with worker(module_home) as other:
        other.call("create_session", name="brief", backend="pty")
        listen(client, resourceSubscriptions=["session://brief/info"])
        other.call("close_session", session_id="brief")
    until(client, lambda message: message.get("params", {}).get("uri") == "session://brief/info")
    assert client.ask("resources/read", {"uri": "session://brief/info"})["error"]["code"] == -32002


def test_26_what_another_agent_does_is_not_heard(module_home: Path) -> None:
    def meta(agent: str) -> Message:
        return {"ai-session/agent": agent, "ai-session/run": "r"}

    with worker(module_home) as client, worker(module_home) as other:
        given = {"name": "adas", "backend": "pty"}
        other.result("tools/call", {"name": "create_session", "arguments": given, "_meta": meta("ada")})
        uri = "session://adas/screen"
        streams = {}
        for agent in ("bob", "ada"):
            params = {"notifications": {"resourceSubscriptions": [uri], "resourcesListChanged": True}}
            streams[agent] = client.request("subscriptions/listen", {**params, "_meta": meta(agent)}, modern=True)
            client.message()
        refused = client.ask("resources/subscribe", {"uri": uri, "_meta": meta("bob")})
        assert refused["error"]["code"] == -32002
        given = {"session_id": "adas", "command": "echo mine"}
        other.result("tools/call", {"name": "execute_command", "arguments": given, "_meta": meta("ada")})
        other.result("tools/call", {"name": "close_session", "arguments": given, "_meta": meta("ada")})
        seen = until(client, method("notifications/resources/list_changed")) + drained(client)
        assert {message["params"]["_meta"][SUBSCRIPTION] for message in seen} == {streams["ada"]}


def test_26_streams_end_with_a_result_when_the_daemon_leaves(homes: Path) -> None:
    home = new_home(homes)
    try:
        with Client(env=living_in(home), cwd=home) as client:
            client.call("list_sessions")
            streams = [listen(client, resourcesListChanged=True)[0] for _ in range(3)]
            CommandLine(home).run("daemon", "stop", "--keep-sessions")
            answers = [client.message() for _ in streams]
            assert {answer["id"] for answer in answers} == set(streams)
            for answer in answers:
                assert answer["result"]["resultType"] == "complete"
                assert answer["result"]["_meta"][SUBSCRIPTION] == answer["id"]
    finally:
        stop_daemons(home)


TIGHT = '[sandbox]\nprofile = "trusted"\n\n[policy]\nmode = "read-only"\n'


@pytest.mark.either("modern")
@pytest.mark.parametrize("modern", [False, True], ids=["handshake", "2026"])
def test_26_a_mode_that_changes_the_tools_is_announced(homes: Path, modern: bool) -> None:
    home = new_home(homes, TIGHT)
    try:
        with asking.client(home) as client:
            client.call("list_sessions", modern=modern)
            if modern:
                listen(client, toolsListChanged=True)
            else:
                client.initialize()
                client.call("list_sessions")
            before = len(client.result("tools/list", modern=modern)["tools"])
            assert asking.typed(home, "policy", mode="trusted")["mode"] == "trusted"
            until(client, method("notifications/tools/list_changed"))
            assert len(client.result("tools/list", modern=modern)["tools"]) > before
            assert asking.typed(home, "policy", mode="trusted")["mode"] == "trusted"
            quiet(client)
    finally:
        stop_daemons(home)


def test_26_subscribing_again_and_again_leaves_nothing(client: Client, module_home: Path) -> None:
    (pid,) = daemon_pids(module_home)

    def held() -> int:
        return len(os.listdir(f"/proc/{pid}/fd"))

    client.ask("resources/subscribe", {"uri": "session://build/screen"})
    client.ask("resources/unsubscribe", {"uri": "session://build/screen"})
    before = held()
    for number in range(60):
        uri = {"uri": f"session://{'build' if number % 2 else 'other'}/screen"}
        assert client.ask("resources/subscribe", uri)["result"] == {}
        assert client.ask("resources/unsubscribe", uri)["result"] == {}
    assert held() == before
    with worker(module_home) as other:
        other.call("execute_command", session_id="build", command="echo unheard")
    quiet(client)
