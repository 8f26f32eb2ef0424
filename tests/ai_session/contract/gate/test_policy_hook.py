"""A daemon with a decision hook: its word is the client's and the person's answer, and no session is stuck with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ai_session.support import asking
from tests.ai_session.support.asking import client, error_of, greet, person
from tests.ai_session.support.mcp_client import Client, daemon_pids, stop_daemons
from tests.conftest import UNBOXED, WINDOWS, new_home
from tests.support.process_ends import kill_process

HOOK = """#!/bin/sh
question=$(cat)
printf '%s\\n' "$question" >> {home}/asked
case $question in
*forbidden*) echo '{{"decision": "deny", "reason": "Never that."}}';;
*perhaps*) echo '{{"decision": "ask", "reason": "Is that so?"}}';;
*broken*) exit 7;;
*) echo '{{"decision": "allow"}}';;
esac
"""
RULE = '\n[[policy.rules]]\nid = "no"\ndecision = "deny"\ncommands = ["reboot"]\n'


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    made = new_home(homes)
    hook = made / ".config/ai-session/hook"
    hook.write_text(HOOK.format(home=made))
    hook.chmod(0o755)
    text = f'[sandbox]\nprofile = "trusted"\n\n[policy]\nmode = "trusted"\nhook = ["{hook}"]\n' + RULE
    (made / ".config/ai-session/config.toml").write_text(text + WINDOWS)
    yield made
    stop_daemons(made)


@pytest.fixture(scope="module")
def peer(daemon_home: Path) -> Iterator[Client]:
    with client(daemon_home) as found:
        greet(found, {})
        assert not found.call("create_session", name="main", backend="pty")["isError"]
        yield found


def refused(peer: Client, command: str) -> dict[str, str]:
    return error_of(peer.call("execute_command", session_id="main", command=command))


def test_its_decisions_hold_with_their_reasons(daemon_home: Path, peer: Client) -> None:
    assert not peer.call("execute_command", session_id="main", command="true")["isError"]
    denied = refused(peer, "echo forbidden")
    assert denied["code"] == "denied"
    assert "denied by hook: Never that." in denied["message"]
    assert refused(peer, "echo perhaps")["code"] == "consent_needed"
    question = asking.approvals(daemon_home)["questions"][-1]
    assert (question["rule"], "Is that so?" in question["message"]) == ("hook", True)
    asking.approve(daemon_home, question)
    assert not peer.call("execute_command", session_id="main", command="echo perhaps")["isError"]


def test_what_the_rules_deny_stays_denied(peer: Client) -> None:
    assert "denied by no" in refused(peer, "reboot")["message"]


def test_a_broken_one_denies_and_says_so_and_what_runs_can_be_ended(daemon_home: Path, peer: Client) -> None:
    failed = refused(peer, "echo broken")
    assert failed["code"] == "hook_failed"
    assert "failed, so nothing was run: it ended with status 7" in failed["message"]
    assert not peer.call("create_session", name="second", backend="pty")["isError"]
    assert error_of(peer.call("read_output", session_id="broken"))["code"] == "session_not_found"
    assert not peer.call("close_session", session_id="second")["isError"]


def test_it_sees_the_call_without_secrets(daemon_home: Path, peer: Client) -> None:
    secret = "ghp_" + "A1b2C3d4" * 4 + "E5f6"
    peer.call("execute_command", session_id="main", command=f"true {secret}")
    asked = [json.loads(line) for line in (daemon_home / "asked").read_text().splitlines()]
    found = asked[-1]
    assert secret not in json.dumps(asked)
    assert found["tool"] == "execute_command"
    assert found["arguments"]["command"].startswith("true ")
    assert (found["principal"]["kind"], found["session"]["name"], found["box"]["level"]) == ("mcp", "main", "none")
    assert found["decision"]["verdict"] == "allow"
    assert found["directory"] == str(daemon_home)


def test_the_verbs_tell_of_it_and_are_bound_by_it(daemon_home: Path, peer: Client) -> None:
    assert f"Asked before each call: {daemon_home}/.config/ai-session/hook" in person(daemon_home, "policy", "show")
    assert "denied by hook: Never that." in person(daemon_home, "exec", "main", "--", "echo", "forbidden", code=None)
    assert "denied by hook: Never that." in person(
        daemon_home, "sandbox", "--profile", "workspace", "--", "echo", "forbidden", code=125
    )


def test_one_that_is_missing_lets_nothing_run_but_everything_can_be_ended(homes: Path) -> None:
    made = new_home(homes)
    hook = made / ".config/ai-session/hook"
    hook.write_text(HOOK.format(home=made))
    hook.chmod(0o755)
    (made / ".config/ai-session/config.toml").write_text(f'{UNBOXED}hook = ["{hook}"]\n' + WINDOWS)
    with client(made) as peer:
        greet(peer, {})
        for name in ("one", "two"):
            assert not peer.call("create_session", name=name, backend="pty")["isError"]
    for pid in daemon_pids(made):
        kill_process(pid)
    hook.unlink()
    with client(made) as peer:
        greet(peer, {})
        failed = error_of(peer.call("execute_command", session_id="one", command="true"))
        assert (failed["code"], "is not a program that can be run" in failed["message"]) == ("hook_failed", True)
        assert error_of(peer.call("list_sessions"))["code"] == "hook_failed"
    assert json.loads(person(made, "kill", "--all", "--yes", "--json"))["ended"] == ["one", "two"]
    assert json.loads(person(made, "ls", "--json")) == []
    stop_daemons(made)
