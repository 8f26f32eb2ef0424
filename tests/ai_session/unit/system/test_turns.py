"""Turns: nobody holds the loop for long, and whoever had least of it comes first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from ai_session.system.turns import CREDIT_SECONDS, ECHO_SECONDS, REMEMBERED, SLICE_SECONDS, Steps, Turns, finished

pytestmark = pytest.mark.anyio
BOUND = 20.0
MOST_PASSES = 100_000


class Clock:
    """Time that passes only where work is done."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def worker(self, seconds: float, order: list[str], name: str) -> Callable[[], None]:
        def work() -> None:
            order.append(name)
            self.now += seconds

        return work


async def passes_until(holds: Callable[[], bool]) -> int:
    """How many times the loop goes round before ``holds``."""
    for number in range(MOST_PASSES):
        if holds():
            return number
        await asyncio.sleep(0)
    raise AssertionError("the loop went round for ever")


async def emptied(turns: Turns) -> None:
    await passes_until(lambda: not len(turns))


def busy(clock: Clock, steps: int, seconds: float, order: list[str], name: str) -> Steps[str]:
    for _ in range(steps):
        order.append(name)
        clock.now += seconds
        yield
    return name


async def test_each_pass_of_the_loop_gives_one_turn() -> None:
    clock, order = Clock(), list[str]()
    turns = Turns(clock)
    for name in ("a", "b", "c"):
        turns.add(name, clock.worker(0.001, order, name))
    for number in range(3):
        assert await passes_until(lambda number=number: len(order) > number) == 1
    assert order == ["a", "b", "c"]


async def test_the_work_of_one_party_keeps_its_order() -> None:
    clock, order = Clock(), list[str]()
    turns = Turns(clock)
    for number in range(4):
        turns.add("a", clock.worker(0.001, order, f"a{number}"))
    await emptied(turns)
    assert order == ["a0", "a1", "a2", "a3"]


async def test_whoever_was_quiet_comes_before_many_who_work_flat_out() -> None:
    clock, order = Clock(), list[str]()
    turns = Turns(clock)

    def again(name: str) -> Callable[[], None]:
        def work() -> None:
            order.append(name)
            clock.now += SLICE_SECONDS
            if len(order) < 2000:
                turns.add(name, work)

        return work

    for number in range(60):
        turns.add(f"flat out {number}", again(f"flat out {number}"))
    await passes_until(lambda: len(order) >= 600)
    before = len(order)
    turns.add("quiet", clock.worker(0.0001, order, "quiet"))
    await passes_until(lambda: "quiet" in order)
    assert order.index("quiet") - before <= 2
    order += ["end"] * 2000
    await emptied(turns)


async def test_what_was_done_while_nobody_waited_is_not_held_against_whoever_did_it() -> None:
    clock, order = Clock(), list[str]()
    turns = Turns(clock)
    for _ in range(1000):
        assert turns.at_once("used all day", clock.worker(0.001, order, "before"))
        clock.now += 0.1
    await turns.run("used all day", busy(clock, 1, 1.0, order, "before"))

    def flood() -> None:
        order.append("flood")
        clock.now += 0.001
        if len(order) < 5000:
            turns.add("flood", flood)

    turns.add("flood", flood)
    turns.add("used all day", clock.worker(0.0001, order, "key"))
    await passes_until(lambda: "key" in order)
    assert order.count("flood") <= CREDIT_SECONDS / 0.001 + 1
    order += ["end"] * 5000
    await emptied(turns)


async def test_the_line_waits_for_the_echo_of_a_key_but_half_of_the_time_at_most() -> None:
    clock, order = Clock(), list[str]()
    turns = Turns(clock)
    turns.add("flood", clock.worker(SLICE_SECONDS, order, "flood"))
    await emptied(turns)
    turns.await_echo()
    turns.add("flood", clock.worker(0.0, order, "flood"))
    await asyncio.sleep(0)
    assert order == ["flood"]
    assert turns.at_once("key", clock.worker(0.0, order, "echo")), "what was typed is answered meanwhile"
    clock.now += ECHO_SECONDS
    turns.await_echo()  # typed without pause
    await emptied(turns)
    assert order == ["flood", "echo", "flood"]
    clock.now += ECHO_SECONDS
    turns.await_echo()
    turns.add("flood", clock.worker(0.0, order, "more"))
    await asyncio.sleep(0)
    assert "more" not in order
    clock.now += ECHO_SECONDS
    await emptied(turns)
    assert order[-1] == "more"


async def test_whoever_had_least_is_not_kept_waiting_by_the_line() -> None:
    clock, order = Clock(), list[str]()
    turns = Turns(clock)

    def flood() -> None:
        order.append("flood")
        clock.now += 0.001
        if len(order) < 500:
            turns.add("flood", flood)

    turns.add("flood", flood)
    await passes_until(lambda: len(order) >= 100)
    assert turns.at_once("key", clock.worker(0.0001, order, "key"))
    assert not turns.at_once("flood", clock.worker(0.0001, order, "out of turn"))
    await emptied(turns)


