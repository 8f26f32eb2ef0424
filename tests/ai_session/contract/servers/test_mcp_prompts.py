"""Prompts on the wire: what they gather, and how wrong arguments are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ai_session.support.mcp_client import Client, Message, living_in, stop_daemons
from tests.conftest import new_home

ERAS = pytest.mark.parametrize("modern", [False, True], ids=["handshake", "2026"])
RULES = """
[sandbox]
profile = "trusted"

[policy]
mode = "trusted"

[[policy.rules]]
id = "no-push"
decision = "deny"
commands = ["git push"]
"""


class ServedHome:
    """One daemon with a session ``build`` in which things were done, and a client of it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.client = Client(env=living_in(home), cwd=home)
        self.client.initialize()
        for name in ("build", "empty"):
            self.client.call("create_session", name=name, backend="pty", working_directory=str(home))
        self.failed = self.run("echo compiling; echo 'error: no rule' >&2; (exit 2)")["command_id"]
        self.run("echo later")
        refused = self.client.call("execute_command", session_id="build", command="git push origin")
        assert refused["isError"]

    def run(self, command: str, **more: object) -> Message:
        return self.client.call("execute_command", session_id="build", command=command, **more)["structuredContent"]

    def prompt(self, name: str, *, modern: bool = False, **arguments: str) -> tuple[str, list[Message]]:
        """The words, and the resources that go with them."""
        result = self.client.result("prompts/get", {"name": name, "arguments": arguments}, modern=modern)
        assert result["description"]
        words, *resources = [message["content"] for message in result["messages"]]
        assert {message["role"] for message in result["messages"]} == {"user"}
        assert {resource["type"] for resource in resources} <= {"resource"}
        return words["text"], [resource["resource"] for resource in resources]


@pytest.fixture(scope="module")
def daemon(homes: Path) -> Iterator[ServedHome]:
    home = new_home(homes, RULES)
    daemon = ServedHome(home)
    with daemon.client:
        yield daemon
    stop_daemons(home)


@ERAS
def test_28_prompts_are_listed_with_their_arguments(daemon: ServedHome, modern: bool) -> None:
    listed = daemon.client.result("prompts/list", modern=modern)["prompts"]
    assert [prompt["name"] for prompt in listed] == ["diagnose_command", "hand_over", "review_session"]
    for prompt in listed:
        assert prompt["title"]
        assert prompt["description"]
        assert [each["name"] for each in prompt["arguments"] if each["required"]] == ["session"]
        for argument in prompt["arguments"]:
            ref = {"type": "ref/prompt", "name": prompt["name"]}
            asked = {"ref": ref, "argument": {"name": argument["name"], "value": ""}}
            asked["context"] = {"arguments": {"session": "build"}}
            values = daemon.client.result("completion/complete", asked, modern=modern)["completion"]["values"]
            assert bool(values) == (argument["name"] != "task")
            assert "all" not in values


@ERAS
def test_28_a_diagnosis_has_the_command_its_end_and_its_output(daemon: ServedHome, modern: bool) -> None:
    words, (output,) = daemon.prompt("diagnose_command", modern=modern, session="build", command_id=daemon.failed)
    assert "command: echo compiling; echo 'error: no rule' >&2; (exit 2)" in words
    assert "result: exit code 2" in words
    assert f"directory: {daemon.home}" in words
    assert output["text"] == "compiling\nerror: no rule\n"
    assert output["uri"].endswith(f"/output/{daemon.failed}")
    newest, (output,) = daemon.prompt("diagnose_command", modern=modern, session="build")
    assert "command: echo later" in newest
    assert output["text"] == "later\n"


def test_28_a_hand_over_says_how_to_attach_and_what_waits(daemon: ServedHome) -> None:
    begun = daemon.run("read -p 'Your name: ' name", timeout_seconds=0)
    given = {"session_id": "build", "command_id": begun["command_id"], "wait_for": "input"}
    assert daemon.client.call("read_output", **given)["structuredContent"]["waited"] == "input"
    words, (screen,) = daemon.prompt("hand_over", session="build", task="Type your name.")
    assert "ai-session attach build" in words
    assert "What the person is to do: Type your name." in words
    assert "waits for: a line of input" in words
    assert f"running: read -p 'Your name: ' name ({begun['command_id']})" in words
    assert "Your name:" in screen["text"]
    daemon.client.call("send_input", session_id="build", text="Ada", keys=["Enter"])
    daemon.client.call("read_output", session_id="build", wait_for="finish")


@ERAS
def test_28_a_review_joins_the_record_with_what_commands_came_to(daemon: ServedHome, modern: bool) -> None:
    words, resources = daemon.prompt("review_session", modern=modern, session="build")
    assert resources == []
    record = [line for line in words.splitlines() if ": execute_command" in line]
    assert "wire: execute_command `echo compiling; echo 'error: no rule' >&2; (exit 2)` → ok exit code 2" in record[0]
    assert "`git push origin` → denied (denied) by rule no-push" in record[2]
    assert words.index("create_session") < words.index("echo compiling")


@ERAS
@pytest.mark.parametrize(
    ("name", "arguments", "problems"),
    [
        ("nothing", {}, ["no prompt 'nothing'", "diagnose_command, hand_over, review_session"]),
        ("hand_over", {}, ["session is required", "arguments: session, task?"]),
        ("hand_over", {"sesion": "x", "session": ""}, ["no argument 'sesion'", "session is required"]),
        ("hand_over", {"session": "../x"}, ["session is not the id or name of a session"]),
        ("hand_over", {"session": "nobody"}, ["no session 'nobody'"]),
        ("review_session", {"session": "nobody"}, ["no session 'nobody'"]),
        ("diagnose_command", {"session": "build", "command_id": "a/b"}, ["command_id is not the id of a command"]),
        ("diagnose_command", {"session": "build", "command_id": "all"}, ["command_id is not the id of a command"]),
        ("diagnose_command", {"session": "build", "command_id": "cmd_x"}, ["'build' ran no command 'cmd_x'"]),
        ("diagnose_command", {"session": "empty"}, ["'empty' has run no command yet"]),
    ],
)
def test_28_all_wrong_arguments_are_reported(
    daemon: ServedHome, name: str, arguments: Message, problems: list[str], modern: bool
) -> None:
    error = daemon.client.ask("prompts/get", {"name": name, "arguments": arguments}, modern=modern)["error"]
    assert error["code"] == -32602
    for problem in problems:
        assert problem in error["message"]
