"""What people's programs page through: each thing once, however much comes meanwhile, with secrets masked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ai_session.audit.files import lines, records
from tests.ai_session.support.mcp_client import living_in, runtime, stop_daemons
from tests.ai_session.support.person_client import Message, Person
from tests.conftest import UNBOXED, new_home
from tests.support import forked

SECRET = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    home = new_home(homes, UNBOXED)
    forked.daemon(living_in(home))
    with Person(home) as person:
        for name in ("first", "second"):
            person.call("create_session", name=name, shell="bash", backend="pty")
            for number in range(4):
                command = f"for i in 1 2 3; do echo {name} {number} line $i; done; # {SECRET}"
                assert person.call("execute_command", session_id=name, command=command)["is_error"] is False
            person.call("execute_command", session_id=name, command=f"echo token {SECRET} end")
    yield home
    stop_daemons(home)


@pytest.fixture
def person(daemon_home: Path) -> Iterator[Person]:
    with Person(daemon_home) as person:
        yield person


def pages(person: Person, tool: str, rows: str, **arguments: Any) -> Iterator[list[Message]]:
    """Page by page, to the end."""
    more: dict[str, str] | None = {}
    while more is not None:
        page = person.call(tool, **arguments, **more)["structured"]
        yield page[rows]
        more = {"cursor": page["cursor"]} if "cursor" in page else None


def every(person: Person, tool: str, rows: str, **arguments: Any) -> list[Message]:
    return [row for page in pages(person, tool, rows, **arguments) for row in page]


def test_commands_come_newest_first_and_once(person: Person) -> None:
    paging = pages(person, "query_commands", "commands", count=3)
    first = next(paging)
    person.call("execute_command", session_id="first", command="echo new")
    rest = [row for page in paging for row in page]
    assert len(first) == 3
    assert len({row["command_id"] for row in first + rest}) == len(first + rest) == 10
    begun = [row["started_at"] for row in first + rest]
    assert begun == sorted(begun, reverse=True)
    assert all(row["end_offset"] > row["start_offset"] for row in rest)
    assert not any(SECRET in row["command"] for row in first + rest)
    of_one = every(person, "query_commands", "commands", session_id="second", count=2)
    assert ({row["name"] for row in of_one}, len(of_one)) == ({"second"}, 5)


def test_lines_that_match_are_found_in_all_sessions_once(person: Person) -> None:
    found = every(person, "query_output", "lines", pattern=r"^(first|second) \d line 2$", count=3)
    assert [row["line"] for row in found] == [f"{n} {i} line 2" for n in ("first", "second") for i in range(4)]
    ends = {row["session_id"]: row["end_offset"] for row in every(person, "query_recordings", "recordings")}
    assert all(0 <= row["offset"] < ends[row["session_id"]] for row in found)
    of_one = every(person, "query_output", "lines", pattern="line 2$", session_id="second")
    assert {row["name"] for row in of_one} == {"second"}
    (line,) = [row["line"] for row in every(person, "query_output", "lines", pattern="^token ", session_id="first")]
    assert SECRET not in line
    assert every(person, "query_output", "lines", pattern="ghp_aB3dE5") == []


def test_recordings_name_what_can_be_replayed(person: Person) -> None:
    rows = every(person, "query_recordings", "recordings", count=1)
    assert [row["name"] for row in rows] == ["second", "first"]
    assert all(row["end_offset"] > row["first_offset"] == 0 and not row["ended"] for row in rows)


def test_audit_records_are_those_of_the_log(daemon_home: Path, person: Person) -> None:
    def log() -> dict[int, Message]:
        return {record["seq"]: record for record in records(lines(runtime(daemon_home) / "audit"))}

    before = log()
    rows = every(person, "query_audit", "records", count=7)
    numbers = [row["seq"] for row in rows]
    assert numbers == sorted(set(numbers), reverse=True)
    assert before.keys() <= set(numbers)
    known = log()
    assert all(known[row["seq"]] == row for row in rows)
    created = every(person, "query_audit", "records", event="session.create")
    assert [row["name"] for row in created] == ["second", "first"]
    of_one = every(person, "query_audit", "records", session_id="first", event="tool.end", count=2)
    assert {row["session"] for row in of_one} == {created[1]["session"]}
    made = every(person, "query_audit", "records", about=created[0]["session"], event="session.create")
    assert made == created[:1]
    assert every(person, "query_audit", "records", about='"seq"') == [], "a text is looked for, not a field"
    with Person(daemon_home, client="agent") as agent:
        refused = agent.call("query_audit")
        assert refused["structured"]["error"]["code"] == "denied"


@pytest.mark.parametrize("tool", ["query_commands", "query_output", "query_recordings", "query_audit"])
def test_a_cursor_of_something_else_is_refused(person: Person, tool: str) -> None:
    more = {"pattern": "x"} if tool == "query_output" else {}
    for cursor in ("x", "1", "nan/x", "-1/x", "1e300/1", "/", "1/"):
        refused = person.call(tool, cursor=cursor, **more)["structured"]
        assert refused["error"]["code"] == "invalid_arguments", cursor
    assert "error" not in person.call(tool, cursor="5/9/x" if more else "5/9", **more)["structured"], (
        "a place where nothing is any more"
    )
