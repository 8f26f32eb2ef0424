"""Sessions are made and ended once, also when the call comes again: with its result on record, and without it because
the daemon was killed before it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ai_session.client.connection import ControlClient
from ai_session.errors import CallKeyConflict, SessionExists, SessionNotFound
from tests.ai_session.support.command_line import CommandLine
from tests.ai_session.support.mcp_client import runtime
from tests.support.process_ends import kill_process


@pytest.fixture
def line(home: Path) -> Iterator[CommandLine]:
    with CommandLine(home) as line:
        yield line


def facts(client: ControlClient, tool: str, **given: Any) -> Any:
    return client.call(tool, **given).structured


def kill_before_it_is_on_record(line: CommandLine) -> None:
    """The daemon is gone, and what it noted of calls is that they were begun."""
    kill_process(line.daemon_pid())
    for record in (runtime(line.home) / "calls").glob("*.json"):
        begun = json.loads(record.read_bytes())
        begun.pop("result")
        record.write_text(json.dumps(begun))


def test_a_call_with_its_result_on_record(line: CommandLine) -> None:
    with line.client() as client:
        made = facts(client, "create_session", name="a", call_key="k1")
        assert facts(client, "create_session", name="a", call_key="k1") == made
        closed = facts(client, "close_session", session_id="a", call_key="k2")
        assert facts(client, "close_session", session_id="a", call_key="k2") == closed
        with pytest.raises(SessionNotFound):
            client.call("close_session", session_id="a", call_key="k3")
        with pytest.raises(SessionNotFound):
            client.call("close_session", session_id="a")


def test_a_call_meets_only_the_session_it_was_made_for(line: CommandLine) -> None:
    ran = {"session_id": "a", "command": "echo $((6 * 7))", "call_key": "k"}
    with line.client() as client:
        first = facts(client, "create_session", name="a", call_key="k")
        facts(client, "execute_command", **ran)
        closed = facts(client, "close_session", session_id="a", call_key="k")
        with pytest.raises(CallKeyConflict):
            client.call("create_session", name="a", call_key="k")
        with pytest.raises(SessionNotFound):
            client.call("execute_command", **ran)
        assert facts(client, "close_session", session_id="a", call_key="k") == closed
        second = facts(client, "create_session", name="a")
        for tool, given in (
            ("create_session", {"name": "a", "call_key": "k"}),
            ("execute_command", ran),
            ("close_session", {"session_id": "a", "call_key": "k"}),
        ):
            with pytest.raises(CallKeyConflict, match=first["session_id"]):
                client.call(tool, **given)
        assert facts(client, "get_session_info", session_id="a")["commands"] == 0
        assert [one["session_id"] for one in facts(client, "list_sessions")["sessions"]] == [second["session_id"]]


def test_a_session_that_was_made_by_a_daemon_that_was_killed(line: CommandLine) -> None:
    with line.client() as client:
        made = facts(client, "create_session", name="a", call_key="k1")
    kill_before_it_is_on_record(line)
    with line.client() as client:
        assert facts(client, "create_session", name="a", call_key="k1")["session_id"] == made["session_id"]
        with pytest.raises(SessionExists):
            client.call("create_session", name="a", call_key="k2")
        facts(client, "close_session", session_id="a", call_key="k3")
    kill_before_it_is_on_record(line)
    with line.client() as client:
        assert facts(client, "close_session", session_id="a", call_key="k3")["closed"]
        assert facts(client, "list_sessions")["sessions"] == []
        facts(client, "create_session", name="a", call_key="k4")


@pytest.mark.torture
def test_a_shell_that_was_started_anew_by_a_daemon_that_was_killed(line: CommandLine) -> None:
    with line.client() as client:
        first = facts(client, "create_session", name="a", call_key="k1")
        client.call("execute_command", session_id="a", command="kill -9 $$")
        again = facts(client, "create_session", name="a", call_key="k2")
        assert again["session_id"] == first["session_id"]
    kill_before_it_is_on_record(line)
    with line.client() as client:
        assert facts(client, "create_session", name="a", call_key="k2")["state"] == "ready"


def test_a_command_of_a_daemon_that_was_killed_before_it_began(line: CommandLine) -> None:
    ran = line.home / "ran"
    given = {"session_id": "a", "command": f"echo x >>{ran}", "call_key": "k1"}
    with line.client() as client:
        made = facts(client, "create_session", name="a")
        facts(client, "execute_command", **given)
    kill_before_it_is_on_record(line)
    # As if it had not come so far as to put the command on record.
    for name in ("history.jsonl", "shell/c"):
        (runtime(line.home) / "sessions" / made["session_id"] / name).unlink()
    with line.client() as client:
        assert facts(client, "execute_command", **given)["exit_code"] == 0
        assert facts(client, "execute_command", **given)["exit_code"] == 0
        assert ran.read_text() == "x\nx\n"
    kill_before_it_is_on_record(line)
    with line.client() as client:
        facts(client, "close_session", session_id="a")
        facts(client, "create_session", name="a")
        with pytest.raises(CallKeyConflict):
            client.call("execute_command", **given)
