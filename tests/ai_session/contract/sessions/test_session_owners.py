"""Agents of a swarm have sessions of their own: on the wire, with real shells, across a new daemon."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentwire import plugins
from ai_session.tools.base import Tool
from tests.ai_session.support.command_line import CommandLine
from tests.ai_session.support.mcp_client import Client, Message, daemon_pids, living_in, stop_daemons
from tests.conftest import new_home

GIVEN: dict[str, Message] = {
    "execute_command": {"command": "echo stolen > loot"},
    "send_input": {"text": "x"},
    "resize_session": {"rows": 5, "cols": 5},
}
TOOLS: list[Tool] = [
    tool for name in plugins.names("ai_session.tools") for tool in plugins.load("ai_session.tools", name)
]
ON_A_SESSION = sorted(tool.name for tool in TOOLS if tool.listed and "session_id" in tool.input_schema["properties"])


class ServedHome:
    """One daemon; ``ask`` calls a tool for an agent of a run."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.client = Client(env=living_in(home), cwd=home)

    def ask(self, agent: str, tool: str, run: str = "r1", **arguments: object) -> Message:
        claims = {"ai-session/agent": agent, "ai-session/run": run}
        meta = {name: value for name, value in claims.items() if value and agent}
        return self.client.result("tools/call", {"name": tool, "arguments": arguments, "_meta": meta})

    def open(self, agent: str, name: str, **more: object) -> Message:
        made = self.ask(agent, "create_session", name=name, backend="pty", working_directory=str(self.home), **more)
        assert not made.get("isError"), made
        return made["structuredContent"]

    def names(self, agent: str, run: str = "r1") -> list[str]:
        return [row["name"] for row in self.ask(agent, "list_sessions", run)["structuredContent"]["sessions"]]


@pytest.fixture(scope="module")
def module_home(homes: Path) -> Iterator[Path]:
    home = new_home(homes)
    yield home
    stop_daemons(home)


@pytest.fixture(scope="module")
def daemon(module_home: Path) -> Iterator[ServedHome]:
    daemon = ServedHome(module_home)
    with daemon.client:
        daemon.open("bob", "bobs")
        daemon.open("", "mine")
        yield daemon


def code(answer: Message) -> str:
    return answer["_meta"]["ai-session/error"]["code"] if answer.get("isError") else ""


def test_an_agent_lists_what_it_opened_and_the_user_all(daemon: ServedHome) -> None:
    assert daemon.names("bob") == ["bobs"]
    assert daemon.names("ada") == []
    assert daemon.names("bob", run="r2") == []
    assert {"bobs", "mine"} <= set(daemon.names(""))
    owners = {row["name"]: row.get("owner") for row in json.loads(CommandLine(daemon.home).out("ls", "--json"))}
    assert owners["bobs"] == "run:r1/agent:bob"
    assert owners["mine"] is None


@pytest.mark.parametrize("by", ["name", "session_id"])
@pytest.mark.parametrize("tool", ON_A_SESSION)
def test_no_tool_reaches_anothers_session(daemon: ServedHome, tool: str, by: str) -> None:
    for owner, name in (("bob", "bobs"), ("", "mine")):
        facts = daemon.ask(owner, "get_session_info", session_id=name)["structuredContent"]
        answer = daemon.ask("ada", tool, session_id=facts[by], **GIVEN.get(tool, {}))
        assert code(answer) == "session_not_found", answer
        reported = answer["content"][0]["text"]
        assert "open sessions: none" in reported, "not even names are told"
        assert daemon.ask(owner, "get_session_info", session_id=name)["structuredContent"]["commands"] == 0
    assert not (daemon.home / "loot").exists()


def test_a_name_is_free_that_another_uses_and_stands_for_ones_own(daemon: ServedHome) -> None:
    bobs, adas = daemon.open("bob", "build"), daemon.open("ada", "build")
    assert bobs["session_id"] != adas["session_id"]
    found = daemon.ask("ada", "get_session_info", session_id="build")["structuredContent"]
    assert found["session_id"] == adas["session_id"]
    both = daemon.ask("", "get_session_info", session_id="build")
    assert code(both) == "session_not_found"
    assert bobs["session_id"] in both["content"][0]["text"]
    assert code(daemon.ask("ada", "create_session", name="build", backend="pty")) == "session_exists"
    for agent in ("bob", "ada"):
        daemon.ask(agent, "close_session", session_id="build")
    assert "build" not in daemon.names("")


def test_a_person_ends_the_sessions_of_an_owner_or_of_a_run(daemon: ServedHome) -> None:
    cli = CommandLine(daemon.home)
    for run, agent, name in (
        ("k1", "ada", "one"),
        ("k1", "bob", "two"),
        ("k2.t", "ada", "three"),
        ("k2", "ada", "four"),
    ):
        daemon.ask(agent, "create_session", run, name=name, backend="pty", working_directory=str(daemon.home))
    ended = [
        json.loads(cli.out("kill", *words, "--json", "--yes"))["ended"]
        for words in (
            ("--owner", "run:k1/agent:bob"),
            ("--run", "k1"),
            ("--run", "k2"),
            ("--owner", "run:k2"),
        )
    ]
    assert [sorted(names) for names in ended] == [["two"], ["one"], ["four", "three"], []]
    assert {"bobs", "mine"} <= set(daemon.names(""))
    assert cli.run("kill", "--run", "k1", "--all", code=2).stderr.startswith("error: which sessions?")


def test_a_key_of_one_agent_opens_no_result_of_another(daemon: ServedHome) -> None:
    done = daemon.ask("bob", "execute_command", session_id="bobs", command="echo private", call_key="k1")
    assert done["structuredContent"]["output"] == "private\n"
    stolen = daemon.ask("ada", "execute_command", session_id="bobs", command="echo private", call_key="k1")
    assert code(stolen) == "session_not_found"


def test_a_person_shares_a_session_and_ends_that(daemon: ServedHome) -> None:
    cli = CommandLine(daemon.home)
    assert cli.out("share", "mine", "agent:ada") == ""
    assert daemon.names("ada") == ["mine"]
    daemon.ask("", "execute_command", session_id="mine", command="echo alone", call_key="k")
    run = daemon.ask("ada", "execute_command", session_id="mine", command="echo together", call_key="k")
    assert run["structuredContent"]["output"] == "together\n"
    assert daemon.names("bob") == ["bobs"]
    cli.out("share", "mine", "--nobody")
    assert daemon.names("ada") == []


def test_owners_outlive_the_daemon(daemon: ServedHome, module_home: Path) -> None:
    cli = CommandLine(module_home)
    cli.out("share", "bobs", "agent:eve")
    for pid in daemon_pids(module_home):
        os.kill(pid, signal.SIGKILL)
    cli.out("ls")
    with Client(env=living_in(module_home), cwd=module_home) as client:
        again = ServedHome.__new__(ServedHome)
        again.home = module_home
        again.client = client
        assert again.names("bob") == ["bobs"]
        assert again.names("eve") == ["bobs"]
        assert again.names("ada") == []
