"""Each attempt at a task has a tree of its own, made of what is merged by then; what was judged is merged."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest

from ccswarm.clones.clones import Clone, Merged, Workspaces
from ccswarm.models import CallRequest, RunStatus
from ccswarm.swarm.agent import STEPS
from tests.ccswarm.support.attempts import Attempts, holding, swarm, task
from tests.ccswarm.support.swarms import settings
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    return Attempts(tmp_path)


async def ran(attempts: Attempts, *tasks: Mapping[str, Any], **more: Any) -> Mapping[str, Any]:
    return (await attempts.run(swarm(*tasks, **more), workspace=attempts.path)).result["tasks"]


async def continued(attempts: Attempts) -> Mapping[str, Any]:
    """What a second run makes of the first."""
    async with attempts.working(), asyncio.timeout(BOUND_SECONDS):
        await attempts.swarm.rerun("run_1", "run_2")
        return (await attempts.engine.wait("run_2")).result["tasks"]


def status(tasks: Mapping[str, Any]) -> dict[str, str]:
    return {name: one["status"] for name, one in tasks.items()}


async def test_what_a_gate_refused_stays_out_of_all_that_comes_later(attempts: Attempts) -> None:
    bad = task("t1", "echo bad >bad.txt; git add .; git commit -qm bad", gates=[{"command": "false"}])
    tasks = await ran(attempts, bad, task("t2", "echo good >good.txt", gates=[{"command": "test ! -e bad.txt"}]))
    assert status(tasks) == {"t1": "failed", "t2": "succeeded"}
    assert attempts.head == {"a.txt": "one", "good.txt": "good"}
    assert attempts.repository.git("show", "refs/ccswarm/run_1/t1.1:bad.txt") == "bad"
    assert "its work is kept, unmerged: git diff " in tasks["t1"]["summary"]


@pytest.mark.torture  # test_delivery.py: needed work is merged before
async def test_a_task_sees_the_work_of_the_tasks_it_needs_whoever_did_it(attempts: Attempts) -> None:
    one = task("t1", "echo 1 >one.txt", "ada")
    two = task("t2", "cat one.txt && echo 2 >two.txt", "bob", needs=["t1"])
    three = task("t3", "cat one.txt two.txt && echo 3 >three.txt", "ada", needs=["t2"])
    assert set(status(await ran(attempts, one, two, three)).values()) == {"succeeded"}
    assert set(attempts.head) == {"a.txt", "one.txt", "two.txt", "three.txt"}


@pytest.mark.torture  # test_workspaces.py makes no clone of what lacks it
async def test_a_task_waits_while_the_work_it_builds_on_is_not_checked_out(attempts: Attempts) -> None:
    git = attempts.repository.git
    git("branch", "old")

    async def switched(_: CallRequest) -> Mapping[str, Any]:
        await asyncio.to_thread(git, "checkout", "-q", "old")
        return {"exit_code": 0}

    attempts.tool("srv.switch", switched)
    one = task("t1", "echo 1 >one.txt")
    two = task("t2", "true", needs=["t1"])
    two["steps"].append({"id": "switch", "tool": "srv.switch"})
    three = task("t3", "cat one.txt && echo 3 >three.txt", needs=["t2"])
    tasks = await ran(attempts, one, two, three)
    assert status(tasks) == {"t1": "succeeded", "t2": "succeeded", "t3": "blocked"}
    assert "the work of 't1' was merged as " in tasks["t3"]["summary"]
    assert (attempts.head, attempts.trees, attempts.refs) == ({"a.txt": "one"}, [], [])
    git("checkout", "-q", "main")
    assert set(status(await continued(attempts)).values()) == {"succeeded"}
    assert set(attempts.head) == {"a.txt", "one.txt", "three.txt"}


async def test_work_waits_in_its_clone_while_its_repository_cannot_be_used(attempts: Attempts) -> None:
    git = attempts.repository.git

    async def switched(_: CallRequest) -> Mapping[str, Any]:
        await asyncio.to_thread(git, "checkout", "-q", "--orphan", "nothing")
        return {"exit_code": 0}

    attempts.tool("srv.switch", switched)
    one = task("t1", "echo 1 >one.txt; echo once >>../count")
    one["steps"].append({"id": "switch", "tool": "srv.switch"})
    tasks = await ran(attempts, one)
    assert status(tasks) == {"t1": "blocked"}
    assert tasks["t1"]["summary"].endswith(f"; the work is in {attempts.repository.directory}/clones/run_1/t1.1")
    git("checkout", "-q", "main")
    assert status(await continued(attempts)) == {"t1": "succeeded"}
    assert set(attempts.head) == {"a.txt", "one.txt"}
    assert (attempts.repository.directory / "clones/run_1/count").read_text() == "once\n", "it is not done again"


async def test_what_a_person_merged_by_hand_is_not_done_again(attempts: Attempts) -> None:
    location = attempts.repository

    async def meanwhile(_: CallRequest) -> Mapping[str, Any]:
        location.write(location.repository / "a.txt", "theirs\n")
        await asyncio.to_thread(location.git, "commit", "-qam", "theirs")
        return {"exit_code": 0}

    attempts.tool("srv.meanwhile", meanwhile)
    work = task("t", "echo ours >a.txt; echo once >>../count")
    work["steps"].append({"id": "m", "tool": "srv.meanwhile"})
    tasks = await ran(attempts, work)
    assert status(tasks) == {"t": "blocked"}
    said, _, command = tasks["t"]["summary"].rpartition(": ")
    assert said == f"both changed a.txt; merge by hand in {location.repository}"
    assert (location.git("status", "--porcelain"), attempts.head["a.txt"]) == ("", "theirs")
    with pytest.raises(CalledProcessError):
        location.git(*command.split()[1:])
    location.write(location.repository / "a.txt", "of both\n")
    location.git("commit", "-qam", "merged by hand")
    assert status(await continued(attempts)) == {"t": "succeeded"}
    assert attempts.head["a.txt"] == "of both"
    assert (location.directory / "clones/run_1/count").read_text() == "once\n"


async def test_another_try_begins_with_nothing_of_the_one_that_failed(attempts: Attempts) -> None:
    again = task("t", "echo x >>tries.txt; test -e $(dirname $PWD)/twice || { touch ../twice; exit 1; }")
    tasks = await ran(attempts, {**again, "retry": {"times": 1, "seconds": 0}})
    assert (tasks["t"]["status"], tasks["t"]["attempts"]) == ("succeeded", 2)
    assert attempts.head["tries.txt"] == "x"
    assert attempts.refs == [f"refs/ccswarm/run_1/t.1{end}" for end in ("", "-base", "-sent")]


async def test_what_is_merged_is_what_the_gate_saw(attempts: Attempts) -> None:
    """Not what gates, reviewers, or what the agent left running make of it meanwhile."""
    work = task("t", "echo 43 >sums.txt", gates=[{"command": "grep -qx 43 sums.txt && echo 44 >sums.txt"}])
    later: list[str] = []

    async def sabotage(request: CallRequest) -> Mapping[str, Any]:
        where = Path(attempts.task_worker.directories[-1])
        assert (where / "sums.txt").read_text() == "43\n"
        (where / "sums.txt").write_text("42\n")
        tree = attempts.repository.directory / "clones/run_1/t.1"
        (tree / "sums.txt").write_text("45\n")
        later.append(str(where))
        return {"exit_code": 0}

    attempts.tool("srv.see", sabotage)
    see = [{"id": "see", "tool": "srv.see"}]
    tasks = await ran(attempts, {**work, "review": {"by": ["bob"], "steps": see}})
    assert status(tasks) == {"t": "succeeded"}
    assert attempts.head["sums.txt"] == "43"
    assert (attempts.repository.repository / "sums.txt").read_text() == "43\n"
    assert later == [str(attempts.repository.directory / "clones/run_1/t.1.review1.bob")]


@pytest.mark.torture  # unit/swarm/test_attempt_terminals.py
async def test_the_agents_terminals_are_ended_before_its_work_is_looked_at(attempts: Attempts) -> None:
    seen: list[list[str]] = []
    tree = attempts.repository.directory / "clones/run_1/t.1"
    attempts.sessions.append({"session_id": "mine", "name": "n", "owner": "run:r/agent:ada", "workspace": str(tree)})
    run = attempts.task_worker.acts["ai-session.execute_command"]

    async def gate(request: CallRequest) -> Any:
        seen.append(list(attempts.closed))
        return await run(request)

    attempts.tool("ai-session.execute_command", gate)
    await ran(attempts, task("t", "echo 1 >x.txt", gates=[{"command": "true"}]))
    assert [ended[:1] for ended in seen] == [["mine"]]


@pytest.mark.parametrize("empty", [False, pytest.param(True, marks=pytest.mark.torture)])
async def test_a_clone_and_its_refs_go_when_its_work_is_merged_and_stay_where_it_is_not(
    attempts: Attempts, empty: bool
) -> None:
    """But for one that was left ``empty``."""
    await ran(attempts, task("good", "echo 1 >x.txt", gates=[{"command": "test -e x.txt"}]), task("none", "true"))
    assert (attempts.trees, attempts.refs) == ([], [])
    await attempts.run(swarm(task("bad", "echo 2 >y.txt; exit 1")), "run_2", workspace=attempts.path)
    assert attempts.trees == ["run_2/.bad.1.json", "run_2/bad.1"]
    assert attempts.repository.git("show", "refs/ccswarm/run_2/bad.1:y.txt") == "2"
    if not empty:
        return
    await attempts.run(swarm(task("empty", "exit 1")), "run_3", workspace=attempts.path)
    assert attempts.trees == ["run_2/.bad.1.json", "run_2/bad.1"], "where nothing was done there is nothing to keep"


async def test_work_is_returned_in_the_same_tree_and_judged_again(attempts: Attempts) -> None:
    gate = {"command": "test $(wc -l <log.txt) = 2"}
    tasks = await ran(attempts, task("t", "echo line >>log.txt", gates=[gate], rounds=3))
    assert status(tasks) == {"t": "succeeded"}
    assert attempts.head["log.txt"].split() == ["line", "line"]


@pytest.mark.torture  # unit/swarm/test_swarm.py: test_a_gate_that_never_holds_fails_the_task_with_what_it_said
async def test_work_that_never_holds_fails_with_what_its_gate_said(attempts: Attempts) -> None:
    tasks = await ran(attempts, task("t", "echo >>log.txt", gates=[{"command": "false"}], rounds=2))
    assert tasks["t"]["summary"].startswith("gate `false`: expected exit code 0, got 1")


async def test_what_tools_leave_behind_is_not_committed(attempts: Attempts) -> None:
    named = ["__pycache__/x.pyc", "web/node_modules/m/i.js", ".venv/bin/python", "x.pyc", ".ignored/x"]
    marked = ["target/out.o", "target/CACHEDIR.TAG", "py/lib/x.py", "py/pyvenv.cfg"]
    make = [f"mkdir -p $(dirname {name}) && echo x >{name}" for name in (*named, *marked)]
    keep = "echo .ignored >.gitignore && mkdir target2 && echo 1 >target2/kept.py"
    left = task("left", " && ".join((*make, keep)))
    commits = "echo 2 >own.py && git add -A && git commit -qm own"
    own = task("own", " && ".join((*make[: len(named)], commits)), needs=["left"])
    assert status(await ran(attempts, left, own)) == {"left": "succeeded", "own": "succeeded"}
    assert set(attempts.head) == {"a.txt", ".gitignore", "target2/kept.py", "own.py"}


async def test_a_dirty_repository_is_refused_before_anything_is_done(attempts: Attempts) -> None:
    attempts.repository.write(attempts.repository.repository / "a.txt", "mine\n")
    tasks = await ran(attempts, task("t", "echo 1 >x.txt"))
    assert tasks["t"]["status"] == "blocked"
    assert "has uncommitted changes, so no work could be merged into it: a.txt" in tasks["t"]["summary"]
    assert attempts.task_worker.calls == []


@pytest.mark.torture  # work that waits in its clone is, above
async def test_work_that_was_not_merged_is_merged_by_a_later_run_as_it_was_judged(attempts: Attempts) -> None:
    async def meanwhile(_: CallRequest) -> Mapping[str, Any]:
        attempts.repository.write(attempts.repository.repository / "a.txt", "mine\n")
        return {"exit_code": 0}

    attempts.tool("srv.meanwhile", meanwhile)
    work = task("t", "echo 1 >x.txt")
    work["steps"] += [{"id": "m", "tool": "srv.meanwhile"}]
    tasks = await ran(attempts, work)
    assert tasks["t"]["status"] == "blocked"
    attempts.repository.git("checkout", "-q", "a.txt")
    (attempts.repository.directory / "clones/run_1/t.1/late.txt").write_text("after it was judged\n")
    async with attempts.working(), asyncio.timeout(BOUND_SECONDS):
        await attempts.swarm.rerun("run_1", "run_2")
        done = await attempts.engine.wait("run_2")
    assert status(done.result["tasks"]) == {"t": "succeeded"}
    assert attempts.head == {"a.txt": "one", "x.txt": "1"}
    assert (attempts.trees, attempts.refs) == ([], [])


@pytest.mark.parametrize("number", [3, *(pytest.param(number, marks=pytest.mark.torture) for number in (1, 2, 4, 5))])
async def test_a_second_process_goes_on_with_the_tree_at_every_step(tmp_path: Path, number: int) -> None:
    """Killed at one of the calls of a tool, another process does the rest: once each, in the same tree."""
    plan = swarm(task("t", "echo 1 >>x.txt", gates=[{"command": "test $(wc -l <x.txt) = 1"}]))
    first = Attempts(tmp_path)
    reached = holding(first, number)
    async with first.working(), asyncio.timeout(BOUND_SECONDS):
        await first.swarm.submit(settings(plan), "run_1", first.path)
        await reached.wait()
        first.engine.kill()
    other = Attempts(tmp_path, first.engine.store, first.repository)
    async with other.working("other"), asyncio.timeout(BOUND_SECONDS):
        done = await other.engine.wait("run_1")
    assert status(done.result["tasks"]) == {"t": "succeeded"}, (number, done.result)
    assert other.head == {"a.txt": "one", "x.txt": "1"}
    assert (other.trees, other.refs) == ([], [])


async def test_work_of_another_version_is_refused_and_can_be_repeated(attempts: Attempts) -> None:
    plan = settings(swarm(task("t", "echo 1 >x.txt")))
    await attempts.swarm.submit(plan, "run_1", attempts.path)
    row = attempts.engine.store.rows["run_1"]
    row.payload = row.payload.replace(f'"steps": {STEPS}}}', '"steps": 1}')
    async with attempts.working(), asyncio.timeout(BOUND_SECONDS):
        done = await attempts.engine.wait("run_1")
        assert done.result["status"] == RunStatus.FAILED
        assert "another version of ccswarm" in done.result["tasks"]["t"]["summary"]
        await attempts.swarm.rerun("run_1", "run_2")
        assert (await attempts.engine.wait("run_2")).result["status"] == RunStatus.SUCCEEDED


class Hurried(Workspaces):
    """``given`` is the time that was left, in order; of ``never`` nothing is ever left."""

    def __init__(self, attempts: Attempts, never: str) -> None:
        location = attempts.repository
        super().__init__(location.repository, location.directory / "clones", location.environ)
        self.never = never
        self.given: list[float] = []

    async def commit(self, clone: Clone, title: str, *, seconds: float | None = None) -> str:
        return await super().commit(clone, title, seconds=self._noted("commit", seconds))

    async def copy(self, clone: Clone, commit: str, name: str, *, seconds: float | None = None) -> Clone:
        return await super().copy(clone, commit, name, seconds=self._noted("copy", seconds))

    async def merge(
        self,
        clone: Clone,
        title: str,
        configuration: Collection[str] = (),
        *,
        commit: str = "",
        judged: Collection[str] | None = None,
        seconds: float | None = None,
    ) -> Merged:
        left = self._noted("merge", seconds)
        return await super().merge(clone, title, configuration, commit=commit, judged=judged, seconds=left)

    def _noted(self, what: str, seconds: float | None) -> float | None:
        assert seconds is not None
        self.given.append(seconds)
        return 0.0 if what == self.never else seconds


@pytest.mark.torture  # test_workspaces_attacks.py: all commands together have so much time
@pytest.mark.parametrize("never", ["commit", "copy", "merge"])
async def test_what_is_not_merged_in_the_time_of_its_task_waits_for_more(attempts: Attempts, never: str) -> None:
    hurried = attempts.task_worker.places[attempts.path] = Hurried(attempts, never)
    plan = swarm(task("t", "echo 1 >>x.txt", gates=[{"command": "test -e x.txt"}], timeout_seconds=1000))
    async with attempts.working(), asyncio.timeout(BOUND_SECONDS):
        await attempts.swarm.submit(settings(plan), "run_1", attempts.path)
        found = (await attempts.engine.wait("run_1")).result["tasks"]["t"]
        assert (found["status"], "in the remaining time" in found["summary"]) == ("blocked", True)
        assert (attempts.head, hurried.given) == ({"a.txt": "one"}, sorted(hurried.given, reverse=True))
        assert 0 < hurried.given[-1] < 1000
        hurried.never = ""
        await attempts.swarm.rerun("run_1", "run_2")
        done = await attempts.engine.wait("run_2")
    assert status(done.result["tasks"]) == {"t": "succeeded"}
    assert attempts.head == {"a.txt": "one", "x.txt": "1"}


BESIDE = {"attempts": 3, "gates": [{"command": "test -e held.txt"}]}


async def test_of_attempts_side_by_side_the_first_that_holds_is_merged(attempts: Attempts) -> None:
    """The second holds. The first does not, and the third would never end."""
    going, over = asyncio.Event(), asyncio.Event()

    async def act(request: CallRequest) -> Mapping[str, Any]:
        location, attempt = Path(attempts.task_worker.directories[-1]), request.arguments["command"]
        if attempt == "3":
            going.set()
            await over.wait()
        (location / f"of{attempt}.txt").write_text(attempt)
        if attempt == "2":
            await going.wait()
            (location / "held.txt").write_text("yes")
        return {"exit_code": 0}

    attempts.tool("srv.try", act)
    step = {"id": "try", "tool": "srv.try", "args": {"command": "${task.attempt}"}}
    async with asyncio.timeout(BOUND_SECONDS):
        done = await attempts.run(
            swarm({"id": "t", "agent": "ada", "steps": [step], **BESIDE}), workspace=attempts.path
        )
    tasks = done.result["tasks"]
    assert (tasks["t"]["status"], tasks["t"]["attempts"]) == ("succeeded", 3)
    assert attempts.head == {"a.txt": "one", "held.txt": "yes", "of2.txt": "2"}
    assert attempts.repository.git("show", "refs/ccswarm/run_1/t.1:of1.txt") == "1", (
        "what did not hold can be looked at"
    )
    assert done.result["usage"]["calls"] == 3
    ended = [one for one in await attempts.events() if one["event"] == "task.ended"]
    assert [(one["status"], one["again"]) for one in ended] == [("succeeded", False)]


@pytest.mark.torture  # one of several is merged above, and below what failed is tried again
async def test_where_all_hold_at_once_one_is_merged_and_where_none_does_they_are_tried_again(
    attempts: Attempts,
) -> None:
    all_hold = {**task("t1", "echo x >held.txt; echo ${task.attempt} >of.txt"), **BESIDE, "attempts": 2}
    later = {**task("t2", "test ${task.attempt} -gt 2 && echo x >second.txt"), "retry": {"times": 1, "seconds": 0}}
    later |= {"attempts": 2, "gates": [{"command": "test -e second.txt"}], "needs": ["t1"]}
    never = {**task("t3", "true"), **BESIDE, "attempts": 2, "gates": [{"command": "false"}]}
    tasks = await ran(attempts, all_hold, later, never)
    assert status(tasks) == {"t1": "succeeded", "t2": "succeeded", "t3": "failed"}
    assert attempts.head["of.txt"] in ("1", "2")
    assert [tasks[name]["attempts"] for name in ("t1", "t2", "t3")] == [2, 4, 2]
    commits = attempts.repository.git("log", "--format=%s", "--no-merges").splitlines()
    assert len([one for one in commits if one.startswith("t1:")]) == 1
