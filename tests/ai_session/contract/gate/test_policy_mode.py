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
from tests.support.process_ends import kill_process

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
def module_home(homes: Path) -> Iterator[Path]:
    made = new_home(homes, CONFIG)
    yield made
    stop_daemons(made)


@pytest.fixture
def daemon_home(module_home: Path) -> Iterator[Path]:
    """A home whose policy asks, with a daemon that has the configured mode, no sessions and no questions."""
    yield module_home
    change(module_home, "workspace")
    asking.as_before(module_home)


@pytest.fixture
def own(homes: Path) -> Iterator[Path]:
    """The same with a daemon for one test."""
    made = new_home(homes, CONFIG)
    yield made
    stop_daemons(made)


def run(peer: Client, command: str = "true") -> str:
    """How a command ends: its exit code, or the code of what went wrong."""
    result = peer.call("execute_command", session_id="main", command=command)
    return error_of(result)["code"] if result["isError"] else str(result["structuredContent"]["exit_code"])


def change(daemon_home: Path, mode: str) -> None:
    """Set the mode as a person, without the second that a verb takes."""
    assert asking.typed(daemon_home, "policy", mode=mode)["mode"] == mode


def opened(peer: Client) -> None:
    greet(peer, {})
    assert not peer.call("create_session", name="main", backend="pty")["isError"]


