"""Rate limits as a client meets them: told when to come back, still connected, and nobody else any slower."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.ai_session.contract import asking
from tests.ai_session.contract.asking import FORMS, client, error_of, greet, modern, person
from tests.ai_session.contract.wire import Client, Message, stop_daemons
from tests.conftest import UNBOXED, new_home


@contextmanager
def limited(world: Path, rates: str, config: str = UNBOXED) -> Iterator[tuple[Path, Client, Client]]:
    """A home with these limits and two clients in it."""
    home = new_home(world, f"{config}\n[rates]\n{rates}\n")
    try:
        with client(home) as one, client(home) as other:
            greet(one, {}, name="one")
            greet(other, {}, name="other")
            yield home, one, other
    finally:
        stop_daemons(home)


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


def test_looking(world: Path, home: Path) -> None:
    with limited(world, "read_per_minute = 2") as (_, one, other):
        for _ in range(2):
            allowed(one.call("list_sessions"))
        for _ in range(3):
            assert 0 < refused(one.call("list_sessions"), "read") <= 30
            assert one.result("ping") == {}
        assert one.result("tools/list")["tools"]
        allowed(one.call("create_session", name="main", backend="pty"))
        allowed(other.call("list_sessions"))


def test_doing(world: Path, home: Path) -> None:
    with limited(world, "effect_per_minute = 3") as (_, one, other):
        allowed(one.call("create_session", name="main", backend="pty"))
        for _ in range(2):
            allowed(one.call("execute_command", session_id="main", command="true"))
        for tool, arguments in (("execute_command", {"command": "touch made"}), ("send_input", {"text": "x"})):
            assert 0 < refused(one.call(tool, session_id="main", **arguments), "effect") <= 20
        refused(one.call("close_session", session_id="main"), "effect")
        allowed(one.call("get_session_info", session_id="main"))
        allowed(other.call("execute_command", session_id="main", command="test ! -e made"))


def test_opening_sessions(world: Path, home: Path) -> None:
    with limited(world, "sessions_per_minute = 1") as (_, one, other):
        allowed(one.call("create_session", name="main", backend="pty"))
        assert 0 < refused(one.call("create_session", name="more", backend="pty"), "sessions") <= 60
        allowed(one.call("execute_command", session_id="main", command="true"))
        allowed(other.call("create_session", name="more", backend="pty"))


def test_output(world: Path, home: Path) -> None:
    """What was returned is paid for by the calls after it."""
    with limited(world, "output_bytes_per_minute = 65536") as (_, one, other):
        allowed(one.call("create_session", name="main", backend="pty"))
        big = {"session_id": "main", "command": "head -c 150000 /dev/zero | tr '\\0' x", "max_output_chars": 200_000}
        assert len(allowed(one.call("execute_command", **big))["structuredContent"]["output"]) == 150_000
        assert 0 < refused(one.call("execute_command", **big), "output_bytes") <= 150_000 / 65536 * 60
        refused(one.call("list_sessions"), "output_bytes")
        assert one.result("ping") == {}
        allowed(other.call("list_sessions"))


ASKS = '[sandbox]\nprofile = "trusted"\n'


def test_questions_count_by_name_and_by_connection(world: Path, home: Path) -> None:
    with limited(world, "questions_per_minute = 1", ASKS) as (house, one, other):
        created: dict[str, Any] = {"name": "main", "backend": "pty"}
        assert error_of(one.call("create_session", **created))["code"] == "consent_needed"
        assert 0 < refused(one.call("create_session", **created), "questions") <= 60
        call = {**modern(created, name="somebody-else"), "name": "create_session"}
        refused(one.result("tools/call", call), "questions")
        with client(house) as again:
            greet(again, FORMS, name="one")
            refused(again.call("create_session", **created), "questions")
        assert error_of(other.call("create_session", **created))["code"] == "consent_needed"
        first, second = asking.approvals(house)["questions"]
        person(house, "approve", first["question_id"])
        allowed(one.call("create_session", **created))
        assert (first["client"], second["client"]) == ("one", "other")


def test_who_comes_back_when_told_to_is_served(world: Path, home: Path) -> None:
    with limited(world, "read_per_minute = 60") as (_, one, _):
        for _ in range(60):
            allowed(one.call("list_sessions"))
        waits: list[float] = []
        while (result := one.call("list_sessions"))["isError"]:
            waits.append(refused(result, "read"))
            assert len(waits) < 10_000
        assert waits == sorted(waits, reverse=True)
        assert waits[0] <= 1


def test_a_person_at_the_command_line_is_not_held_up_by_clients(world: Path, home: Path) -> None:
    with limited(world, "read_per_minute = 1") as (house, one, _):
        allowed(one.call("list_sessions"))
        refused(one.call("list_sessions"), "read")
        person(house, "ls")
        person(house, "approvals")
