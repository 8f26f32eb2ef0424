"""Every public method of the gate that is no call of a tool: for a person, judged, recorded, and shut where denied."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ai_session.errors import AiSessionError, Denied, InsufficientScope, InvalidArguments, RateLimited, SessionNotFound
from ai_session.gate.gate import Gate
from ai_session.gate.person import PersonActions
from ai_session.models import Answer, Principal
from tests.ai_session.support.gates import CLIENT, DENY, PERSON, RATES, GateSetup

pytestmark = pytest.mark.anyio

Door = Callable[[GateSetup, Principal], Awaitable[Any]]


async def sandboxed(setup: GateSetup, who: Principal) -> None:
    given: dict[str, Any] = {"profile": "workspace", "workspace": "/w", "domains": ("pypi.org",)}
    async with setup.gate.person.sandboxed(who, ("npm", "run", "it's"), **given) as program:
        setup.journal.note("run")
        program.trace.outcome = "ok"
        program.trace.facts["exit_code"] = 3


async def stop(setup: GateSetup, who: Principal) -> None:
    await setup.gate.person.stop(who, lambda: setup.journal.note("leave"), sessions=True)


async def look(setup: GateSetup, who: Principal) -> None:
    await setup.gate.person.look(who, "s", None, exact=False, window_bytes=1 << 16, wake=lambda: None)


async def take_over(setup: GateSetup, who: Principal) -> None:
    await setup.gate.person.take_over(who, "s", "console", force=False, lost=lambda session_id, by: None)


async def follow_changes(setup: GateSetup, who: Principal) -> None:
    (await setup.gate.person.follow_changes(who)).close()
    await setup.gate.parts.feed.close()


LINE = f"scrypt-ed25519 {'0' * 32} {'0' * 64}"
DOORS: dict[str, tuple[str, Door]] = {
    "attach": ("attach", lambda setup, who: setup.gate.person.attach(who, "s", rows=1, cols=1, read_only=False)),
    "look": ("attach", look),
    "take_over": ("attach", take_over),
    "follow_changes": ("watch_changes", follow_changes),
    "rename": ("rename", lambda setup, who: setup.gate.person.rename(who, "s", "t")),
    "share": ("share", lambda setup, who: setup.gate.person.share(who, "s", ["agent:a"])),
    "recording": ("record", lambda setup, who: setup.gate.person.recording(who, "s")),
    "approvals": ("approvals", lambda setup, who: setup.gate.person.approvals(who)),
    "answer": ("answer", lambda setup, who: setup.gate.person.answer(who, "ap_1", Answer(True))),
    "watch": ("watch", lambda setup, who: setup.gate.person.watch(who)),
    "policy": ("policy", lambda setup, who: setup.gate.person.policy(who, "read-only")),
    "explain": ("explain", lambda setup, who: setup.gate.person.explain(who, "", "", "")),
    "facts": ("person", lambda setup, who: setup.gate.person.facts(who)),
    "enrol": ("enrol", lambda setup, who: setup.gate.person.enrol(who, LINE, None)),
    "unenrol": ("unenrol", lambda setup, who: setup.gate.person.unenrol(who, None)),
    "stop": ("stop", stop),
    "sandboxed": ("sandbox", sandboxed),
}
"""The tool its records name, and how it is entered."""

FOR_CLIENTS: dict[str, tuple[str, Door]] = {
    "watch_changes": ("watch_changes", lambda setup, who: setup.gate.watch_changes(who)),
}
"""Open for clients too."""

OF_TOOLS = {"call", "list_tools"}
"""Calls have an order of their own; listing tells what policy allows, runs nothing and touches no session."""


def test_every_door_is_here() -> None:
    of_gate, of_people = (
        {name for name, _ in inspect.getmembers(part, inspect.isfunction) if not name.startswith("_")}
        for part in (Gate, PersonActions)
    )
    assert (of_gate, of_people) == (FOR_CLIENTS.keys() | OF_TOOLS, DOORS.keys())


@pytest.mark.parametrize("name", DOORS | FOR_CLIENTS)
async def test_a_door_has_one_begin_and_one_end(home: Path, name: str) -> None:
    setup = GateSetup(home)
    tool, enter = (DOORS | FOR_CLIENTS)[name]
    if name == "answer":
        setup.consent.questions.append(await question(setup))
        setup.journal.clear()
        setup.audit.records.clear()
    try:
        await enter(setup, PERSON)
        outcome = "ok"
    except SessionNotFound:
        outcome = "tool_error"
    (record,) = setup.audit.records
    assert (record.tool, record.outcome, record.principal) == (tool, outcome, PERSON)
    assert record.call_id.startswith("call_")
    assert record.facts["decision"]["verdict"] == "allow"
    steps = [step for step in setup.journal if step != "mask"]
    judged = ["begin", "policy"] if name == "stop" else ["begin", "room", "rate", "policy"]
    assert steps[: len(judged)] == judged
    assert steps[-1] == "end"


async def question(setup: GateSetup) -> Any:
    asking = GateSetup(setup.gate.parts.sessions.runtime_directory, {"id": "q", "decision": "ask", "tools": ["*"]})
    asking.consent.word = Answer(True)
    await asking.call(principal=CLIENT)
    return asking.consent.questions[0]


@pytest.mark.parametrize("name", DOORS)
@pytest.mark.parametrize("why", ["policy", "a client", "another user"])
async def test_a_door_that_is_shut_does_nothing_and_says_so_in_the_audit(home: Path, name: str, why: str) -> None:
    setup = GateSetup(home, *([DENY] if why == "policy" else []))
    who = {"policy": PERSON, "a client": CLIENT, "another user": Principal("person", uid=PERSON.uid + 1)}[why]
    with pytest.raises(Denied) as caught:
        await DOORS[name][1](setup, who)
    (record,) = setup.audit.records
    assert (record.outcome, record.code) == ("denied", "denied")
    assert record.rule == {"policy": "never", "a client": "", "another user": "default:other-user"}[why]
    assert {"run", "leave", "watch", "pending", "answer"}.isdisjoint(setup.journal)
    assert (setup.consent.answers, setup.gate.parts.policy.mode) == ([], "trusted")
    if why == "policy":
        assert "never" in caught.value.message


@pytest.mark.parametrize("why", ["policy", "another user", "no scope"])
async def test_who_may_not_read_watches_nothing(home: Path, why: str) -> None:
    setup = GateSetup(home, *([DENY] if why == "policy" else []))
    who = {
        "policy": CLIENT,
        "another user": Principal("mcp", uid=PERSON.uid + 1),
        "no scope": replace(CLIENT, scopes=frozenset({"sessions:write"})),
    }[why]
    with pytest.raises(InsufficientScope if why == "no scope" else Denied):
        await setup.gate.watch_changes(who)
    assert len(setup.gate.parts.sessions.changes) == 0
    (await setup.gate.watch_changes(CLIENT, kinds=("list", "tools"))).close()
    assert [record.outcome for record in setup.audit.records] == ([] if why == "no scope" else ["denied"])


async def test_a_program_is_judged_by_its_words_its_directory_and_each_name_it_may_reach(home: Path) -> None:
    rules = [
        {"id": "no-push", "decision": "deny", "commands": ["git push"]},
        {"id": "no-etc", "decision": "deny", "paths": ["/etc/**"]},
        {"id": "no-evil", "decision": "deny", "domains": ["*.evil.test"]},
    ]
    setup = GateSetup(home, *rules)

    async def judged(*argv: str, workspace: str = "/w", domains: tuple[str, ...] = ()) -> str:
        with pytest.raises(Denied):
            async with setup.gate.person.sandboxed(
                PERSON, argv, profile="workspace", workspace=workspace, domains=domains
            ):
                raise InvalidArguments("it ran")
        return setup.record.rule

    assert await judged("git", "push", "origin") == "no-push"
    assert await judged("sh", "-c", "git push") == "no-push"
    assert await judged("true", workspace="/etc/ssh") == "no-etc"
    assert await judged("true", domains=("pypi.org", "a.evil.test")) == "no-evil"
    await sandboxed(setup, PERSON)
    assert setup.record.arguments == {
        "command": """npm run 'it'"'"'s'""",
        "profile": "workspace",
        "working_directory": "/w",
        "domains": ["pypi.org"],
    }
    assert (setup.record.outcome, setup.record.facts["exit_code"]) == ("ok", 3)


async def test_a_program_that_nobody_tells_the_end_of_is_lost(home: Path) -> None:
    setup = GateSetup(home)
    given: dict[str, Any] = {"profile": "workspace", "workspace": "/w", "domains": ()}
    async with setup.gate.person.sandboxed(PERSON, ("true",), **given):
        pass
    started = asyncio.Event()

    async def hold() -> None:
        async with setup.gate.person.sandboxed(PERSON, ("true",), **given):
            started.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [record.outcome for record in setup.audit.records] == ["lost", "lost"]


async def test_doors_are_counted_but_the_daemon_can_always_be_ended(home: Path) -> None:
    setup = GateSetup(home)
    for _ in range(RATES["effect"]):
        with pytest.raises(SessionNotFound):
            await setup.gate.person.rename(PERSON, "s", "t")
    with pytest.raises(RateLimited):
        await setup.gate.person.rename(PERSON, "s", "t")
    assert setup.record.outcome == "limited"
    await stop(setup, PERSON)
    assert setup.journal[-2:] == ["leave", "end"]


async def test_in_mode_read_only_a_person_can_still_end_the_daemon(home: Path) -> None:
    setup = GateSetup(home, mode="read-only")
    with pytest.raises(AiSessionError):
        await sandboxed(setup, PERSON)
    await stop(setup, PERSON)
    assert [record.outcome for record in setup.audit.records] == ["denied", "ok"]


async def test_a_denied_stop_says_how_to_end_it_all_the_same(home: Path) -> None:
    setup = GateSetup(home, DENY)
    with pytest.raises(Denied) as caught:
        await stop(setup, PERSON)
    assert caught.value.suggestion.startswith("kill ")
