"""What every engine promises, with a worker and its client in this process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from agentwire.plugins import load
from ccswarm.config.settings import EngineSettings
from ccswarm.engines.base import RUNS
from ccswarm.engines.dbos.engine import DbosEngine
from ccswarm.errors import RunNotFound
from ccswarm.models import RunStatus
from tests.ccswarm.support.engine_double import MemoryEngine
from tests.ccswarm.support.engine_plays import Referee, Stage, play
from tests.ccswarm.support.stores import add_store
from tests.ccswarm.torture.engine_postgres import database, server
from tests.support.bounds import BOUND_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from ccswarm.engines.base import Engine, Store

pytestmark = pytest.mark.anyio


SETTINGS = EngineSettings(poll_seconds=0.02, heartbeat_seconds=0.5, lost_after_seconds=3)


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with server() as address:
        yield address


@pytest.fixture(params=["dbos", *(pytest.param(name, marks=pytest.mark.torture) for name in ("memory", "postgres"))])
def make(request: pytest.FixtureRequest, home: Path) -> Callable[[], Engine]:
    def remote() -> Engine:
        url = database(request.getfixturevalue("postgres"), home.name)
        return DbosEngine(SETTINGS.model_copy(update={"database_url": url}), home / "state")

    def local() -> Engine:
        add_store(home / "state")
        return DbosEngine(SETTINGS, home / "state")

    engines: dict[str, Callable[[], Engine]] = {
        "memory": MemoryEngine,
        "dbos": local,
        "postgres": remote,
    }
    return engines[request.param]


@pytest.fixture
async def stage(make: Callable[[], Engine], home: Path) -> AsyncIterator[Stage]:
    engine = make()
    engine.define("play", play)
    engine.define("run", play, queue=RUNS)
    await engine.open()
    async with Referee(home / "door") as referee:
        yield Stage(engine, referee)
    await engine.close()


async def test_what_is_submitted_is_executed_once_and_can_be_seen(stage: Stage) -> None:
    await stage.submit("e1", ["step", "a"], ["step", "b"], agent="ann", priority="high")
    await stage.submit("e1", ["step", "c"])
    before = await stage.engine.status("e1")
    assert (before.status, before.agent, before.priority, before.kind) == (RunStatus.QUEUED, "ann", "high", "play")
    assert (before.worker, before.ended_at, before.payload["do"]) == ("", 0, [["step", "a"], ["step", "b"]])
    async with stage.worker():
        assert await stage.result("e1") == ["a", "b"]
    after = await stage.engine.status("e1")
    assert after.ended_at >= after.created_at > 0
    assert after.worker == "w1"
    assert sorted(stage.referee.keys.values()) == ["a", "b"]


async def test_what_is_kept_is_listed_newest_first_without_payloads(stage: Stage) -> None:
    async def ids(**which: Any) -> list[str]:
        return [one.id for one in await stage.engine.list(**which)]

    stage.referee.held = {"s"}
    for name in ("e1", "e2"):
        await stage.submit(name)
    await stage.engine.pause("e1")
    await stage.engine.cancel("e2")
    await stage.submit("r1", ["start", "play", "r1.a", [["step", "s"]], "", "medium"], ["outcome", "r1.a"], kind="run")
    async with stage.worker():
        await stage.referee.arrival("s")
        assert await ids() == ["r1.a", "r1", "e2", "e1"]
        assert [(one.id, one.payload) for one in await stage.engine.list(limit=1)] == [("r1.a", None)]
        assert [await ids(kind="run"), await ids(prefix="r1")] == [["r1"], ["r1.a", "r1"]]
        assert await ids(top=True) == ["r1", "e2", "e1"]
        assert await ids(unfinished=True) == ["r1.a", "r1", "e1"]
        assert await ids(top=True, unfinished=True, limit=1) == ["r1"]
        assert await ids(kind="play", prefix="r", unfinished=True) == ["r1.a"]


async def test_a_child_reads_what_its_parent_was_queued_with(stage: Stage) -> None:
    await stage.submit(
        "r1", ["start", "play", "r1.a", [["payload_of", "r1"]], "", "medium"], ["outcome", "r1.a"], kind="run"
    )
    async with stage.worker():
        (_, outcome) = (await stage.engine.wait("r1")).result
    assert outcome[:2] == ["succeeded", [(await stage.engine.status("r1")).payload]]


async def test_what_was_recorded_can_be_read_and_by_dbos_without_an_engine(stage: Stage, home: Path) -> None:
    stage.referee.held = {"s"}
    await stage.submit("e1", ["step", "a"], ["tried", "boom"], ["emit", {"event": "x", "n": 1}], ["step", "b"])
    await stage.submit("e2", ["raise", "no"])
    await stage.submit("e3", ["receive", "t", 60])
    for name in ("e4", "e5"):
        await stage.submit(name)
    await stage.engine.pause("e4")
    await stage.engine.cancel("e5")
    await stage.engine.send("e3", "t", {"m": 1}, key="k")
    await stage.submit("r1", ["start", "play", "r1.a", [["step", "s"]], "ann", "low"], ["outcome", "r1.a"], kind="run")
    async with stage.worker():
        await stage.referee.arrival("s")
        for name in ("e1", "e2", "e3"):
            await stage.engine.wait(name)
        steps = await stage.engine.steps("e1")
        assert [(one.name, one.result, bool(one.error)) for one in steps[:1] + steps[-1:]] == [
            ("a", "a", False),
            ("b", "b", False),
        ]
        known = await all_of(stage.engine)
        if (home / "state/engine.db").exists():
            assert await asyncio.to_thread(read_at_once, home / "state") == known


WHICH: tuple[dict[str, Any], ...] = (
    {},
    {"kind": "run"},
    {"prefix": "r1"},
    {"top": True},
    {"unfinished": True},
    {"limit": 2},
)


async def all_of(store: Store) -> list[Any]:
    """What there is to be read."""
    names = ("e1", "e2", "e3", "e4", "e5", "r1", "r1.a")
    found: list[Any] = [list(await store.list(**which)) for which in WHICH]
    for name in names:
        found += [await store.status(name), list(await store.steps(name))]
        found.append([event async for event in store.events(name, follow=False)])
    found += [await store.sent("e3", "t", "k"), await store.sent("e3", "t", "other")]
    health = await store.health()
    with pytest.raises(RunNotFound):
        await store.status("nobody")
    return [*found, health["queued"], health["running"], *health["workers"]]


def read_at_once(state: Path) -> list[Any]:
    """The same of the file, by who has no loop to wait with."""
    work = all_of(load("ccswarm.engines", "dbos").store("", state))
    try:
        work.send(None)
    except StopIteration as over:
        return over.value
    raise AssertionError("it waited")


async def test_nobody_is_found(stage: Stage) -> None:
    engine = stage.engine
    for ask in (engine.status, engine.wait, engine.cancel, engine.pause, engine.resume):
        with pytest.raises(RunNotFound):
            await ask("nobody")
    with pytest.raises(RunNotFound):
        await engine.send("nobody", "topic", 1)
    with pytest.raises(RunNotFound):
        await anext(aiter(engine.events("nobody")))


async def test_side_by_side_each_goes_on_as_soon_as_it_can(stage: Stage) -> None:
    stage.referee.held = {"a1", "b1"}
    await stage.submit("e1", ["beside", [["step", "a1"], ["step", "a2"]], [["step", "b1"], ["step", "b2"]]])
    async with stage.worker():
        (await stage.referee.arrival("b1")).answer("B")
        assert await anext(aiter(stage.engine.events("e1"))) == {"ended": 1}
        (await stage.referee.arrival("a1")).answer("A")
        assert await stage.result("e1") == [[[1, 0], [["A", "a2"], ["B", "b2"]]]]
    assert len(stage.referee.keys) == 4


async def test_errors_of_steps_are_the_flow_s_and_the_same_when_replayed(stage: Stage) -> None:
    stage.referee.held = {"ours", "theirs", "odd", "slow", "last"}
    tried = [["tried", "ours"], ["tried", "theirs"], ["tried", "odd"], ["tried", "slow", 0.05]]
    await stage.submit("e1", *tried, ["step", "last"])
    async with stage.worker():
        (await stage.referee.arrival("ours")).refuse("Rejected", "no", "ask again")
        (await stage.referee.arrival("theirs")).refuse("ValueError", "bad")
        (await stage.referee.arrival("odd")).refuse("Odd", "strange")
        await stage.referee.arrival("last")
    async with stage.worker():
        (await stage.referee.arrival("last", 2)).answer()
        ours, theirs, odd, slow, _ = await stage.result("e1")
    assert ours == ["Rejected", "no", "ask again"]
    assert theirs == ["ValueError", "bad", ""]
    assert odd == ["RuntimeError", "Odd: strange", ""]
    assert slow[0] == "TimeoutError"
    assert (await stage.referee.arrival("slow")).left.is_set()


async def test_a_function_that_raises_fails_its_execution(stage: Stage) -> None:
    await stage.submit("e1", ["raise", "broken"])
    async with stage.worker():
        ended = await stage.ended("e1")
    assert (ended.status, ended.result) == (RunStatus.FAILED, None)
    assert "broken" in ended.error


async def test_a_worker_that_stops_hands_back_and_nothing_recorded_is_done_again(stage: Stage) -> None:
    stage.referee.held = {"b", "x"}
    await stage.submit("e1", ["step", "a"], ["beside", [["step", "x"]], [["step", "y"]]], ["step", "c"])
    async with stage.worker():
        first = await stage.referee.arrival("x")
        assert await anext(aiter(stage.engine.events("e1"))) == {"ended": 1}
    await asyncio.wait_for(first.left.wait(), BOUND_SECONDS)
    assert await stage.status("e1") is RunStatus.QUEUED
    async with stage.worker():
        again = await stage.referee.arrival("x", 2)
        assert again.key == first.key
        again.answer("X")
        assert await stage.result("e1") == ["a", [[1, 0], [["X"], ["y"]]], "c"]
    assert sorted(stage.referee.names) == ["a", "c", "x", "x", "y"]


async def test_cancelling_ends_the_step_and_the_children(stage: Stage) -> None:
    stage.referee.held = {"s"}
    child = ["start", "play", "c1", [["step", "s"]], "ann", "medium"]
    late = ["start", "play", "c2", [["step", "never"]], "ann", "medium"]
    await stage.submit("r1", child, late, ["outcome", "c1"], kind="run")
    async with stage.worker():
        step = await stage.referee.arrival("s")
        await stage.engine.cancel("r1")
        await asyncio.wait_for(step.left.wait(), BOUND_SECONDS)
        assert [await stage.status(one) for one in ("r1", "c1", "c2")] == [RunStatus.CANCELLED] * 3
        assert (await stage.engine.wait("c2")).ended_at > 0
    assert stage.referee.names == ["s"]


async def test_paused_work_goes_on_from_its_last_step(stage: Stage) -> None:
    stage.referee.held = {"b"}
    child = ["start", "play", "c1", [["step", "a"], ["step", "b"]], "ann", "high"]
    await stage.submit("r1", child, ["outcome", "c1"], kind="run")
    async with stage.worker():
        first = await stage.referee.arrival("b")
        await stage.engine.pause("r1")
        await asyncio.wait_for(first.left.wait(), BOUND_SECONDS)
        assert [await stage.status(one) for one in ("r1", "c1")] == [RunStatus.PAUSED] * 2
        assert not (await stage.engine.status("r1")).status.over
        await stage.engine.resume("r1")
        (await stage.referee.arrival("b", 2)).answer("B")
        assert (await stage.result("r1"))[1:] == [["succeeded", ["a", "B"], ""]]
        assert (await stage.engine.status("c1")).priority == "high"
    assert stage.referee.names == ["a", "b", "b"]
    assert len(stage.referee.keys) == 2


@pytest.mark.torture  # above are children of one that is paused
async def test_a_child_stopped_for_itself_stays_stopped_when_its_parent_goes_on(stage: Stage) -> None:
    stage.referee.held = {"s", "t"}
    children = [["start", "play", one, [["step", step]], "", "medium"] for one, step in (("c1", "s"), ("c2", "t"))]
    await stage.submit("r1", *children, ["outcome", "c2"], kind="run")
    async with stage.worker():
        await stage.referee.arrival("s")
        await stage.referee.arrival("t")
        await stage.engine.cancel("c1")
        await stage.engine.pause("r1")
        await stage.engine.resume("r1")
        (await stage.referee.arrival("t", 2)).answer("T")
        await stage.result("r1")
        assert await stage.status("c1") is RunStatus.CANCELLED
        await stage.engine.resume("c1")
        (await stage.referee.arrival("s", 2)).answer("S")
        assert await stage.result("c1") == ["S"]


async def test_what_is_paused_can_be_cancelled(stage: Stage) -> None:
    await stage.submit("e1", ["step", "a"])
    await stage.engine.pause("e1")
    assert await stage.status("e1") is RunStatus.PAUSED
    await stage.engine.cancel("e1")
    async with stage.worker():
        assert (await stage.ended("e1")).status is RunStatus.CANCELLED
    assert stage.referee.names == []


@pytest.mark.torture  # below the urgent of an agent come first
async def test_priority_decides_who_comes_first(stage: Stage) -> None:
    for priority in ("low", "critical", "medium", "high"):
        await stage.submit(priority, ["step", priority], priority=priority)
    async with stage.worker(at_once=1, per_agent=0):
        await stage.result("low")
    assert stage.referee.names == ["critical", "high", "medium", "low"]


async def test_an_agent_does_one_thing_at_a_time_and_the_urgent_first(stage: Stage) -> None:
    stage.referee.held = {"a1"}
    await stage.submit("a1", ["step", "a1"], agent="ann")
    async with stage.worker():
        first = await stage.referee.arrival("a1")
        await stage.submit("a2", ["step", "a2"], agent="ann", priority="low")
        await stage.submit("a3", ["step", "a3"], agent="ann", priority="critical")
        await stage.submit("b1", ["step", "b1"], agent="bob")
        await stage.result("b1")
        assert stage.referee.names == ["a1", "b1"]
        first.answer()
        await stage.result("a2")
    assert stage.referee.names == ["a1", "b1", "a3", "a2"]


async def test_runs_wait_for_tasks_without_taking_their_place(stage: Stage) -> None:
    for run in ("r1", "r2"):
        child = ["start", "play", f"{run}.t", [["step", f"{run}.t"]], "ann", "medium"]
        await stage.submit(run, child, ["outcome", f"{run}.t"], kind="run")
    async with stage.worker(at_once=1, per_worker=1):
        assert (await stage.result("r1"))[1] == ["succeeded", ["r1.t"], ""]
        await stage.result("r2")


async def test_children_start_once_and_end_in_their_own_way(stage: Stage) -> None:
    stage.referee.held = {"slow"}
    plans = {"c1": [["step", "slow"]], "c2": [["raise", "broken"]], "c3": []}
    starts = [["start", "play", one, do, "", "medium"] for one, do in plans.items()]
    again = ["start", "play", "c3", [["step", "never"]], "", "medium"]
    ends = [["outcome", "c3"], ["step", "seen"], ["outcome", "c2"], ["outcome", "c1"]]
    await stage.submit("r1", *starts, again, *ends, kind="run")
    async with stage.worker():
        await stage.referee.arrival("seen")
        assert (await stage.engine.status("c1")).parent == "r1"
        await stage.engine.cancel("c1")
        result = await stage.result("r1")
    assert result[4][0] == "succeeded"
    assert result[6][0] == "failed"
    assert "broken" in result[6][2]
    assert result[7] == ["cancelled", None, ""]
    assert "never" not in stage.referee.names


async def test_a_message_is_kept_until_it_is_received(stage: Stage) -> None:
    send, sent = stage.engine.send, stage.engine.sent
    await stage.submit("e1", *(["receive", topic, bound] for bound in (10, 0.05) for topic in ("yes", "no")))
    assert [await send("e1", "yes", name, key="k") for name in ("ann", "bob")] == [True, False]
    assert await send("e1", "no", 1, key="k"), "a key is one of its topic"
    async with stage.worker():
        assert await stage.result("e1") == ["ann", 1, None, None]
    assert not await send("e1", "yes", "cy", key="k")
    assert [await sent("e1", topic, "k") for topic in ("yes", "no", "maybe")] == ["ann", 1, None]
    assert await sent("nobody", "yes", "k") is None


@pytest.mark.torture  # above of two answers the first counts
async def test_of_those_who_answer_at_the_same_time_one_is_first(stage: Stage) -> None:
    await stage.submit("e1", ["receive", "yes", 10])
    new = await asyncio.gather(*(stage.engine.send("e1", "yes", number, key="k") for number in range(12)))
    assert sorted(new) == [False] * 11 + [True]
    assert await stage.engine.sent("e1", "yes", "k") == new.index(True)
    async with stage.worker():
        assert await stage.result("e1") == [new.index(True)]


@pytest.mark.torture  # test_engine_takeover.py: while every worker is dead
async def test_an_answer_given_while_no_worker_runs_is_not_lost(stage: Stage) -> None:
    await stage.submit("e1", ["step", "a"], ["emit", {}], ["receive", "approval", 60], ["step", "b"])
    async with stage.worker():
        await anext(aiter(stage.engine.events("e1")))
        await stage.engine.send("e1", "other", 1)
    await stage.engine.send("e1", "approval", "yes")
    async with stage.worker():
        assert await stage.result("e1") == ["a", None, "yes", "b"]
    assert stage.referee.names == ["a", "b"]


async def test_executions_write_to_each_other(stage: Stage) -> None:
    await stage.submit("e1", ["receive", "mail", 10])
    await stage.submit("e2", ["send", "e1", "mail", "hello"], ["send", "nobody", "mail", "hello"])
    async with stage.worker():
        assert await stage.result("e1") == ["hello"]
        assert await stage.result("e2") == [None, None]


async def test_messages_can_be_read_whether_received_or_not(stage: Stage) -> None:
    await stage.submit("e1", ["receive", "mail", 10])
    assert await stage.engine.send("e1", "mail", "first", key="k")
    assert not await stage.engine.send("e1", "mail", "again", key="k")
    await stage.engine.send("e1", "mail", {"n": 2})
    await stage.engine.send("e1", "other", "no")
    async with stage.worker():
        assert await stage.result("e1") in (["first"], [{"n": 2}])
    before = await stage.engine.messages("e1", "mail")
    assert sorted(before.values(), key=str) == ["first", {"n": 2}]
    await stage.engine.send("e1", "mail", "late")
    assert (await stage.engine.messages("e1", "mail")).items() > before.items()
    assert await stage.engine.messages("e2", "mail") == {}


async def test_spending_stops_at_the_cap_and_is_counted_once(stage: Stage) -> None:
    stage.referee.held = {"s"}
    caps = {"calls": 3, "dollars": 1.0}
    await stage.submit(
        "e1",
        ["spend", "run", {"calls": 2, "dollars": 0.25}, caps],
        ["spent", "run"],
        ["step", "s"],
        ["spend", "run", {"calls": 1, "dollars": 0.9}, caps],
        ["spend", "run", {"calls": 1}, caps],
        ["spend", "run", {"calls": 1, "other": 5}, caps],
    )
    async with stage.worker():
        await stage.referee.arrival("s")
    async with stage.worker():
        (await stage.referee.arrival("s", 2)).answer()
        assert await stage.result("e1") == ["", {"calls": 2, "dollars": 0.25}, None, "dollars", "", "calls"]
    assert await stage.engine.spent("run") == {"calls": 3, "dollars": 0.25}
    assert await stage.engine.spent("nobody") == {}


@pytest.mark.torture  # the cap is tested above
async def test_what_spends_at_once_never_spends_too_much(stage: Stage) -> None:
    for number in range(12):
        await stage.submit(f"e{number}", ["spend", "run", {"calls": 1}, {"calls": 7}])
    async with stage.worker():
        answers = [await stage.result(f"e{number}") for number in range(12)]
    assert sorted(answers) == [[""]] * 7 + [["calls"]] * 5
    assert await stage.engine.spent("run") == {"calls": 7}


async def test_events_are_kept_once_each_and_followed_to_the_end(stage: Stage) -> None:
    stage.referee.held = {"s"}
    await stage.submit("e1", ["emit", {"n": 1}], ["step", "s"], ["emit", {"n": 2}], ["publish", {"done": 2}])
    following = asyncio.create_task(collect(stage.engine.events("e1")))
    async with stage.worker():
        await stage.referee.arrival("s")
        assert await collect(stage.engine.events("e1", follow=False)) == [{"n": 1}]
        await stage.engine.pause("e1")
        await stage.engine.resume("e1")
        (await stage.referee.arrival("s", 2)).answer()
        assert await asyncio.wait_for(following, BOUND_SECONDS) == [{"n": 1}, {"n": 2}]
    assert await collect(stage.engine.events("e1", offset=1)) == [{"n": 2}]
    assert (await stage.engine.status("e1")).shown == {"done": 2}


async def collect(events: AsyncIterator[Any]) -> list[Any]:
    return [event async for event in events]


async def test_pauses_and_odd_text_survive(stage: Stage) -> None:
    stage.referee.held = {"odd"}
    odd = "\ud800 \x00 \U0001f600 \u2028"
    await stage.submit("e1", ["sleep", 0.05], ["step", "odd"], ["emit", {odd: odd}])
    async with stage.worker():
        (await stage.referee.arrival("odd")).answer({odd: [odd, 1.5, None, True]})
        assert await stage.result("e1") == [None, {odd: [odd, 1.5, None, True]}, None]
    assert await collect(stage.engine.events("e1")) == [{odd: odd}]


async def test_what_is_old_is_removed_with_its_children(stage: Stage) -> None:
    stage.referee.held = {"s"}
    acts: list[Any] = [["spend", "r1", {"calls": 1}, {}], ["emit", {}]]
    child = ["start", "play", "r1.t", acts, "ann", "medium"]
    await stage.submit("r1", child, ["outcome", "r1.t"], kind="run")
    await stage.submit("e1", ["step", "s"])
    await stage.submit("e2")
    await stage.engine.pause("e2")
    async with stage.worker():
        await stage.result("r1")
        await stage.referee.arrival("s")
        assert await stage.engine.retain((await stage.engine.status("r1.t")).created_at - 1) == 0
        assert await stage.engine.retain((await stage.engine.status("r1")).ended_at + 1) == 2
        with pytest.raises(RunNotFound):
            await stage.engine.status("r1.t")
        assert {e.id for e in await stage.engine.list()} == {"e1", "e2"}


async def test_a_worker_that_says_so_is_known_to_everybody(stage: Stage) -> None:
    async with stage.worker():
        assert list((await stage.engine.health())["workers"]) == ["w1"]


async def test_health_counts_what_waits_and_what_runs(stage: Stage) -> None:
    stage.referee.held = {"s"}
    for number in range(2):
        await stage.submit(f"e{number}", ["step", "s"], agent="ann")
    async with stage.worker():
        await stage.referee.arrival("s")
        health = await stage.engine.health()
        assert (health["queued"], health["running"], list(health["workers"])) == (1, 1, ["w1"])
        assert 0 <= health["workers"]["w1"] < 5
    assert await stage.engine.recover("w1") == 0
    assert (await stage.engine.health())["queued"] == 2
