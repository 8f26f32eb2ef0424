import asyncio
import os
from pathlib import Path

import pytest

from ai_session.errors import CallInterrupted, CallKeyConflict, SessionBusy
from ai_session.gate.idempotency import CallKeys
from ai_session.models import ToolResult

pytestmark = pytest.mark.anyio


class Counter:
    """A call that can be held back and counts how often it really ran."""

    def __init__(self, status: str = "finished") -> None:
        self.runs: list[bool] = []
        self.release = asyncio.Event()
        self.status = status

    async def __call__(self, first_seen: float, unique: str) -> ToolResult:
        self.runs.append(first_seen > 0)
        await self.release.wait()
        return ToolResult(text=f"run {len(self.runs)}", structured={"status": self.status})


async def test_the_same_key_joins_the_running_call_and_later_gets_its_result(home: Path) -> None:
    keys, call = CallKeys(home / "calls", 3600), Counter()
    both = [asyncio.ensure_future(keys.once("t", "k", {"a": 1}, call, resumable=False)) for _ in range(2)]
    await asyncio.sleep(0)
    call.release.set()
    assert [(await b).text for b in both] == ["run 1", "run 1"]
    again = await CallKeys(home / "calls", 3600).once("t", "k", {"a": 1}, call, resumable=False)
    assert again.text == "run 1"
    assert call.runs == [False]


async def test_a_cancelled_caller_leaves_the_call_running(home: Path) -> None:
    keys, call = CallKeys(home / "calls", 3600), Counter()
    first = asyncio.ensure_future(keys.once("t", "k", {}, call, resumable=False))
    await asyncio.sleep(0)
    first.cancel()
    call.release.set()
    assert (await keys.once("t", "k", {}, call, resumable=False)).text == "run 1"
    assert call.runs == [False]


async def test_a_key_of_one_caller_says_nothing_of_anothers(home: Path) -> None:
    keys, call = CallKeys(home / "calls", 3600), Counter()
    call.release.set()
    results = [await keys.once("t", "k", {}, call, resumable=False, caller=whose) for whose in ("", "user:a", "user:b")]
    assert [result.text for result in results] == ["run 1", "run 2", "run 3"]
    assert (await keys.once("t", "k", {}, call, resumable=False, caller="user:a")).text == "run 2"


async def test_a_key_belongs_to_the_session_that_was_judged_also_while_it_runs(home: Path) -> None:
    keys, call = CallKeys(home / "calls", 3600), Counter()
    running = asyncio.ensure_future(keys.once("t", "k", {}, call, session="ses_1", resumable=True))
    await asyncio.sleep(0)
    for release in (True, False):
        with pytest.raises(CallKeyConflict, match="ses_1"):
            await keys.once("t", "k", {}, call, session="ses_2", resumable=True)
        if release:
            call.release.set()
            await running
    for still in ("ses_1", ""):
        assert (await keys.once("t", "k", {}, call, session=still, resumable=True)).text == "run 1"


async def test_the_key_of_an_opened_session_says_nothing_once_that_is_gone(home: Path) -> None:
    keys = CallKeys(home / "calls", 3600)

    async def opened(first_seen: float, unique: str) -> ToolResult:
        return ToolResult("", {"session_id": "ses_1"})

    await keys.once("t", "k", {}, opened, opens=True, resumable=True)
    await keys.once("t", "k", {}, opened, opens=True, resumable=True, session="ses_1")
    for now in ("", "ses_2"):
        with pytest.raises(CallKeyConflict):
            await keys.once("t", "k", {}, opened, opens=True, resumable=True, session=now)


async def test_what_a_call_begins_has_a_name_of_its_own(home: Path) -> None:
    keys, names = CallKeys(home / "calls", 3600), list[str]()

    async def call(first_seen: float, unique: str) -> ToolResult:
        names.append(unique)
        return ToolResult("", {"status": "running"})

    for caller, tool, given in (("a", "t", 1), ("a", "t", 1), ("b", "t", 1), ("a", "u", 1)):
        await keys.once(tool, "k", {"a": given}, call, caller=caller, resumable=True)
    assert names[0] == names[1]
    assert len(set(names)) == 3


async def test_other_arguments_under_one_key_are_refused_also_while_it_runs(home: Path) -> None:
    keys, call = CallKeys(home / "calls", 3600), Counter()
    running = asyncio.ensure_future(keys.once("t", "k", {"a": 1}, call, resumable=False))
    await asyncio.sleep(0)
    with pytest.raises(CallKeyConflict):
        await keys.once("t", "k", {"a": 2}, call, resumable=False)
    call.release.set()
    await running
    with pytest.raises(CallKeyConflict):
        await keys.once("t", "k", {"a": 2}, call, resumable=False)
    assert (await keys.once("other", "k", {"a": 2}, call, resumable=False)).text == "run 2"


async def test_a_call_that_was_refused_may_be_tried_again(home: Path) -> None:
    keys, call = CallKeys(home / "calls", 3600), Counter()
    call.release.set()

    async def busy(first_seen: float, unique: str) -> ToolResult:
        raise SessionBusy("busy", suggestion="wait")

    with pytest.raises(SessionBusy):
        await keys.once("t", "k", {}, busy, resumable=False)
    assert (await keys.once("t", "k", {}, call, resumable=False)).text == "run 1"


async def test_a_call_begun_by_a_daemon_that_died_is_never_run_twice(home: Path) -> None:
    call = Counter()
    lost = asyncio.ensure_future(CallKeys(home / "calls", 3600).once("t", "k", {}, call, resumable=False))
    await asyncio.sleep(0)
    later = CallKeys(home / "calls", 3600)
    with pytest.raises(CallInterrupted):
        await later.once("t", "k", {}, call, resumable=False)
    call.release.set()
    assert (await later.once("t", "k", {}, call, resumable=True)).text == "run 2"
    assert call.runs == [False, True]
    await lost


async def test_a_recorded_running_is_asked_again(home: Path) -> None:
    keys, call = CallKeys(home / "calls", 3600), Counter("running")
    call.release.set()
    await keys.once("t", "k", {}, call, resumable=True)
    call.status = "finished"
    assert (await keys.once("t", "k", {}, call, resumable=True)).structured == {"status": "finished"}
    assert call.runs == [False, True]


async def test_old_records_are_forgotten(home: Path) -> None:
    keys, call = CallKeys(home / "calls", 3600), Counter()
    call.release.set()
    await keys.once("t", "k", {}, call, resumable=False)
    (record,) = (home / "calls").glob("*.json")
    os.utime(record, (1, 1))
    assert (await keys.once("t", "k", {}, call, resumable=False)).text == "run 2"
    os.utime(record, (1, 1))
    keys.expire()
    assert not list((home / "calls").iterdir())
