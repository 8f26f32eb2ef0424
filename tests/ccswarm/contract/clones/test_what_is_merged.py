"""Whatever a plan is: what is checked out in the end holds the work whose gates held, and nothing else."""

from __future__ import annotations

import asyncio
import fcntl
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccswarm.models import CallRequest
from tests.ccswarm.support.attempts import Attempts, holding, swarm, task
from tests.ccswarm.support.swarms import settings as plan_of
from tests.support.bounds import BOUND_SECONDS

MANY = int(os.environ.get("MERGED_PLANS", "40"))
AGENTS = ("ada", "bob", "cy")


@dataclass(frozen=True)
class Job:
    """A task: its agent writes at each round, and says what there was when its attempt began. Its gate ``holds`` from
    that round on, never with 0; a reviewer, where there is one, writes too, and accepts it or not. Somebody may commit
    something ``beside`` it meanwhile."""

    agent: str
    needs: frozenset[int]
    holds: int
    rounds: int
    tries: int
    review: str
    beside: bool


def jobs() -> st.SearchStrategy[list[Job]]:
    return st.integers(1, 4).flatmap(
        lambda count: st.tuples(*(job(number) for number in range(count))).map(lambda found: list(found))
    )


def job(number: int) -> st.SearchStrategy[Job]:
    return st.builds(
        Job,
        st.sampled_from(AGENTS),
        st.frozensets(st.integers(0, number - 1), max_size=2) if number else st.just(frozenset[int]()),
        st.integers(0, 2),
        st.integers(1, 2),
        st.integers(0, 1),
        st.sampled_from(["", "accepts", "refuses"]),
        st.booleans(),
    )


def planned(number: int, one: Job) -> dict[str, Any]:
    """It works in files of its own, so that nothing is in the way of a merge."""
    name = f"t{number}"
    work = f"test -e {name}.seen || ls *.done >{name}.seen 2>/dev/null; echo round >>{name}.done; echo bad >>{name}.bad"
    more = {
        "id": "more",
        "tool": "srv.run",
        "args": {"command": f"rm -f {name}.bad; git add -A; git commit -qm {name}"},
    }
    gate = f"test -e {name}.done && test ! -e {name}.bad && test $(wc -l <{name}.done) -ge {one.holds or 99}"
    gates = [{"command": f"{gate} && echo gate >>{name}.done && touch {name}.gate"}]
    made = task(name, work, one.agent, gates=gates, rounds=one.rounds, retry={"times": one.tries, "seconds": 0})
    made["steps"].append(more)
    if one.beside:
        made["steps"].append({"id": "beside", "tool": "srv.beside", "args": {"name": name}})
    if one.review:
        spoil = f"echo review >>{name}.done; touch {name}.review; test {one.review} = accepts"
        step = {"id": "spoil", "tool": "srv.run", "args": {"command": spoil}, "expect": {"exit_code": 0}}
        made["review"] = {"by": [next(agent for agent in AGENTS if agent != one.agent)], "steps": [step]}
    return made | {"needs": [f"t{need}" for need in sorted(one.needs)]}


async def carried_out(directory: Path, those: list[Job], kill: int = 0) -> None:
    """All that can go on together; or one after the other, killed at that call and gone on with elsewhere."""
    attempts, committed = Attempts(directory), set[str]()
    tasks = [planned(number, one) for number, one in enumerate(those)]
    plan = swarm(*tasks, agents=AGENTS, swarm={"strategy": "sequential" if kill else "parallel"})
    await attempts.swarm.submit(plan_of(plan), "run_1", attempts.path)
    beside(attempts, committed)
    reached = holding(attempts, kill)
    async with attempts.working(), asyncio.timeout(BOUND_SECONDS):
        over, hung = asyncio.create_task(attempts.engine.wait("run_1")), asyncio.create_task(reached.wait())
        await asyncio.wait({over, hung}, return_when="FIRST_COMPLETED")
        if hung.done():
            attempts.engine.kill()
        for waiting in (over, hung):
            waiting.cancel()
        await asyncio.gather(over, hung, return_exceptions=True)
    other = Attempts(directory, attempts.engine.store, attempts.repository)
    beside(other, committed)
    async with other.working("other"), asyncio.timeout(BOUND_SECONDS):
        result = (await other.engine.wait("run_1")).result["tasks"]
    await asyncio.to_thread(judged, other, those, result, committed)


def beside(attempts: Attempts, committed: set[str]) -> None:
    """Somebody else commits in the repository, when no merge is under way: a dirty one would block tasks."""

    async def commit(request: CallRequest) -> Mapping[str, Any]:
        await asyncio.to_thread(commit_one, str(request.arguments["name"]))
        return {}

    def commit_one(task: str) -> None:
        name = f"{task}.{len(committed)}.theirs"
        lock = os.open(attempts.repository.directory / "clones", os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            attempts.repository.write(attempts.repository.repository / name, "x\n")
            attempts.repository.commit(attempts.repository.repository, "theirs")
            committed.add(name)
        finally:
            os.close(lock)

    attempts.tool("srv.beside", commit)


def judged(attempts: Attempts, those: list[Job], result: Mapping[str, Any], committed: set[str]) -> None:
    head = attempts.head
    held: set[str] = set()
    for number, one in enumerate(those):
        name, status = f"t{number}", result[f"t{number}"]["status"]
        ready = all(f"t{need}" in held for need in one.needs)
        good = ready and bool(one.holds) and one.holds <= one.rounds and one.review != "refuses"
        assert status == ("succeeded" if good else "failed" if ready else "skipped"), (name, result[name])
        if not good:
            continue
        held.add(name)
        rounds = one.holds
        assert head[f"{name}.done"].split() == ["round"] * rounds, "of one attempt, without what others wrote"
        assert {f"t{need}.done" for need in one.needs} <= set(head[f"{name}.seen"].split())
        assert set(head[f"{name}.seen"].split()) <= {f"{other}.done" for other in held | set(result)}
    mine = {f"{name}.{end}" for name in held for end in ("done", "seen")}
    assert set(head) == {"a.txt"} | mine | committed, "and nothing of what did not hold"
    assert attempts.repository.git("status", "--porcelain") == ""
    failed = {name for name, one in result.items() if one["status"] == "failed"}
    assert {ref.rpartition("/")[2].partition(".")[0] for ref in attempts.refs} <= failed | {
        f"t{number}" for number, one in enumerate(those) if one.tries
    }


FEW = [
    Job("ada", frozenset(), holds=2, rounds=2, tries=0, review="accepts", beside=False),
    Job("bob", frozenset(), holds=0, rounds=1, tries=0, review="", beside=True),
]


@pytest.mark.torture  # test_attempts.py has each of these cases
def test_what_is_checked_out_is_what_gates_held_for(tmp_path: Path) -> None:
    asyncio.run(carried_out(tmp_path, FEW))


@pytest.mark.torture
@given(jobs(), st.one_of(st.just(0), st.integers(1, 20)))
@settings(max_examples=MANY)
def test_what_is_checked_out_is_what_gates_held_for_whatever_the_plan(those: list[Job], kill: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(carried_out(Path(directory), those, kill))
