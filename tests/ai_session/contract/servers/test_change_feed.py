"""All that changes, told to people's programs with a cursor that outlives connections; and what a connection is for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ai_session.config.settings import Settings
from ai_session.daemon.app import App
from ai_session.errors import CursorExpired
from ai_session.gate.feed import MOST_AT_ONCE, MOST_KEPT
from tests.ai_session.support.mcp_client import running_daemon
from tests.ai_session.support.person_client import Message, Person
from tests.conftest import UNBOXED

PAGE = (Path(__file__).parents[4] / "docs/reference/person-protocol.md").read_text()
ASK = '[[policy.rules]]\nid = "ask"\ndecision = "ask"\nclients = ["agent"]\ncommands = ["deploy"]\n'


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    with running_daemon(homes, UNBOXED + ASK) as home:
        yield home


class Feed:
    """What one connection is told of changes, from now on or since a cursor."""

    def __init__(self, person: Person, **since: str) -> None:
        self._person = person
        self._told: list[Message] = []
        self.cursor = person.done("changes", **since)["cursor"]

    def until(self, *wanted: Callable[[Message], object]) -> Message:
        """Reads on until each of these holds for some change; the last one for which one of them held."""
        left, found = [*wanted], Message()
        while left:
            while not self._told:
                event = self._person.event("changes").facts
                self._told = event["changes"]
                self.cursor = event["cursor"]
            change = self._told.pop(0)
            if fits := [holds for holds in left if holds(change)]:
                left, found = [holds for holds in left if holds not in fits], change
        return found


def test_sessions_commands_questions_and_the_policy_are_reported(daemon_home: Path, person: Person) -> None:
    feed = Feed(person)
    made = person.call("create_session", name="s", shell="bash", backend="pty")["structured"]["session_id"]
    change = feed.until(lambda change: change.get("session_id") == made and change.get("state") == "ready")
    assert change.keys() == {
        "kind",
        "session_id",
        "name",
        "state",
        "rows",
        "cols",
        "end",
        "viewers",
        "typing_by",
        "running",
    }
    done = person.call("execute_command", session_id="s", command="(exit 7)")["structured"]
    change = feed.until(lambda change: change["kind"] == "command" and change["status"] == "finished")
    assert (change["command_id"], change["exit_code"], change["session_id"]) == (done["command_id"], 7, made)
    person.done("take_over", session="s", who="console")
    feed.until(lambda change: change.get("typing_by") == "console")
    person.done("release", session_id=made)
    feed.until(lambda change: change.get("typing_by") == "", lambda change: len(change.get("head", "")) == 64)
    with Person(daemon_home, client="agent") as agent:
        refused = agent.call("execute_command", session_id="s", command="deploy")
        assert refused["structured"]["error"]["code"] == "consent_needed"
    feed.until(lambda change: change.get("open"))
    person.done("policy", mode="ask-all")
    feed.until(
        lambda change: change["kind"] == "policy" and change["mode"] == "ask-all",
        lambda change: change["kind"] == "questions" and not change["open"],
    )
    person.call("close_session", session_id=made)
    feed.until(lambda change: change.get("session_id") == made and change.get("gone"))


def test_who_comes_again_hears_what_was_missed_once(daemon_home: Path, person: Person) -> None:
    start = Feed(person).cursor
    assert Feed(person, cursor=start).cursor == start, "the same place, however often it is asked for"
    with Person(daemon_home) as other:
        feed = Feed(other)
        made = other.call("create_session", name="s", shell="bash", backend="pty")["structured"]["session_id"]
        for number in range(3):
            other.call("execute_command", session_id="s", command=f"echo {number}")
        feed.until(lambda change: change.get("status") == "finished")
    with Person(daemon_home) as again:
        again.done("changes", cursor=start)
        reported = again.event("changes").facts
        assert [change for change in reported["changes"] if change.get("session_id") == made and "name" in change]
        assert len({str(sorted(change.items())) for change in reported["changes"]}) == len(reported["changes"])
        assert again.refused("changes", cursor="x") == "invalid_arguments"
        assert again.refused("changes", cursor="00000000.1") == "cursor_expired"
        assert again.refused("changes", cursor=feed.cursor.partition(".")[0] + ".999999") == "cursor_expired"


@pytest.mark.anyio
async def test_a_reader_that_was_left_behind_is_told_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    app = App(Settings(), tmp_path)
    try:
        feed = app.gate.parts.feed
        reader, other = feed.reader(), feed.reader()
        for number in range(MOST_AT_ONCE + 1):
            feed.record("session", f"ses_{number}")
        first, rest = await reader.next(), await reader.next()
        assert [change["session_id"] for change in first.changes] == [f"ses_{n}" for n in range(MOST_AT_ONCE)]
        assert rest.changes == [{"kind": "session", "session_id": f"ses_{MOST_AT_ONCE}", "gone": True}]
        for number in range(MOST_KEPT):
            feed.record("session", f"new_{number}")
        with pytest.raises(CursorExpired):
            await other.next()
        assert len((await reader.next()).changes) == MOST_AT_ONCE
        with pytest.raises(CursorExpired):
            feed.reader(first.cursor)
        # However long it runs, it remembers no more than the page about the protocol says.
        assert f"more than {MOST_KEPT:,} objects" in PAGE
        assert "less than 1 MB" in PAGE
        for number in range(2 * MOST_KEPT):
            feed.record("command", f"ses_{'x' * 22} cmd_{number:022}")
        tables = [one for one in vars(feed).values() if isinstance(one, dict)]
        entries = [entry for table in tables for entry in table.items()]
        assert len(entries) == MOST_KEPT
        parts = [*tables, *(part for key, number in entries for part in (key, *key, number))]
        assert sum(map(sys.getsizeof, parts)) < 1_000_000
    finally:
        await app.stop()


def test_a_connection_does_no_more_than_it_says_it_is_for(daemon_home: Path, person: Person) -> None:
    made = person.call("create_session", name="s", shell="bash", backend="pty")["structured"]["session_id"]

    def code(who: Person, tool: str, **arguments: Any) -> str:
        return who.call(tool, **arguments)["structured"].get("error", {}).get("code", "")

    with Person(daemon_home, scopes=["look"]) as looker:
        assert looker.hello["scopes"] == ["look"]
        assert looker.done("stream", session="s")["session_id"] == made
        assert looker.done("changes")["cursor"]
        assert code(looker, "read_screen", session_id="s") == ""
        for tool, arguments in {
            "execute_command": {"session_id": "s", "command": "true"},
            "send_input": {"session_id": "s", "text": "x"},
            "resize_session": {"session_id": "s", "rows": 9, "cols": 9},
            "close_session": {"session_id": "s"},
        }.items():
            assert code(looker, tool, **arguments) == "insufficient_scope"
        for method, params in {
            "take_over": {"session": "s", "who": "x"},
            "rename": {"session": "s", "name": "t"},
            "share": {"session": "s", "names": []},
            "approve": {"question_id": "ap_x"},
            "reject": {"question_id": "ap_x"},
            "approvals": {"wait": True},
            "policy": {"mode": "trusted"},
            "enrol": {"key": "x"},
            "unenrol": {},
            "stop": {"sessions": True},
            "attach": {"session": "s", "rows": 9, "cols": 9},
            "sandbox": {"argv": ["true"], "profile": "workspace", "workspace": "/", "domains": []},
        }.items():
            assert looker.refused(method, **params) == "insufficient_scope", method
        assert looker.done("approvals")["questions"] == []
        assert "mode" in looker.done("policy")
    with Person(daemon_home, scopes=["look", "type"]) as typist:
        assert typist.done("take_over", session="s", who="x")["session_id"] == made
        assert typist.refused("reject", question_id="ap_x") == "insufficient_scope"
    with Person(daemon_home, scopes=["approve"]) as judge:
        assert judge.refused("reject", question_id="ap_x") == "question_not_found"
        assert judge.refused("stream", session="s") == "insufficient_scope"
    with Person(daemon_home, client="agent", scopes=["look"]) as agent:
        assert code(agent, "list_sessions") == ""
        assert code(agent, "execute_command", session_id="s", command="true") == "insufficient_scope"
        assert agent.refused("stream", session="s") == "denied"
        assert agent.refused("changes") == "denied"
    for scopes in (["admin"], ["look", "sessions:execute"], "look", {"look": 1}, [1], 5):
        with Person(daemon_home, scopes=scopes) as nobody:
            assert nobody.hello["error"]["code"] == "invalid_arguments"
