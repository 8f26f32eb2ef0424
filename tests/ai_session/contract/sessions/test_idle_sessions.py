"""When a session was last used, by whom that is told, and the end of those of runs that nobody uses."""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ai_session.errors import SessionNotFound
from ai_session.sessions import wait
from ai_session.sessions.facts import USE_SECONDS
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.ownership import Visibility
from ai_session.sessions.session import Session
from ai_session.sessions.spec import SessionDefaults, last_use
from ai_session.sessions.viewer import Viewer
from ai_session.sessions.visible import VisibleSessions
from tests.ai_session.support.command_line import CommandLine
from tests.ai_session.support.mcp_client import Client, living_in
from tests.ai_session.support.sessions import request, run, runtime_directory, spin, successor
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio

DAY = 86_400.0
OWNER = "run:r1/agent:bob"


@pytest.fixture
async def events() -> list[dict[str, Any]]:
    return []


@pytest.fixture
async def manager(home: Path, events: list[dict[str, Any]]) -> AsyncIterator[SessionManager]:
    def event(kind: str, **facts: Any) -> None:
        events.append({"event": kind, **facts})

    defaults = SessionDefaults(backend="pty", shell="sh", owned_idle_days=2)
    manager = SessionManager(runtime_directory(home), defaults, event=event)
    yield manager
    await manager.stop()


async def opened(manager: SessionManager, name: str, owner: str = OWNER) -> Session:
    return await manager.create(replace(request(name), owner=owner))


def long_ago(session: Session, days: float = 2.5) -> None:
    """As if it had not been used since then."""
    session.used_at = time.time() - days * DAY


def names(manager: SessionManager) -> set[str]:
    return {session.spec.name for session in manager.all()}


async def test_a_session_of_a_run_that_nobody_uses_is_closed_and_that_is_said(
    manager: SessionManager, events: list[dict[str, Any]]
) -> None:
    """What runs, is watched, was used since, or is no run's, stays."""
    sessions = {name: await opened(manager, name) for name in ("unused", "ended", "runs", "watched", "new")}
    sessions["mine"] = await opened(manager, "mine", owner="")
    sessions["web"] = await opened(manager, "web", owner="user:ada")
    sessions["web-run"] = await opened(manager, "web-run", owner="user:ada/run:r2/agent:eve")
    running = await sessions["runs"].begin("read answer", command_id="cmd_r")
    await wait.for_command(sessions["runs"], running, BOUND_SECONDS, until_input=True)
    ending = await sessions["ended"].begin("exit 3", command_id="cmd_e")
    await wait.for_command(sessions["ended"], ending, BOUND_SECONDS, until_input=False)
    viewer = Viewer(sessions["watched"], read_only=True)
    for name in ("unused", "ended", "runs", "watched", "mine", "web", "web-run"):
        long_ago(sessions[name])
    now = time.time()
    await manager.close_idle(now)
    assert names(manager) == {"runs", "watched", "new", "mine", "web"}
    why = "it was not used for 2 days (session.owned_idle_days)"
    reported = {one["name"]: one["reason"] for one in events if one["event"] == "session.close"}
    assert reported == dict.fromkeys(("unused", "ended", "web-run"), why)
    bob, eve = VisibleSessions(manager, Visibility(OWNER)), VisibleSessions(manager, Visibility("run:r1/agent:eve"))
    with pytest.raises(SessionNotFound, match=r"session 'unused' was closed: it was not used for 2 days"):
        bob.get("unused")
    with pytest.raises(SessionNotFound, match="no session 'unused'"):
        eve.get("unused")
    await viewer.close()
    assert sessions["watched"].used_at >= now, "until somebody stops watching it is in use"


@pytest.mark.parametrize("days", [0, 30])
async def test_the_setting_says_how_long(manager: SessionManager, days: float) -> None:
    manager.defaults = replace(manager.defaults, owned_idle_days=days)
    session = await opened(manager, "kept")
    long_ago(session, days=29.9)
    await manager.close_idle(time.time())
    assert names(manager) == {"kept"}


