"""Rate limits as a client meets them: told when to come back, still connected, and nobody else any slower."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ai_session.support import asking
from tests.ai_session.support.asking import FORMS, client, error_of, greet, modern, person
from tests.ai_session.support.mcp_client import Client, Message, stop_daemons
from tests.conftest import UNBOXED, new_home

CONFIG = (
    UNBOXED
    + """
[rates]
read_per_minute = 60
effect_per_minute = 6
sessions_per_minute = 1
output_bytes_per_minute = 65536
questions_per_minute = 1

[[policy.rules]]
id = "asks"
decision = "ask"
commands = ["deploy"]
"""
)


NUMBERS = itertools.count(1)
Two = tuple[Client, Client, str]


@pytest.fixture(scope="module")
def module_home(homes: Path) -> Iterator[Path]:
    made = new_home(homes, CONFIG)
    yield made
    stop_daemons(made)


@pytest.fixture
def slow(home: Path) -> Iterator[Two]:
    """As ``two``, with a daemon that lets a client do something twice a minute."""
    (home / ".config/ai-session/config.toml").write_text(
        CONFIG.replace("effect_per_minute = 6", "effect_per_minute = 2")
    )
    yield from clients(home)
    stop_daemons(home)


@pytest.fixture
def two(module_home: Path) -> Iterator[Two]:
    """Clients of whom nobody has heard, one and other, in a home with these limits; a name for a session."""
    yield from clients(module_home)


def clients(module_home: Path) -> Iterator[Two]:
    number = next(NUMBERS)
    with client(module_home) as one, client(module_home) as other:
        greet(one, {}, name=f"one-{number}")
        greet(other, {}, name=f"other-{number}")
        yield one, other, f"s-{number}"


def refused(result: Message, kind: str) -> float:
    """The seconds after which a client may come back."""
    error: dict[str, Any] = error_of(result)
    assert error["code"] == "rate_limited", result
    assert f"of kind {kind} " in error["message"]
    assert f"rates.{kind}_per_minute" in error["suggestion"]
    assert f"call again in {error['retry_after_seconds']:g} s" in error["suggestion"]
    assert f"{error['retry_after_seconds']:g} s" in result["content"][0]["text"]
    return error["retry_after_seconds"]


def allowed(result: Message) -> Message:
    assert not result["isError"], result
    return result


def looked_too_often(one: Client) -> float:
    """What it is told at last."""
    looks = 0
    while not (result := one.call("list_sessions"))["isError"]:
        looks += 1
    assert 60 <= looks < 600
    return refused(result, "read")


def test_looking_and_who_comes_back_when_told_to(two: Two) -> None:
    one, other, session = two
    seconds = looked_too_often(one)
    assert 0 < seconds <= 1
    assert one.result("ping") == {}
    assert one.result("tools/list")["tools"]
    allowed(one.call("create_session", name=session, backend="pty"))
    allowed(other.call("list_sessions"))
    with pytest.raises(TimeoutError):
        one.line(seconds)
    allowed(one.call("list_sessions"))


def test_doing(slow: Two, home: Path) -> None:
    one, other, session = slow
    allowed(one.call("create_session", name=session, backend="pty", working_directory=str(home)))
    allowed(one.call("execute_command", session_id=session, command="true"))
    for tool, arguments in (("execute_command", {"command": "touch made"}), ("send_input", {"text": "x"})):
        for _ in range(2):
            assert 0 < refused(one.call(tool, session_id=session, **arguments), "effect") <= 30
    refused(one.call("close_session", session_id=session), "effect")
    allowed(one.call("get_session_info", session_id=session))
    looked = allowed(other.call("execute_command", session_id=session, command="test -e made"))
    assert looked["structuredContent"]["exit_code"] == 1


def test_opening_sessions(two: Two) -> None:
    one, other, session = two
    allowed(one.call("create_session", name=session, backend="pty"))
    assert 0 < refused(one.call("create_session", name="more", backend="pty"), "sessions") <= 60
    allowed(one.call("execute_command", session_id=session, command="true"))
    allowed(other.call("create_session", name="more", backend="pty"))


def test_output(two: Two) -> None:
    """What was returned is paid for by the calls after it."""
    one, other, session = two
    allowed(one.call("create_session", name=session, backend="pty"))
    big = {"session_id": session, "command": "head -c 150000 /dev/zero | tr '\\0' x", "max_output_chars": 200_000}
    assert len(allowed(one.call("execute_command", **big))["structuredContent"]["output"]) == 150_000
    assert 0 < refused(one.call("execute_command", **big), "output_bytes") <= 150_000 / 65536 * 60
    refused(one.call("list_sessions"), "output_bytes")
    assert one.result("ping") == {}
    allowed(other.call("list_sessions"))


def test_questions_count_by_name_and_by_connection(two: Two, module_home: Path) -> None:
    one, other, session = two
    allowed(one.call("create_session", name=session, backend="pty"))
    deploy: dict[str, Any] = {"session_id": session, "command": "deploy"}
    assert error_of(one.call("execute_command", **deploy))["code"] == "consent_needed"
    assert 0 < refused(one.call("execute_command", **deploy), "questions") <= 60
    call = {**modern(deploy, name="somebody-else"), "name": "execute_command"}
    refused(one.result("tools/call", call), "questions")
    (first,) = asking.approvals(module_home)["questions"]
    with client(module_home) as again:
        greet(again, FORMS, name=first["client"])
        refused(again.call("execute_command", **deploy), "questions")
    assert error_of(other.call("execute_command", **deploy))["code"] == "consent_needed"
    person(module_home, "approve", first["question_id"])
    allowed(one.call("execute_command", **deploy))
    (second,) = asking.approvals(module_home)["questions"]
    assert first["client"].replace("one", "other") == second["client"]


def test_a_person_at_the_command_line_is_not_held_up_by_clients(two: Two, module_home: Path) -> None:
    one, _, _ = two
    looked_too_often(one)
    person(module_home, "ls")
    person(module_home, "approvals")