async def test_parties_that_work_flat_out_get_equal_shares_however_much_each_puts_in_line() -> None:
    clock, order = Clock(), list[str]()
    turns = Turns(clock)
    for number in range(50):
        turns.add("much", clock.worker(0.001, order, f"much{number}"))
    for number in range(5):
        turns.add("little", clock.worker(0.001, order, f"little{number}"))
    await emptied(turns)
    assert max(index for index, name in enumerate(order) if name.startswith("little")) < 12


async def test_little_work_is_done_at_once_and_much_has_to_wait_for_the_next_pass() -> None:
    clock, order = Clock(), list[str]()
    turns = Turns(clock)
    assert all(turns.at_once("a", clock.worker(0.0001, order, "a")) for _ in range(10))
    assert turns.at_once("a", clock.worker(0.01, order, "much"))
    assert not turns.at_once("b", clock.worker(0.0001, order, "b"))
    clock.now += 0.1
    assert turns.at_once("b", clock.worker(0.0001, order, "b"))
    turns.add("c", clock.worker(0.0001, order, "c"))
    assert not turns.at_once("d", clock.worker(0.0001, order, "d"))
    await emptied(turns)
    assert "d" not in order


async def test_steps_that_take_long_are_left_off_for_others_and_go_on() -> None:
    clock, order = Clock(), list[str]()
    turns = Turns(clock)
    long = asyncio.ensure_future(turns.run("long", busy(clock, 100, 0.001, order, "long")))
    await asyncio.sleep(0)
    assert len(order) <= SLICE_SECONDS / 0.001 + 1
    assert await turns.run("short", busy(clock, 1, 0.0001, order, "short")) == "short"
    assert order.index("short") < 20
    assert await long == "long"
    assert order.count("long") == 100


async def test_calls_begin_one_in_each_pass_and_those_of_others_between_those_of_one() -> None:
    turns, order = Turns(), list[str]()

    async def call(name: str) -> None:
        await turns.begin(name, 0.0005)
        order.append(name)

    calls = [asyncio.ensure_future(call("many")) for _ in range(200)]
    for _ in range(20):
        before = len(order)
        await asyncio.sleep(0)
        assert len(order) - before <= 2
    other = asyncio.ensure_future(call("other"))
    before = len(order)
    await other
    assert order.index("other") - before < 10
    await asyncio.gather(*calls)


async def test_a_wait_that_is_given_up_keeps_nobody_from_its_turn() -> None:
    clock, order = Clock(), list[str]()
    turns = Turns(clock)
    for name in "xyz":
        turns.add(name, clock.worker(0.001, order, name))
    steps = busy(clock, 10, 0.01, order, "gone")
    gone = asyncio.ensure_future(turns.run("gone", steps))
    await asyncio.sleep(0)
    gone.cancel()
    assert await turns.run("b", busy(clock, 2, 0.01, order, "b")) == "b"
    assert gone.cancelled()
    assert "gone" not in order


async def test_a_job_runs_in_a_thread_and_its_result_comes_back() -> None:
    turns, here = Turns(), threading.get_ident()

    def steps() -> Steps[list[object]]:
        there = yield threading.get_ident
        try:
            yield lambda: 1 // 0
        except ZeroDivisionError:
            return [there != here, "failed"]
        return []

    assert await turns.run("a", steps()) == [True, "failed"]
    assert finished(steps()) == [False, "failed"]


async def test_jobs_of_one_party_never_keep_those_of_another_waiting() -> None:
    turns, gate = Turns(), threading.Event()

    def steps(job: Callable[[], object]) -> Steps[object]:
        return (yield job)

    stuck = [asyncio.ensure_future(turns.run("stuck", steps(gate.wait))) for _ in range(10)]
    try:
        async with asyncio.timeout(BOUND):
            assert await turns.run("other", steps(lambda: 7)) == 7
    finally:
        gate.set()
    assert await asyncio.gather(*stuck) == [True] * 10


async def test_where_no_thread_can_be_had_any_more_every_job_says_so() -> None:
    turns, threads = Turns(), ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(threads)

    def steps(job: Callable[[], object]) -> Steps[object]:
        return (yield job)

    jobs = (lambda: threads.shutdown(wait=False), threading.get_ident, threading.get_ident)
    async with asyncio.timeout(BOUND):
        found = await asyncio.gather(*(turns.run("a", steps(job)) for job in jobs), return_exceptions=True)
    assert found[0] is None
    assert [type(problem) for problem in found[1:]] == [OSError] * 2


async def test_what_each_had_is_forgotten_after_a_while() -> None:
    clock, order = Clock(), list[str]()
    turns = Turns(clock)
    for number in range(3 * REMEMBERED):
        turns.add(number, clock.worker(0.0001, order, "x"))
    await emptied(turns)
    for number in range(7 * REMEMBERED):
        turns.add(("later", number), clock.worker(CREDIT_SECONDS, order, "y"))
        await emptied(turns)
    assert len(turns._used) <= REMEMBERED
    assert len(order) == 10 * REMEMBERED