async def test_what_counts_as_use_and_that_the_next_daemon_knows_it(manager: SessionManager) -> None:
    session = await opened(manager, "one")
    of_owner, of_person = Visibility(OWNER), Visibility(everything=True, person=True)

    async def after(act: Any) -> bool:
        """Whether that counts."""
        long_ago(session)
        before = time.time()
        await act()
        kept, counts = last_use(session.directory), session.used_at >= before
        assert not counts or kept == pytest.approx(session.used_at, abs=USE_SECONDS)
        return counts

    async def command() -> None:
        await run(session, "true")

    async def typed() -> None:
        session.send(b"\n")

    async def looked(reach: Visibility = of_owner) -> None:
        assert VisibleSessions(manager, reach).get("one") is session

    async def looked_by_a_person() -> None:
        await looked(of_person)

    async def listed() -> None:
        assert session in VisibleSessions(manager, of_owner).all()

    assert [await after(act) for act in (command, typed, looked)] == [True] * 3
    assert [await after(act) for act in (looked_by_a_person, listed)] == [False] * 2
    session.touch()
    used, spec = session.used_at, session.spec
    await manager.aclose()
    following = successor(manager)
    await following.adopt()
    again = following.find(spec.session_id)
    assert again is not None
    assert again.used_at == pytest.approx(used, abs=USE_SECONDS)
    await following.stop()


def specs(home: Path) -> dict[str, Path]:
    """Where the sessions of a home are kept, by their names."""
    found = home.glob(".local/state/ai-session/sessions/*/spec.json")
    return {json.loads(path.read_text())["name"]: path for path in found}


def open_as(client: Client, agent: str, name: str, directory: Path) -> None:
    claims = {"ai-session/agent": agent, "ai-session/run": "r1"} if agent else {}
    arguments = {"name": name, "backend": "pty", "shell": "sh", "working_directory": str(directory)}
    client.result("tools/call", {"name": "create_session", "arguments": arguments, "_meta": claims})


def test_a_person_ends_what_is_idle_and_a_daemon_what_of_a_run_is_idle_for_a_week(home: Path) -> None:
    """As the files say when they were used, which a new daemon reads."""
    with CommandLine(home) as cli:
        with Client(env=living_in(home), cwd=home) as client:
            for agent, name in (("bob", "old"), ("bob", "older"), ("", "mine"), ("", "new")):
                open_as(client, agent, name, home)
        begun = time.time()
        for name, days in (("old", 3), ("older", 8), ("mine", 8)):
            os.utime(specs(home)[name], (begun, begun - days * DAY))
        cli.run("daemon", "restart")
        spin(lambda: "older" not in specs(home))
        rows = {row["name"]: row for row in json.loads(cli.out("ls", "--json"))}
        assert {name: round((begun - row["used_at"]) / DAY) for name, row in rows.items()} == {
            "old": 3,
            "mine": 8,
            "new": 0,
        }
        assert not any(row["in_use"] for row in rows.values())
        assert json.loads(cli.out("info", "mine", "--json"))["used_at"] == rows["mine"]["used_at"]
        reported = cli.run("info", "older", code=3).stderr
        assert "session 'older' was closed: it was not used for 7 days (session.owned_idle_days)" in reported
        for words in (("--idle", "2"), ("--idle", "1d", "mine"), ("--idle", "1d", "--all", "--run", "r1")):
            cli.run("kill", *words, "--yes", code=2)
        ended = [
            json.loads(cli.out("kill", *words, "--json", "--yes"))["ended"]
            for words in (
                ("--idle", "9d"),
                ("--run", "r1", "--idle", "4d"),
                ("--run", "r1", "--idle", "48h"),
                ("--idle", "1440m"),
            )
        ]
        assert ended == [[], [], ["old"], ["mine"]]
        cli.run("exec", "new", "--", "true")
        assert json.loads(cli.out("kill", "--idle", "3600s", "--json", "--yes"))["ended"] == []
