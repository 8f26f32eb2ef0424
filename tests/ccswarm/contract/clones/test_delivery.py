"""What becomes of accepted work: merged as the gates saw it, merged when a person agrees, or left on a branch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ccswarm.models import CallRequest
from tests.ccswarm.support.attempts import Attempts, swarm, task
from tests.ccswarm.support.swarms import settings
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio


@pytest.fixture
def attempts(tmp_path: Path) -> Attempts:
    return Attempts(tmp_path)


async def ran(attempts: Attempts, plan: Mapping[str, Any], run_id: str = "run_1") -> Mapping[str, Any]:
    return (await attempts.run(plan, run_id, workspace=attempts.path)).result["tasks"]


def moving(attempts: Attempts, times: int) -> list[str]:
    """A gate during whose first runs somebody commits in the repository; the directories that it runs in."""
    run, seen = attempts.task_worker.acts["ai-session.execute_command"], list[str]()

    async def gate(request: CallRequest) -> Any:
        seen.append(Path(attempts.task_worker.directories[-1]).name)
        if len(seen) <= times:
            attempts.repository.write(attempts.repository.repository / f"theirs{len(seen)}.txt", "x\n")
            await asyncio.to_thread(attempts.repository.commit, attempts.repository.repository, "theirs")
        return await run(request)

    attempts.tool("ai-session.execute_command", gate)
    return seen


@pytest.mark.torture  # below is work that does not hold then
@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.torture)])
async def test_where_something_was_committed_meanwhile_the_gates_look_at_the_merge(
    attempts: Attempts, times: int
) -> None:
    seen = moving(attempts, times)
    tasks = await ran(attempts, swarm(task("t", "echo 1 >x.txt", gates=[{"command": "test -e x.txt"}])))
    assert tasks["t"]["status"] == "succeeded"
    assert seen == ["t.1.gates1", "t.1.merged1", "t.1.merged2"][: times + 1], "until nothing was"
    assert set(attempts.head) == {"a.txt", *(f"theirs{number}.txt" for number in range(1, times + 1)), "x.txt"}
    assert (attempts.trees, attempts.refs) == ([], [])
    assert attempts.repository.git("status", "--porcelain") == ""


async def test_work_that_does_not_hold_with_what_was_committed_meanwhile_is_not_merged(attempts: Attempts) -> None:
    moving(attempts, 1)
    gate = {"command": "test ! -e theirs1.txt"}
    tasks = await ran(attempts, swarm(task("t", "echo 1 >x.txt", gates=[gate])))
    assert tasks["t"]["status"] == "failed"
    head = attempts.repository.git("rev-parse", "HEAD")
    assert tasks["t"]["summary"].startswith(
        f"merged with what was committed in the meantime, {head[:12]}: gate `test ! -e"
    )
    assert set(attempts.head) == {"a.txt", "theirs1.txt"}
    assert attempts.repository.git("show", "refs/ccswarm/run_1/t.1:x.txt") == "1"


@pytest.mark.torture
async def test_gates_that_never_catch_up_leave_the_work_to_a_later_run(attempts: Attempts) -> None:
    seen = moving(attempts, 11)
    tasks = await ran(attempts, swarm(task("t", "echo 1 >x.txt", gates=[{"command": "true"}])))
    assert (tasks["t"]["status"], len(seen)) == ("blocked", 11)
    assert "was committed 10 times while its gates checked the merge" in tasks["t"]["summary"]
    async with attempts.working(), asyncio.timeout(BOUND_SECONDS):
        await attempts.swarm.rerun("run_1", "run_2")
        assert (await attempts.engine.wait("run_2")).result["status"] == "succeeded"
    assert "x.txt" in attempts.head


async def test_work_is_left_on_a_branch_and_those_that_need_it_wait_for_its_merge(attempts: Attempts) -> None:
    alone, first = task("alone", "echo 0 >alone.txt"), task("first", "echo 1 >x.txt")
    second = task("second", "cat x.txt", needs=["first"])
    tasks = await ran(attempts, swarm(alone, first, second, swarm={"merge": "branch"}))
    assert {name: one["status"] for name, one in tasks.items()} == {
        "alone": "succeeded",
        "first": "blocked",
        "second": "skipped",
    }
    assert tasks["alone"]["summary"].endswith("its work is on a branch: git merge ccswarm/run_1/alone")
    assert tasks["first"]["summary"] == "other tasks wait for its merge: git merge ccswarm/run_1/first"
    assert set(attempts.head) == {"a.txt"}
    assert attempts.repository.git("show", "ccswarm/run_1/alone:alone.txt") == "0"
    assert {ref.rpartition("/")[2][:5] for ref in attempts.refs} == {"first"}
    attempts.repository.git("merge", "-q", "ccswarm/run_1/alone")
    attempts.repository.git("merge", "-q", "-m", "by hand", "ccswarm/run_1/first")
    async with attempts.working(), asyncio.timeout(BOUND_SECONDS):
        await attempts.swarm.rerun("run_1", "run_2")
        done = (await attempts.engine.wait("run_2")).result
    assert (done["status"], done["tasks"]["second"]["summary"]) == ("succeeded", "1 step done")
    assert (attempts.trees, attempts.refs) == ([], [])


@asynccontextmanager
async def asked(attempts: Attempts, *tasks: Mapping[str, Any]) -> AsyncGenerator[Mapping[str, Any]]:
    """While a person is asked whether the work of ``t`` is merged: the question."""
    async with attempts.working(), asyncio.timeout(BOUND_SECONDS):
        await attempts.swarm.submit(settings(swarm(*tasks, swarm={"merge": "ask"})), "run_1", attempts.path)
        await question(attempts)
        (found,) = await attempts.swarm.approvals()
        yield found


async def question(attempts: Attempts, number: int = 1) -> None:
    """Returns when so many were asked."""
    await heard(attempts, "run_1", "task.started")
    await heard(attempts, "run_1.t", "approval.asked", number)


async def heard(attempts: Attempts, execution: str, event: str, times: int = 1) -> None:
    async for one in attempts.engine.events(execution):
        times -= one["event"] == event
        if not times:
            return


async def test_a_person_is_asked_before_work_is_merged(attempts: Attempts) -> None:
    needs = task("next", "cat x.txt && echo 2 >y.txt", needs=["t"])
    async with asked(attempts, task("t", "printf 'two\\nthree\\n' >a.txt; echo 1 >x.txt"), needs) as one:
        assert one["question"] == "merge 2 files, +3 −1 of run_1.t?"
        assert (one["tool"], one["task_id"], set(attempts.head)) == ("swarm.merge", "run_1.t", {"a.txt"})
        await attempts.swarm.answer(one["id"], approved=True, by="eve")
        await heard(attempts, "run_1", "task.started", 2)
        await heard(attempts, "run_1.next", "approval.asked")
        assert attempts.head["x.txt"] == "1", "it is merged before what needs it begins"
        (one,) = await attempts.swarm.approvals()
        await attempts.swarm.answer(one["id"], approved=False, by="eve", reason="no")
        done = (await attempts.engine.wait("run_1")).result
    assert done["tasks"]["next"]["summary"].startswith("eve rejected merging it: no; its work is kept")
    assert done["tasks"]["next"]["status"] == "failed"
    assert attempts.repository.git("show", "refs/ccswarm/run_1/next.1:y.txt") == "2"
    assert set(attempts.head) == {"a.txt", "x.txt"}


@pytest.mark.torture  # above is what is refused
async def test_what_a_person_refuses_is_not_tried_again_and_what_changes_nothing_is_not_asked(
    attempts: Attempts,
) -> None:
    work = {**task("t", "echo 1 >x.txt"), "retry": {"times": 3, "seconds": 0}}
    async with asked(attempts, work, task("nothing", "true", "bob")) as one:
        await attempts.swarm.answer(one["id"], approved=False, by="eve", reason="no")
        done = (await attempts.engine.wait("run_1")).result["tasks"]
    assert (done["t"]["attempts"], done["t"]["status"], done["nothing"]["status"]) == (1, "failed", "succeeded")


@pytest.mark.torture  # test_cli_merge.py gives it back with the verb
async def test_work_that_is_given_back_is_done_again_in_its_tree_with_the_comment(attempts: Attempts) -> None:
    feedback: list[str] = []
    look = attempts.task_worker.acts["srv.run"]

    async def noted(request: CallRequest) -> Any:
        feedback.append(request.step_id)
        return await look(request)

    attempts.tool("srv.run", noted)
    async with asked(attempts, task("t", "echo line >>log.txt", gates=[{"command": "test -s log.txt"}])) as one:
        await attempts.swarm.answer(one["id"], approved=False, again=True, by="eve", reason="once more")
        await question(attempts, 2)
        (two,) = await attempts.swarm.approvals()
        assert two["id"] != one["id"]
        await attempts.swarm.answer(two["id"], approved=True, by="eve")
        assert (await attempts.engine.wait("run_1")).result["status"] == "succeeded"
    assert attempts.head["log.txt"].split() == ["line", "line"]
    answers = [
        one async for one in attempts.engine.events("run_1.t", follow=False) if one["event"] == "approval.answered"
    ]
    assert [(one["approved"], one.get("again"), one["reason"]) for one in answers] == [
        (False, True, "once more"),
        (True, None, ""),
    ]


async def test_a_run_that_is_stopped_merges_nothing_it_asks_about(attempts: Attempts) -> None:
    async with asked(attempts, task("t", "echo 1 >x.txt")):
        await attempts.swarm.call_off("run_1", "enough")
        done = (await attempts.engine.wait("run_1")).result
        assert await attempts.swarm.approvals() == []
    assert (done["status"], set(attempts.head)) == ("cancelled", {"a.txt"})
    assert attempts.repository.git("show", "refs/ccswarm/run_1/t.1:x.txt") == "1"


@pytest.mark.parametrize("own", [False, pytest.param(True, marks=pytest.mark.torture)])
async def test_hooks_and_signing_are_not_run_and_that_is_said_once(attempts: Attempts, own: bool) -> None:
    """Those of the repository, and the person's ``own``."""
    ran_hooks = attempts.repository.directory / "ran"
    for folder in (attempts.repository.repository / ".git/hooks", attempts.repository.directory / "mine"):
        for name in ("pre-commit", "pre-merge-commit", "commit-msg", "post-merge", "pre-push.sample"):
            attempts.repository.write(folder / name, f"#!/bin/sh\necho {name} >>{ran_hooks}\n")
            (folder / name).chmod(0o755)
    (attempts.repository.repository / ".git/hooks/commit-msg").chmod(0o644)
    two = (task("t", "echo 1 >x.txt"), task("u", "echo 2 >y.txt"))
    done = (await attempts.run(swarm(*two), workspace=attempts.path)).result
    said = "not run when work was merged: hook pre-commit, hook pre-merge-commit, hook post-merge"
    assert done["notes"] == [said]
    assert [one["notes"] for one in await attempts.events() if one["event"] == "run.ended"] == [[said]]
    assert not ran_hooks.exists()
    if not own:
        return
    attempts.repository.write(
        attempts.repository.directory / ".gitconfig", "[core]\nhooksPath = ~/mine\n[commit]\ngpgSign\n"
    )
    done = (await attempts.run(swarm(task("t", "echo 3 >x.txt")), "run_2", workspace=attempts.path)).result
    assert done["notes"][0].endswith(
        "hook pre-commit, hook pre-merge-commit, hook commit-msg, hook post-merge, commit.gpgSign"
    )
    assert not ran_hooks.exists()
    done = (await attempts.run(swarm(task("t", "true")), "run_3", workspace=attempts.path)).result
    assert "notes" not in done, "nothing was merged"


