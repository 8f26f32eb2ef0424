"""Consent as its user meets it: the real gate, real clients, verbs and terminals, the daemon killed meanwhile."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pexpect
import pytest
from mcp import Client as SdkClient
from mcp import StdioServerParameters
from mcp.client import ClientRequestContext
from mcp_types import ElicitRequestParams, ElicitResult, Implementation

from tests.ai_session.support import asking
from tests.ai_session.support.asking import FORMS, client, decide, error_of, fill, form, greet, modern, person
from tests.ai_session.support.mcp_client import (
    BOUND_SECONDS,
    SERVER,
    Client,
    Message,
    daemon_pids,
    living_in,
    stop_daemons,
)
from tests.conftest import new_home
from tests.support import forked
from tests.support.process_ends import kill_process

CONFIG = """
[sandbox]
profile = "trusted"

[[policy.rules]]
id = "openings"
decision = "allow"
tools = ["create_session"]
clients = ["wire-*"]

[[policy.rules]]
id = "never-there"
decision = "deny"
tools = ["create_session"]
paths = ["**/forbidden/**"]

[[policy.rules]]
id = "looks"
decision = "ask"
commands = ["git log"]
"""
"""Without a box every command is asked about."""

NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def module_home(homes: Path) -> Iterator[Path]:
    made = new_home(homes, CONFIG)
    forked.daemon(living_in(made))
    yield made
    if not daemon_pids(made):
        person(made, "ls")  # who starts adopts what a killed one left
    stop_daemons(made)


@pytest.fixture
def daemon_home(module_home: Path) -> Iterator[Path]:
    """A home whose gate asks, without sessions and questions."""
    yield module_home
    asking.as_before(module_home)


def named() -> str:
    """A client of whom nobody has heard."""
    return f"wire-{next(NUMBERS)}"


def opened(peer: Client, capabilities: Message) -> str:
    """With a session called main; the client's name."""
    name = named()
    greet(peer, capabilities, name=name)
    assert not peer.call("create_session", name="main", backend="pty")["isError"]
    return name


def execute(peer: Client, command: str, **arguments: Any) -> int:
    given = {"session_id": "main", "command": command, **arguments}
    return peer.request("tools/call", {"name": "execute_command", "arguments": given})


def ran(peer: Client, command: str, **arguments: Any) -> str:
    """What comes of a command: its output, or the code of what went wrong."""
    execute(peer, command, **arguments)
    return outcome(peer.answered())


def outcome(result: Message) -> str:
    return error_of(result)["code"] if result["isError"] else result["structuredContent"]["output"].strip()


def waiting(daemon_home: Path) -> list[Message]:
    return asking.approvals(daemon_home)["questions"]


