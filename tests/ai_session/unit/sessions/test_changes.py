"""Watchers hear what they see, merged while they are busy, no more often than they are told they would."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from ai_session.models import MOST_CHANGED_COMMANDS, Change, SessionSpec
from ai_session.sessions.changes import GAP_SECONDS, ChangeFeed
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio


def spec(name: str, owner: str = "") -> SessionSpec:
    return SessionSpec(f"ses_{name}", name, "sh", "pty", "/", {}, 24, 80, 0.0, "n", "c", owner=owner)


def everything(_: SessionSpec) -> bool:
    return True


def quick(gap_seconds: float = 0.0) -> ChangeFeed:
    return ChangeFeed(list, gap_seconds)


async def test_a_watcher_hears_all_kinds_of_what_it_sees_and_nothing_of_others() -> None:
    feed = quick()
    changes = feed.watch(lambda seen: seen.owner == "me")
    feed.listed(spec("theirs", "them"))
    feed.listed(spec("other", "them"))
    feed.listed(spec("mine", "me"))
    async with asyncio.timeout(BOUND_SECONDS):
        heard = await changes.next()
    assert heard == {Change("list", "ses_mine", "mine"), Change("state", "ses_mine", "mine")}


async def test_who_loses_sight_of_a_session_hears_that_the_list_is_another() -> None:
    feed = quick()
    changes = feed.watch(lambda seen: "agent:scout" in seen.shared_with, kinds=("list",))
    shared = replace(spec("one"), shared_with=("agent:scout",))
    feed.listed(spec("one"), before=shared)
    async with asyncio.timeout(BOUND_SECONDS):
        assert await changes.next() == {Change("list", "ses_one", "one")}


async def test_changes_of_a_busy_watcher_are_merged() -> None:
    feed = quick()
    changes = feed.watch(everything, kinds=("list",))
    for _ in range(10_000):
        feed.listed(spec("a"))
        feed.listed(spec("b"))
    async with asyncio.timeout(BOUND_SECONDS):
        assert await changes.next() == {Change("list", "ses_a", "a"), Change("list", "ses_b", "b")}
    feed.listed(spec("a"))
    async with asyncio.timeout(BOUND_SECONDS):
        assert await changes.next() == {Change("list", "ses_a", "a")}


def test_commands_are_merged_until_there_are_too_many_to_name() -> None:
    merged = Change("output", "s", "m", frozenset({"a"})).merged(Change("output", "s", "m", frozenset({"b"})))
    assert merged == Change("output", "s", "m", frozenset({"a", "b"}))
    for number in range(MOST_CHANGED_COMMANDS):
        merged = merged.merged(Change("output", "s", "m", frozenset({str(number)})))
    assert merged.commands == frozenset()
    assert merged.merged(Change("output", "s", "m", frozenset({"z"}))).commands == frozenset(), "any stays any"


@pytest.mark.parametrize("change", [Change("tools"), Change("output", "s", "n", frozenset({"b", "a"}))])
def test_a_change_comes_back_from_its_facts(change: Change) -> None:
    assert Change.from_facts(change.facts()) == change


async def test_a_renamed_session_is_announced_under_both_names() -> None:
    feed = quick()
    changes = feed.watch(everything)
    before = spec("old")
    feed.listed(replace(before, name="new"), before=before)
    feed.listed(replace(before, name="new"))
    async with asyncio.timeout(BOUND_SECONDS):
        heard = await changes.next()
    assert {change.kind: change.name for change in heard} == {"list": "", "state": "", "output": "old"}
    feed.listed(replace(before, name="new"))
    async with asyncio.timeout(BOUND_SECONDS):
        assert {change.name for change in await changes.next()} == {"new"}


async def test_the_first_change_comes_at_once_and_the_next_after_the_gap() -> None:
    feed = quick(GAP_SECONDS)
    changes = feed.watch(everything, kinds=("list",))
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(BOUND_SECONDS):
        for _ in range(3):
            feed.listed(spec("a"))
            await changes.next()
    assert loop.time() - began >= 2 * GAP_SECONDS


async def test_a_closed_watcher_hears_nothing_at_once_however_long_it_would_have_waited() -> None:
    feed = quick(3600.0)
    changes = feed.watch(everything)
    feed.listed(spec("a"))
    async with asyncio.timeout(BOUND_SECONDS):
        await changes.next()
        feed.listed(spec("a"))
        waiting = asyncio.create_task(changes.next())
        await asyncio.sleep(0)
        changes.close()
        changes.close()
        assert await waiting == frozenset()
        assert await changes.next() == frozenset()
    assert len(feed) == 0


async def test_a_wait_that_is_given_up_loses_nothing() -> None:
    feed = quick()
    changes = feed.watch(everything, kinds=("list",))
    waiting = asyncio.create_task(changes.next())
    await asyncio.sleep(0)
    feed.listed(spec("a"))
    waiting.cancel()
    await asyncio.wait({waiting})
    async with asyncio.timeout(BOUND_SECONDS):
        assert await changes.next() == {Change("list", "ses_a", "a")}


async def test_tools_are_told_only_to_whom_they_changed() -> None:
    feed = quick()
    usable = {"me": {"a", "b"}, "you": {"a"}}
    mine = feed.watch(everything, tools=lambda: usable["me"])
    yours = feed.watch(everything, tools=lambda: usable["you"])
    usable["me"].discard("b")
    feed.tools_changed()
    feed.listed(spec("s"))
    async with asyncio.timeout(BOUND_SECONDS):
        assert Change("tools") in await mine.next()
        assert Change("tools") not in await yours.next()


async def test_a_thousand_watchers_leave_nothing() -> None:
    feed = quick()
    for _ in range(1000):
        feed.watch(everything).close()
    assert len(feed) == 0