@pytest.mark.torture  # above, of tasks of the plan
async def test_hooks_are_not_run_for_what_was_handed_on_and_that_is_said(attempts: Attempts) -> None:
    """By who hands it on at the second hand, too."""
    hook, ran_hook = attempts.repository.repository / ".git/hooks/post-merge", attempts.repository.directory / "ran"
    attempts.repository.write(hook, f"#!/bin/sh\n: >{ran_hook}\n")
    hook.chmod(0o755)
    attempts.task_worker.own.add("swarm.delegate")
    part = task("part", "echo 1 >x.txt", agent="bob")
    for name, agent in (("below", "dee"), ("top", "cleo")):
        step = {"id": "hand", "tool": "swarm.delegate", "args": {"tasks": [part]}, "gate": True}
        part = {"id": name, "agent": agent, "text": name, "steps": [step]}
    team = [{"name": name, "type": "coordinator", "grants": ["*"]} for name in ("cleo", "dee")]
    team.append({"name": "bob", "grants": ["*"], "workspace": "clone"})
    plan = {"swarm": {"topology": "mesh", "spawn_depth": 3}, "agents": team, "tasks": [part]}
    done = (await attempts.run(plan, workspace=attempts.path)).result
    assert done["status"] == "succeeded", done
    assert set(attempts.head) == {"a.txt", "x.txt"}
    assert done["notes"] == ["not run when work was merged: hook post-merge"]
    assert not ran_hook.exists()