def test_a_mode_holds_at_once_for_a_client_that_is_connected(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        opened(peer)
        assert run(peer) == "0"
        assert "Configured is workspace." in person(daemon_home, "policy", "mode", "read-only")
        assert run(peer) == "denied"
        assert not peer.call("list_sessions")["isError"]
        assert {"execute_command"} <= {tool["name"] for tool in peer.result("tools/list")["tools"]}
        change(daemon_home, "workspace")
        assert (run(peer), run(peer, "echo $HOME")) == ("0", "consent_needed")
        change(daemon_home, "trusted")
        assert run(peer, "echo $HOME") == "0"
        person(daemon_home, "policy", "mode", "yolo", code=2)
        assert person(daemon_home, "policy", "mode").startswith("trusted\n")


def test_what_is_shown_and_recorded(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        opened(peer)
        (newest,) = json.loads(person(daemon_home, "audit", "tail", "-n", "1", "--json"))
        before = asking.control(daemon_home, "policy")
        assert "runs\tallow\tcommands true, echo *" in person(daemon_home, "policy", "show")
        change(daemon_home, "ask-all")
        after = json.loads(person(daemon_home, "policy", "show", "--json"))
        assert (after["mode"], after["configured_mode"]) == ("ask-all", "workspace")
        assert (after["daemon"], after["file_differs"]) == (True, False)
        assert after["configured_sha256"] == before["policy_sha256"] != after["policy_sha256"]
        assert "warn\tpolicy\tmode ask-all, 3 rules; configured is workspace" in person(
            daemon_home, "doctor", code=None
        )
        assert '"default:ask-all"' in person(daemon_home, "policy", "explain", "--json", "--", "make")
        records = json.loads(person(daemon_home, "audit", "tail", "-n", "1000", "--json"))
        records = [r for r in records if r["seq"] > newest["seq"]]
        (begun,) = [r for r in records if r["event"] == "tool.start" and r["tool"] == "policy" and r["args"]]
        (ended,) = [r for r in records if r["event"] == "tool.end" and r["start"] == begun["seq"]]
        assert (begun["args"], begun["actor"]["kind"]) == ({"name": "ask-all"}, "person")
        assert (ended["outcome"], ended["mode"], ended["decision"]["mode"]) == ("ok", "ask-all", "workspace")
        file = daemon_home / ".config/ai-session/config.toml"
        file.write_text(CONFIG.replace('"echo *"', '"echo"'))
        assert "ai-session daemon restart" in person(daemon_home, "policy", "show")
        file.write_text(CONFIG)


def test_what_was_tightened_stays_so_when_the_daemon_is_killed_and_what_was_loosened_does_not(own: Path) -> None:
    def kill() -> None:
        for pid in daemon_pids(own):
            kill_process(pid)

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


def test_clients_and_sessions_tighten_but_never_loosen(daemon_home: Path) -> None:
    with client(daemon_home, far=False) as near:  # so the test itself, and the verbs it starts, are a client
        opened(near)
        change(daemon_home, "ask-all")
        assert asking.insider(daemon_home, "policy", "mode", "read-only", code=0).startswith("read-only")
        for mode in ("ask-all", "workspace", "trusted"):
            assert "only a person may loosen" in asking.control(daemon_home, "policy", mode=mode)["message"]
        refused = person(daemon_home, "policy", "mode", "trusted", code=1)
        assert "a client cannot answer for its person" in refused
        assert run(near) == "denied"
    assert "only a person may loosen" in asking.insider(daemon_home, "policy", "mode", "workspace", code=1)
    change(daemon_home, "workspace")


def test_a_client_is_known_before_it_calls_anything(daemon_home: Path) -> None:
    with client(daemon_home, far=False) as near:
        greet(near, {})
        assert "only a person may loosen" in asking.control(daemon_home, "policy", mode="trusted")["message"]


def test_a_client_of_another_daemon_makes_nobody_a_client_of_this_one(daemon_home: Path, own: Path) -> None:
    env = {**asking.living_in(own), "PYTHONPATH": str(asking.ROOT)}
    # In the test's own group: whatever the test starts belongs to that client, and so do the tests beside it.
    with Client(env=env, cwd=own, process_group=os.getpgrp()) as near:
        greet(near, {})
        assert "only a person may loosen" in person(own, "policy", "mode", "trusted", code=1)
        assert person(daemon_home, "policy", "mode", "trusted").startswith("trusted")


def test_a_command_of_a_session_tightens_but_does_not_loosen(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        opened(peer)
        change(daemon_home, "trusted")
        line = " ".join(asking.VERBS)
        assert run(peer, f"env -u AI_SESSION_ID {line} policy mode ask-all") == "0"
        change(daemon_home, "trusted")
        change(daemon_home, "workspace")
        command = f"setsid -w env -u AI_SESSION_ID {line} policy mode trusted"
        assert run(peer, command) == "consent_needed"
        (question,) = asking.approvals(daemon_home)["questions"]
        asking.approve(daemon_home, question)
        assert run(peer, command) == "1"
        assert asking.control(daemon_home, "policy")["mode"] == "workspace"


def test_questions_are_answered_in_every_mode(daemon_home: Path) -> None:
    """Read-only lets looking be, and a rule may ask even about that."""
    with client(daemon_home) as peer:
        greet(peer, {}, name="looker")
        change(daemon_home, "read-only")
        for verb, code in (("approve", ""), ("reject", "denied")):
            assert error_of(peer.call("list_sessions"))["code"] == "consent_needed"
            (question,) = asking.approvals(daemon_home)["questions"]
            person(daemon_home, verb, question["question_id"])
            result = peer.call("list_sessions")
            assert (error_of(result)["code"] if result["isError"] else "") == code
        assert error_of(peer.call("list_sessions"))["code"] == "consent_needed"
        (question,) = asking.approvals(daemon_home)["questions"]
        person(daemon_home, "approve", question["question_id"], "--always")
        (grant,) = asking.approvals(daemon_home)["grants"]
        person(daemon_home, "reject", grant["grant_id"])
        assert error_of(peer.call("list_sessions"))["code"] == "consent_needed"


def test_a_state_of_another_mode_is_asked_about_again_or_denied(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        opened(peer)
        call = {**modern({"session_id": "main", "command": "make"}), "name": "execute_command"}
        state = peer.result("tools/call", call)["requestState"]
        answered = {**call, "requestState": state, "inputResponses": {"decision": asking.decide("once")}}
        change(daemon_home, "read-only")
        assert error_of(peer.result("tools/call", answered))["code"] == "denied"
        change(daemon_home, "ask-all")
        assert peer.result("tools/call", answered)["resultType"] == "input_required"


def test_a_call_that_waits_for_an_answer_is_overtaken_by_another_mode(daemon_home: Path) -> None:
    with client(daemon_home) as peer:
        greet(peer, asking.FORMS)
        assert not peer.call("create_session", name="main", backend="pty")["isError"]
        given = {"session_id": "main", "command": "touch made"}
        wanted = peer.request("tools/call", {"name": "execute_command", "arguments": given})
        asked = asking.form(peer)
        change(daemon_home, "read-only")
        withdrawn, answer = peer.read(), peer.read()
        assert withdrawn["params"]["requestId"] == asked["id"]
        assert answer["id"] == wanted
        assert "the policy was changed while" in error_of(answer["result"])["message"]
        asking.fill(peer, asked, asking.decide("always"))
        assert peer.result("ping") == {}
        assert asking.approvals(daemon_home) == {"questions": [], "grants": []}
        assert not (daemon_home / "made").exists()
