"""Runs by name, and how far one is: what the store knows of it and its tasks, as plain facts."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ccswarm.config.project import Project
from ccswarm.errors import RunNotFound, UsageInvalid
from ccswarm.models import RunStatus
from ccswarm.runs.events import above, nested, task_of

if TYPE_CHECKING:
    from ccswarm.engines.base import Store
    from ccswarm.models import Execution

RUN = "run"
"""The kind of execution that a run is, and what is handed on in one; all others are tasks and their parts."""

LAST = "last"
FEW_RUNS = 20
MOST_RUNS = 10_000
MOST_TASKS = 10_000


async def run_id_of(store: Store, text: str, project: Project | None = None) -> str:
    """The whole id of the run that ``text`` names: its id, an unambiguous beginning of it, or ``last``, the newest one
    (of the ``project``). Raises RunNotFound."""
    last = text == LAST
    if last and project:
        return await _last(store, project)
    prefix = text if text.startswith("run_") else f"run_{text}"
    found = await store.list(kind=RUN, prefix="" if last else prefix, top=True, limit=1 if last else 10)
    exact = [one.id for one in found if one.id == prefix]
    if len(found) > 1 and not exact:
        names = ", ".join(one.id for one in found[:3])
        raise RunNotFound(
            f"{text!r} is the beginning of more than one run: {names}…", suggestion="give a longer beginning"
        )
    if not found:
        what = "there are no runs" if last else f"no run {text!r}"
        raise RunNotFound(what, suggestion="ccswarm runs list shows them")
    return exact[0] if exact else found[0].id


async def _last(store: Store, project: Project) -> str:
    seen = 0
    for limit in (FEW_RUNS, MOST_RUNS):
        found = await store.list(kind=RUN, top=True, limit=limit)
        for run in found[seen:]:
            if project.has(await store.status(run.id)):
                return run.id
        seen = len(found)
    what = f"there are no runs in {project.directory}" if seen else "there are no runs"
    listed = "ccswarm runs list shows all runs; their IDs work in any directory"
    raise RunNotFound(what, suggestion=listed if seen else 'start one: ccswarm run "list the files"')


def short(run_id: str) -> str:
    """The beginning of an id, which is enough to name the run."""
    return run_id[:12]


def ended_here(worker: str) -> bool:
    """Whether it was a process of this machine, without a name of its own, that is gone: nobody needs to wait until
    it counts as lost."""
    host, _, pid = worker.rpartition("-")
    if host != (platform.node() or "host") or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def status_of(execution: Execution, waiting: bool = False) -> RunStatus:
    """Of a run or a task: what its result says where it has one. ``waiting``: nothing of it is in progress but
    questions to people."""
    if execution.status is RunStatus.SUCCEEDED:
        return RunStatus(_result(execution).get("status", RunStatus.SUCCEEDED))
    going = execution.status in (RunStatus.QUEUED, RunStatus.RUNNING)
    return RunStatus.WAITING_APPROVAL if waiting and going else execution.status


def approvals_of(execution: Execution) -> list[dict[str, Any]]:
    """What of a task waits for a person."""
    if execution.status.over or not execution.shown:
        return []
    return [{**one, "task": execution.id} for one in execution.shown.get("approvals", ())]


async def facts_of(store: Store, run_id: str) -> dict[str, Any]:
    """All of a run: id, the run it continues, name, status, workspace, worker, times, tasks, usage, notes for people,
    approvals. Tasks are followed by their parts, named by their paths, whose usage is in theirs. Raises RunNotFound."""
    return (await described_run(store, run_id))[1]


async def described_run(store: Store, run_id: str) -> tuple[Execution, dict[str, Any]]:
    """A run, and what ``facts_of`` says of it. Raises RunNotFound."""
    run = await store.status(run_id)
    return run, described(run, await store.list(prefix=f"{run_id}.", limit=MOST_TASKS))


def described(run: Execution, executions: Sequence[Execution]) -> dict[str, Any]:
    """See ``facts_of``; ``executions`` are the tasks, and what was handed on."""
    payload: Mapping[str, Any] = run.payload or {}
    plan: Mapping[str, Any] = payload.get("plan", {})
    result = _result(run)
    results: dict[str, Any] = {**payload.get("done", {}), **result.get("tasks", {})}
    latest: dict[str, Execution] = {}
    for execution in sorted(executions, key=lambda one: one.created_at):
        path = task_of(run.id, execution.id)
        if execution.kind == RUN:
            results |= {f"{path}.{name}": facts for name, facts in _result(execution).get("tasks", {}).items()}
        else:
            latest[path] = execution
    going = {name: one for name, one in latest.items() if not one.status.over}
    names = nested([*(str(task["id"]) for task in plan.get("tasks", ())), *latest, *results])
    tasks = {
        name: _task(results.get(name), latest.get(name), over=run.status.over, waiting=asking(name, going))
        for name in names
    }
    asked = [one for name in names if name in going for one in approvals_of(going[name])]
    return {
        "run": run.id,
        "continues": payload.get("continues", ""),
        "name": plan.get("swarm", {}).get("name", "swarm"),
        "status": status_of(run, all_waiting(run, going)).value,
        "workspace": payload.get("workspace", ""),
        "worker": run.worker,
        "created_at": run.created_at,
        "ended_at": run.ended_at,
        "error": run.error,
        "tasks": tasks,
        "usage": result.get("usage") or {},
        "notes": result.get("notes", []),
        "approvals": asked,
    }


def all_waiting(run: Execution, going: Mapping[str, Execution]) -> bool:
    """Whether everything that a run has going waits for people; ``going`` are its tasks that are not over."""
    names = [str(one["task"]) for one in (run.shown or {}).get("going", ())]
    return bool(names) and all(asking(name, going) for name in names)


def asking(task: str, going: Mapping[str, Execution]) -> bool:
    """Whether a task waits for people, or all its parts in progress do."""
    if task not in going:
        return False
    parts = [asking(one, going) for one in going if above(one, going) == task]
    return all(parts) if parts else bool(approvals_of(going[task]))


def _task(
    result: Mapping[str, Any] | None, execution: Execution | None, *, over: bool, waiting: bool
) -> dict[str, Any]:
    times = (execution.created_at, execution.ended_at) if execution else (0.0, 0.0)
    timed: dict[str, Any] = {"started_at": times[0], "ended_at": times[1]}
    if execution and execution.shown and (todo := execution.shown.get("todo")):
        timed["todo"] = todo
    if result is not None:
        return {**result, **timed}
    if execution is None:
        status, agent = (RunStatus.SKIPPED if over else RunStatus.QUEUED), ""
        return {"status": status.value, "agent": agent, "summary": "", "result": None, "attempts": 0, **timed}
    found = _result(execution)
    facts: dict[str, Any] = {
        "status": status_of(execution, waiting).value,
        "agent": execution.agent,
        "summary": found.get("summary") or execution.error,
        "result": found.get("result"),
        "usage": found.get("usage") or {},
        "attempts": int(execution.id.rpartition(".")[2].partition("~")[2] or 1),
    }
    return {**facts, **timed}


def _result(execution: Execution) -> dict[str, Any]:
    return execution.result or {}


async def require_task(store: Store, run_id: str, task: str) -> None:
    """Raises UsageInvalid where the run has no such task."""
    if not task:
        return
    payload: dict[str, Any] = (await store.status(run_id)).payload or {}
    names = [str(one["id"]) for one in payload.get("plan", {}).get("tasks", ())]
    if task.partition(".")[0] not in names:
        raise UsageInvalid(f"the run has no task {task!r}", suggestion=f"there is: {', '.join(names)}")


async def tasks_going(store: Store) -> list[Execution]:
    """Tasks and their parts that are not over, of all runs, the newest first."""
    return [one for one in await store.list(unfinished=True, limit=MOST_TASKS) if one.kind != RUN]


async def runs(store: Store, limit: int, *, unfinished: bool = False) -> Sequence[Execution]:
    """The newest first; none of what was handed on in one."""
    return await store.list(kind=RUN, top=True, unfinished=unfinished, limit=limit)