@pytest.mark.anyio
@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.either("mode")
async def test_the_official_client_shows_the_command_and_one_answer_covers_what_begins_like_it(
    daemon_home: Path, mode: str
) -> None:
    seen: list[tuple[str, list[str]]] = []

    async def answer(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        schema: Any = params.requested_schema  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        choices = schema["properties"]["decision"]["enum"]
        seen.append((params.message, choices))
        return ElicitResult(action="accept", content={"decision": "prefix" if "prefix" in choices else "deny"})

    async def run(sdk: SdkClient, command: str) -> str:
        result = await sdk.call_tool("execute_command", {"session_id": "main", "command": command})
        return outcome(result.model_dump(by_alias=True))

    env = {"HOME": str(daemon_home), "PATH": os.environ["PATH"], "PYTHONPATH": str(asking.ROOT)}
    server = StdioServerParameters(command=SERVER[0], args=SERVER[1:], env=env, cwd=daemon_home)
    info = Implementation(name=named(), version="1")
    async with SdkClient(server, mode=mode, client_info=info, elicitation_callback=answer) as sdk:
        await sdk.call_tool("create_session", {"name": "main", "backend": "pty"})
        assert await run(sdk, "echo one") == "one"
        assert await run(sdk, "echo 'two words' -n") == "two words -n"
        assert await run(sdk, "echo $HOME") == "denied"
        assert await run(sdk, "sh -c 'echo one'") == "denied"
    assert [choices for _, choices in seen] == [
        ["once", "session", "always", "prefix", "deny"],
        *[["once", "session", "always", "deny"]] * 2,
    ]
    lines = seen[0][0].split("\n")
    assert lines[0] == f"{info.name} wants execute_command in session main ({daemon_home}, sandbox none):"
    assert lines[1] == "    echo one"
    assert lines[-2:] == [
        '"The same" means exactly this, to the letter.',
        '"Begins like it" means echo …, in plain words that only look below the directory.',
    ]
    (grant,) = asking.approvals(daemon_home)["grants"]
    assert (grant["scope"], grant["what"].partition(", ")[2]) == (
        "prefix",
        "execute_command, default:no-box, plain echo …",
    )


def test_without_forms_the_other_way_is_told_and_taken(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        opened(peer, {})
        error = error_of(peer.call("execute_command", session_id="main", command="ls -a nothing"))
        (question,) = waiting(daemon_home)
        assert error["code"] == "consent_needed"
        assert f"ai-session approve {question['question_id']}; then call again" in error["suggestion"]
        shown = person(daemon_home, "approvals")
        assert "    ls -a nothing\n" in shown
        assert '"Begins like it" means ls …' in shown
        person(daemon_home, "approve", question["question_id"], "--prefix", "--always", code=2)
        assert "Denied" in person(daemon_home, "reject", question["question_id"], "--reason", "not\x1b[2J this")
        execute(peer, "ls -a nothing")
        message = error_of(peer.answered())["message"]
        assert "a person said no to execute_command: not" in message
        assert ran(peer, "touch made") == "consent_needed"
        (question,) = waiting(daemon_home)
        assert "cannot be allowed for 'prefix'" in person(
            daemon_home, "approve", question["question_id"], "--prefix", code=2
        )
        asking.approve(daemon_home, question)
        assert [ran(peer, "touch made"), ran(peer, "touch made")] == ["", "consent_needed"]


def test_an_answer_holds_in_the_directory_that_was_shown(daemon_home: Path) -> None:
    (daemon_home / "below").mkdir()
    with client(daemon_home) as peer:
        opened(peer, {})
        assert ran(peer, "touch there") == "consent_needed"
        (shown,) = waiting(daemon_home)
        assert ran(peer, "cd below") == "consent_needed"
        asking.approve(daemon_home, waiting(daemon_home)[1])
        assert ran(peer, "cd below") == ""
        asking.approve(daemon_home, shown)
        assert ran(peer, "touch there") == "consent_needed"
        (asked,) = waiting(daemon_home)
        assert f"({daemon_home}/below, sandbox none)" in asked["message"]
        assert not (daemon_home / "below/there").exists()


def test_a_directory_that_changes_while_a_form_is_open_is_not_the_one_that_was_shown(daemon_home: Path) -> None:
    (daemon_home / "under").mkdir()
    with client(daemon_home) as peer:
        opened(peer, FORMS)
        first = execute(peer, "touch there")
        harmless = form(peer)
        second = execute(peer, "cd under")
        fill(peer, form(peer), decide("once"))
        moved = peer.read()
        assert (moved["id"], outcome(moved["result"])) == (second, "")
        fill(peer, harmless, decide("once"))
        refused = peer.read()
        assert refused["id"] == first
        error = error_of(refused["result"])
        assert (error["code"], error["suggestion"]) == ("denied", "make the call again if it is needed")
        assert (
            "the directory of its session was changed while the question about execute_command was open"
            in error["message"]
        )
        assert not (daemon_home / "under/there").exists()


def test_a_link_is_shown_as_what_it_leads_to_and_an_answer_is_for_that(daemon_home: Path) -> None:
    link = daemon_home / "link"
    for name in ("harmless", "private", "forbidden"):
        (daemon_home / name).mkdir()
    link.symlink_to("harmless")
    given = {"name": "main", "backend": "pty", "working_directory": str(link)}
    with client(daemon_home) as peer:
        greet(peer, FORMS, name="stranger")

        def turned(to: str) -> Message:
            """The form of a call whose directory is another when it is filled in."""
            peer.request("tools/call", {"name": "create_session", "arguments": given})
            asked = form(peer)
            link.unlink()
            link.symlink_to(to)
            return asked

        asked = turned("private")
        assert f"    {link}\n    leads to: {daemon_home}/harmless\n" in asked["params"]["message"]
        fill(peer, asked, decide("once"))
        assert "the target of its path was changed" in error_of(peer.answered())["message"]
        question = turned("harmless")
        (waits,) = [q for q in waiting(daemon_home) if f"    leads to: {daemon_home}/private\n" in q["message"]]
        fill(peer, question, {"action": "cancel"})
        assert error_of(peer.answered())["code"] == "denied"
        asking.approve(daemon_home, waits)
        peer.request("tools/call", {"name": "create_session", "arguments": given})
        fill(peer, form(peer), decide("deny"))
        assert error_of(peer.answered())["code"] == "denied"
        link.unlink()
        link.symlink_to("forbidden")
        assert "denied by never-there" in error_of(peer.call("create_session", **given))["message"]


def test_what_takes_the_name_of_a_session_meanwhile_is_not_what_was_judged(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        greet(peer, FORMS, name="stranger")
        asking.opened(daemon_home, "pty")
        peer.request("tools/call", {"name": "create_session", "arguments": {"name": "main", "backend": "pty"}})
        anew = form(peer)
        execute(peer, "touch there")
        typed = form(peer)
        assert not asking.control(daemon_home, "call", name="close_session", arguments={"session_id": "main"})[
            "is_error"
        ]
        fill(peer, anew, decide("once"))
        error = error_of(peer.answered())
        assert (error["code"], error["suggestion"]) == ("session_not_found", "make the call again to open another")
        asking.opened(daemon_home, "pty")
        fill(peer, typed, decide("once"))
        assert error_of(peer.answered())["code"] == "session_not_found"


def test_what_goes_to_standard_input_is_shown_and_bound(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        opened(peer, {})
        assert ran(peer, "sh", stdin="echo harmless") == "consent_needed"
        (question,) = waiting(daemon_home)
        assert "    sh\n    stdin: echo harmless\n" in question["message"]
        asking.approve(daemon_home, question, scope="always")
        assert ran(peer, "sh", stdin="echo harmless", timeout_seconds=20) == "harmless"
        assert ran(peer, "sh", stdin="echo harmful") == "consent_needed"
        assert ran(peer, "sh") == "consent_needed"


def test_the_environment_of_a_new_session_is_shown_and_bound(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        greet(peer, {}, name="stranger")
        given = {"name": "main", "backend": "pty", "env": {"BASH_ENV": "/tmp/x", "API_TOKEN": "hunter2hunter2"}}
        assert error_of(peer.call("create_session", **given))["code"] == "consent_needed"
        (question,) = waiting(daemon_home)
        assert '"BASH_ENV": "/tmp/x"' in question["message"]
        assert question["scopes"] == ["once", "always"]
        asking.approve(daemon_home, question, scope="always")
        assert not peer.call("create_session", **given)["isError"]
        other = {**given, "name": "other", "env": {"BASH_ENV": "/tmp/y"}}
        assert error_of(peer.call("create_session", **other))["code"] == "consent_needed"


def test_what_somebody_wrote_a_rule_about_is_asked_word_for_word(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        opened(peer, {})
        assert ran(peer, "git log -1") == "consent_needed"
        (question,) = waiting(daemon_home)
        assert (question["rule"], question["prefix"]) == ("looks", "")


@pytest.mark.torture  # by day test_consent_people.py has other keys, and the official client this answer
def test_one_key_at_an_attached_terminal_covers_what_begins_like_it(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        opened(peer, {})
        words = [*SERVER[1:3], "attach", "main"]
        env = {**living_in(daemon_home), "PYTHONPATH": str(asking.ROOT)}
        window: pexpect.spawn[bytes] = pexpect.spawn(
            SERVER[0], words, cwd=str(daemon_home), env=env, dimensions=(24, 80), timeout=BOUND_SECONDS
        )  # pyright: ignore[reportArgumentType, reportUnknownVariableType]
        window.expect_exact("$ " if os.geteuid() else "# ")
        execute(peer, "echo first")
        window.expect_exact("p echo …".encode())
        window.send(b"p")
        assert outcome(peer.answered()) == "first"
        assert ran(peer, "echo second") == "second"
        execute(peer, "echo $((1+1))")
        window.expect_exact("y once · s this session · a always · n deny".encode())
        window.send(b"p")
        window.send(b"n")
        assert outcome(peer.answered()) == "denied"
        window.send(b"\x1d")
        window.expect(pexpect.EOF)
        window.close()


def test_several_wait_at_once_and_each_gets_its_own_answer(daemon_home: Path) -> None:
    with ExitStack() as stack:
        peers = [stack.enter_context(client(daemon_home)) for _ in range(3)]
        names = [named() for _ in peers]
        for number, (peer, name) in enumerate(zip(peers, names, strict=True)):
            greet(peer, FORMS, name=name)
            assert not peer.call("create_session", name=f"s{number}", backend="pty")["isError"]
        forms: list[Message] = []
        for number, peer in enumerate(peers):
            given = {"session_id": f"s{number}", "command": f"echo {number} $X"}
            peer.request("tools/call", {"name": "execute_command", "arguments": given})
            forms.append(form(peer))
        questions = {question["client"]: question for question in waiting(daemon_home)}
        assert questions.keys() == {*names}
        assert "echo 1 $X" in questions[names[1]]["message"]
        asking.control(daemon_home, "reject", question_id=questions[names[2]]["question_id"])
        asking.approve(daemon_home, questions[names[1]])
        fill(peers[0], forms[0], decide("once"))
        assert outcome(peers[0].answered()) == "0"
        for peer, wanted in ((peers[1], "1"), (peers[2], "denied")):
            assert peer.read()["method"] == "notifications/cancelled"
            assert outcome(peer.answered()) == wanted
        assert waiting(daemon_home) == []


@pytest.mark.torture  # by day test_consent_people.py has questions and answers, and test_consent_mcp.py states
def test_questions_outlive_a_daemon_that_is_killed_and_so_do_answers_and_states(daemon_home: Path) -> None:
    def kill() -> None:
        for pid in daemon_pids(daemon_home):
            kill_process(pid)

    with client(daemon_home) as peer:
        name = opened(peer, FORMS)
        execute(peer, "echo form $X")
        form(peer)
        call = {**modern({"session_id": "main", "command": "echo state $X"}, name=name), "name": "execute_command"}
        peer.request("tools/call", call)
        state = peer.answered()["requestState"]
        kill()
    assert [
        ("form" in q["message"], "state" in q["message"])
        for q in json.loads(person(daemon_home, "approvals", "--json"))["questions"]
    ] == [(True, False), (False, True)]
    asking.approve(daemon_home, waiting(daemon_home)[0])
    kill()
    with client(daemon_home) as peer:
        greet(peer, {}, name=name)
        assert ran(peer, "echo form $X") == "form"
        assert ran(peer, "echo form $X") == "consent_needed"
        answered = {**call, "requestState": state, "inputResponses": {"decision": decide("once")}}
        assert outcome(peer.result("tools/call", answered)) == "state"
        assert peer.ask("tools/call", answered)["error"]["code"] == -32602


def test_a_session_without_a_box_cannot_answer_for_its_person(daemon_home: Path) -> None:
    line = " ".join(asking.VERBS)
    with client(daemon_home) as peer:
        opened(peer, {})
        assert ran(peer, "echo $X") == "consent_needed"
        (question,) = waiting(daemon_home)
        for dressed in ("", "setsid -w env -i HOME=$HOME "):
            command = f"{dressed}{line} approve {question['question_id']} --always; true"
            assert ran(peer, command) == "consent_needed"
            asked = next(q for q in waiting(daemon_home) if q["question_id"] != question["question_id"])
            asking.approve(daemon_home, asked)
            said = ran(peer, command)
            assert "inside a session" in said, said
        assert [q["question_id"] for q in waiting(daemon_home)] == [question["question_id"]]
        assert ran(peer, "echo $X") == "consent_needed"


SYSTEM_PYTHON = "/usr/bin/python3"
HELLO = '{"ai_session":1,"role":"control"}'
CONNECT = """
import socket
link = socket.socket(socket.AF_UNIX)
try:
    link.connect({path!r})
    link.sendall({lines!r}.encode())
    print(link.recv(65536))
except OSError as error:
    print(error.strerror)
"""


BOXED = """
[network]
ask = true

[[policy.rules]]
decision = "ask"
commands = ["date"]
"""


@pytest.fixture(scope="module")
def boxed_place(homes: Path) -> Iterator[Path]:
    made = new_home(homes, BOXED)
    (made / "ws").mkdir()
    yield made
    stop_daemons(made)


@pytest.fixture
def boxed(boxed_place: Path) -> Iterator[Path]:
    """A home with a workspace, where sessions have boxes."""
    yield boxed_place
    asking.as_before(boxed_place)


def test_from_a_box_nobody_even_finds_whom_to_answer(boxed: Path) -> None:
    workspace = boxed / "ws"
    with Client(asking.FAR, env={**living_in(boxed), "PYTHONPATH": str(asking.ROOT)}, cwd=workspace) as peer:
        opened(peer, {})
        assert ran(peer, "date") == "consent_needed"
        (question,) = waiting(boxed)
        sock = boxed / ".local/state/ai-session/sock"
        assert sock.exists()
        answer = {"id": 1, "method": "approve", "params": {"question_id": question["question_id"]}}
        (workspace / "answer").write_text(
            CONNECT.format(path=repr(str(sock)), lines=f"{HELLO}\n{json.dumps(answer)}\n")
        )
        assert ran(peer, f"{SYSTEM_PYTHON} answer 2>&1").endswith("No such file or directory")
        assert ran(peer, f"ls {sock} {sock.parent}/approvals 2>/dev/null; echo end") == "end"
        assert [q["question_id"] for q in waiting(boxed)] == [question["question_id"]]
        assert asking.approvals(boxed)["grants"] == []


def test_a_name_that_a_box_wants_is_asked_for_until_somebody_says(boxed: Path) -> None:
    """No name here resolves, so what is allowed fails otherwise than what is not."""
    request = r"GET http://example.invalid/ HTTP/1.1\r\nHost: example.invalid\r\n\r\n"
    script = f"exec 3<>/dev/tcp/127.0.0.1/${{http_proxy##*:}}; printf '{request}' >&3; head -n 1 <&3\n"
    (boxed / "ws/fetch").write_text(script)
    fetch = "bash fetch"
    env = {**living_in(boxed), "PYTHONPATH": str(asking.ROOT)}
    with Client(asking.FAR, env=env, cwd=boxed / "ws") as peer:
        name = opened(peer, {})
        assert "403 example.invalid: network needs a person's consent" in ran(peer, fetch)
        (question,) = waiting(boxed)
        assert (question["client"], question["tool"]) == (name, "network")
        assert question["message"].startswith(f"{name} wants network in session main:\n    example.invalid\n")
        person(boxed, "reject", question["question_id"])
        assert "a person refused example.invalid" in ran(peer, fetch)
        for mode in ("ask-all", "workspace"):
            assert asking.typed(boxed, "policy", mode=mode)["mode"] == mode
        assert "needs a person's consent" in ran(peer, fetch)
        (question,) = waiting(boxed)
        asking.approve(boxed, question, scope="always")
        assert "403" not in ran(peer, fetch)
        (grant,) = asking.approvals(boxed)["grants"]
        asking.control(boxed, "reject", question_id=grant["grant_id"])
        assert "needs a person's consent" in ran(peer, fetch)


def test_a_folder_and_all_below_is_what_it_says(boxed: Path) -> None:
    folder = boxed / "größe a"
    (folder / "deep").mkdir(parents=True)
    (boxed / "größe ab").mkdir()
    (folder / "way out").symlink_to(boxed / "größe ab")

    def opens(name: str, module_home: Path) -> str:
        result = peer.call("create_session", name=name, working_directory=str(module_home))
        return error_of(result)["code"] if result["isError"] else result["structuredContent"]["sandbox"]

    with Client(asking.FAR, env={**living_in(boxed), "PYTHONPATH": str(asking.ROOT)}, cwd=boxed / "ws") as peer:
        greet(peer, {}, name=named())
        assert opens("one", folder) == "consent_needed"
        (question,) = waiting(boxed)
        assert question["scopes"] == ["once", "always", "folder"]
        shown = person(boxed, "approvals")
        assert f'"This folder and all below" means every create_session in {folder} or in any directory' in shown
        asking.approve(boxed, question, scope="folder")
        box = opens("one", folder)
        assert box not in ("none", "consent_needed")
        assert opens("two", folder / "deep") == box
        assert [opens("three", module_home) for module_home in (folder / "way out", boxed / "größe ab")] == [
            "consent_needed"
        ] * 2
