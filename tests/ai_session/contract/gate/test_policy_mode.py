"""The mode while a daemon runs: set by verb, at once for everybody, on record, loosened by nobody but a person."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ai_session.support import asking
from tests.ai_session.support.asking import client, error_of, greet, modern, person
from tests.ai_session.support.mcp_client import Client, daemon_pids, stop_daemons
from tests.conftest import new_home

CONFIG = """
[sandbox]
profile = "trusted"

[policy]
mode = "workspace"

[[policy.rules]]
id = "runs"
decision = "allow"
commands = ["true", "echo *"]

[[policy.rules]]
id = "openings"
decision = "allow"
tools = ["create_session"]

[[policy.rules]]
id = "looks"
decision = "ask"
tools = ["list_sessions"]
clients = ["looker"]
"""
"""Sessions without a box, for these tests need none; what runs in them is allowed by rule."""


@pytest.fixture(scope="module")
def place(world: Path) -> Iterator[Path]:
    made = new_home(world, CONFIG)
    yield made
    stop_daemons(made)


@pytest.fixture
def house(place: Path) -> Iterator[Path]:
    """A home whose policy asks, with a daemon that has the configured mode, no sessions and no questions."""
    yield place
    change(place, "workspace")
    asking.as_before(place)


@pytest.fixture
def own(world: Path) -> Iterator[Path]:
    """The same with a daemon for one test."""
    made = new_home(world, CONFIG)
    yield made
    stop_daemons(made)


def run(peer: Client, command: str = "true") -> str:
    """How a command ends: its exit code, or the code of what went wrong."""
    result = peer.call("execute_command", session_id="main", command=command)
    return error_of(result)["code"] if result["isError"] else str(result["structuredContent"]["exit_code"])


def change(house: Path, mode: str) -> None:
    """Set the mode as a person, without the second that a verb takes."""
    assert asking.typed(house, "policy", mode=mode)["mode"] == mode


def opened(peer: Client) -> None:
    greet(peer, {})
    assert not peer.call("create_session", name="main", backend="pty")["isError"]


def test_a_mode_holds_at_once_for_a_client_that_is_connected(house: Path) -> None:
    with client(house) as peer:
        opened(peer)
        assert run(peer) == "0"
        assert "Configured is workspace." in person(house, "policy", "mode", "read-only")
        assert run(peer) == "denied"
        assert not peer.call("list_sessions")["isError"]
        assert {"execute_command"} <= {tool["name"] for tool in peer.result("tools/list")["tools"]}
        change(house, "workspace")
        assert (run(peer), run(peer, "echo $HOME")) == ("0", "consent_needed")
        change(house, "trusted")
        assert run(peer, "echo $HOME") == "0"
        person(house, "policy", "mode", "yolo", code=2)
        assert person(house, "policy", "mode").startswith("trusted\n")


def test_what_is_shown_and_recorded(house: Path) -> None:
    with client(house) as peer:
        opened(peer)
        (newest,) = json.loads(person(house, "audit", "tail", "-n", "1", "--json"))
        before = asking.control(house, "policy")
        assert "runs\tallow\tcommands true, echo *" in person(house, "policy", "show")
        change(house, "ask-all")
        after = json.loads(person(house, "policy", "show", "--json"))
        assert (after["mode"], after["configured_mode"]) == ("ask-all", "workspace")
        assert (after["daemon"], after["file_differs"]) == (True, False)
        assert after["configured_sha256"] == before["policy_sha256"] != after["policy_sha256"]
        assert "warn\tpolicy\tmode ask-all, 3 rules; configured is workspace" in person(house, "doctor", code=None)
        assert '"default:ask-all"' in person(house, "policy", "explain", "--json", "--", "make")
        records = json.loads(person(house, "audit", "tail", "-n", "1000", "--json"))
        records = [r for r in records if r["seq"] > newest["seq"]]
        (begun,) = [r for r in records if r["event"] == "tool.start" and r["tool"] == "policy" and r["args"]]
        (ended,) = [r for r in records if r["event"] == "tool.end" and r["start"] == begun["seq"]]
        assert (begun["args"], begun["actor"]["kind"]) == ({"name": "ask-all"}, "person")
        assert (ended["outcome"], ended["mode"], ended["decision"]["mode"]) == ("ok", "ask-all", "workspace")
        file = house / ".config/ai-session/config.toml"
        file.write_text(CONFIG.replace('"echo *"', '"echo"'))
        assert "ai-session daemon restart" in person(house, "policy", "show")
        file.write_text(CONFIG)


def test_what_was_tightened_stays_so_when_the_daemon_is_killed_and_what_was_loosened_does_not(own: Path) -> None:
    def kill() -> None:
        for pid in daemon_pids(own):
            asking.killed_by_id(pid)

    person(own, "policy", "mode", "read-only")
    kill()
    assert json.loads(person(own, "policy", "mode", "--json"))["mode"] == "read-only"
    assert not daemon_pids(own)
    with client(own) as peer:
        greet(peer, {})
        assert error_of(peer.call("create_session", name="main"))["code"] == "denied"
        person(own, "policy", "mode", "trusted")
        assert not peer.call("create_session", name="main", backend="pty")["isError"]
        kill()
    assert person(own, "policy", "mode") == "workspace\n"
    assert "main" in person(own, "ls")


def test_clients_and_sessions_tighten_but_never_loosen(house: Path) -> None:
    with client(house, far=False) as near:  # so the test itself, and the verbs it starts, are a client
        opened(near)
        change(house, "ask-all")
        assert asking.insider(house, "policy", "mode", "read-only", code=0).startswith("read-only")
        for mode in ("ask-all", "workspace", "trusted"):
            assert "only a person may loosen" in asking.control(house, "policy", mode=mode)["message"]
        refused = person(house, "policy", "mode", "trusted", code=1)
        assert "a client cannot answer for its person" in refused
        assert run(near) == "denied"
    assert "only a person may loosen" in asking.insider(house, "policy", "mode", "workspace", code=1)
    change(house, "workspace")


def test_a_client_is_known_before_it_calls_anything(house: Path) -> None:
    with client(house, far=False) as near:
        greet(near, {})
        assert "only a person may loosen" in asking.control(house, "policy", mode="trusted")["message"]


def test_a_client_of_another_daemon_makes_nobody_a_client_of_this_one(house: Path, own: Path) -> None:
    env = {**asking.living_in(own), "PYTHONPATH": str(asking.ROOT)}
    # In the test's own group: whatever the test starts belongs to that client, and so do the tests beside it.
    with Client(env=env, cwd=own, process_group=os.getpgrp()) as near:
        greet(near, {})
        assert "only a person may loosen" in person(own, "policy", "mode", "trusted", code=1)
        assert person(house, "policy", "mode", "trusted").startswith("trusted")


def test_a_command_of_a_session_tightens_but_does_not_loosen(house: Path) -> None:
    with client(house) as peer:
        opened(peer)
        change(house, "trusted")
        line = " ".join(asking.VERBS)
        assert run(peer, f"env -u AI_SESSION_ID {line} policy mode ask-all") == "0"
        change(house, "trusted")
        change(house, "workspace")
        for words in ("env -u AI_SESSION_ID", "setsid -w"):
            command = f"{words} {line} policy mode trusted"
            assert run(peer, command) == "consent_needed"
            (question,) = asking.approvals(house)["questions"]
            asking.approve(house, question)
            assert run(peer, command) == "1"
        assert asking.control(house, "policy")["mode"] == "workspace"


def test_questions_are_answered_in_every_mode(house: Path) -> None:
    """Read-only lets looking be, and a rule may ask even about that."""
    with client(house) as peer:
        greet(peer, {}, name="looker")
        change(house, "read-only")
        for verb, code in (("approve", ""), ("reject", "denied")):
            assert error_of(peer.call("list_sessions"))["code"] == "consent_needed"
            (question,) = asking.approvals(house)["questions"]
            person(house, verb, question["question_id"])
            result = peer.call("list_sessions")
            assert (error_of(result)["code"] if result["isError"] else "") == code
        assert error_of(peer.call("list_sessions"))["code"] == "consent_needed"
        (question,) = asking.approvals(house)["questions"]
        person(house, "approve", question["question_id"], "--always")
        (grant,) = asking.approvals(house)["grants"]
        person(house, "reject", grant["grant_id"])
        assert error_of(peer.call("list_sessions"))["code"] == "consent_needed"


def test_a_state_of_another_mode_is_asked_about_anew_or_denied(house: Path) -> None:
    with client(house) as peer:
        opened(peer)
        call = {**modern({"session_id": "main", "command": "make"}), "name": "execute_command"}
        state = peer.result("tools/call", call)["requestState"]
        answered = {**call, "requestState": state, "inputResponses": {"decision": asking.decide("once")}}
        change(house, "read-only")
        assert error_of(peer.result("tools/call", answered))["code"] == "denied"
        change(house, "ask-all")
        assert peer.result("tools/call", answered)["resultType"] == "input_required"


def test_a_call_that_waits_for_an_answer_is_overtaken_by_another_mode(house: Path) -> None:
    with client(house) as peer:
        greet(peer, asking.FORMS)
        assert not peer.call("create_session", name="main", backend="pty")["isError"]
        given = {"session_id": "main", "command": "touch made"}
        wanted = peer.request("tools/call", {"name": "execute_command", "arguments": given})
        asked = asking.form(peer)
        change(house, "read-only")
        withdrawn, answer = peer.read(), peer.read()
        assert withdrawn["params"]["requestId"] == asked["id"]
        assert answer["id"] == wanted
        assert "the policy was changed while" in error_of(answer["result"])["message"]
        asking.fill(peer, asked, asking.decide("always"))
        assert peer.result("ping") == {}
        assert asking.approvals(house) == {"questions": [], "grants": []}
        assert not (house / "made").exists()
