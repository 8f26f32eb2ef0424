"""Runs by name, and their progress: what the store has of a run and its tasks, as plain facts."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ccswarm.config.project import Project
from ccswarm.errors import RunNotFound, UsageInvalid
from ccswarm.models import RunStatus
from ccswarm.runs.events import enclosing_task, nested, task_of

if TYPE_CHECKING:
    from ccswarm.engines.base import Store
    from ccswarm.models import Execution

RUN = "run"
"""The kind of execution of a run and of delegated work; all others are tasks and their parts."""

LAST = "last"
FEW_RUNS = 20
MOST_RUNS = 10_000
MOST_TASKS = 10_000


async def run_id_of(store: Store, text: str, project: Project | None = None) -> str:
    """Return the complete id of the run that ``text`` names: its id, an unambiguous beginning of it, or ``last``, the
    newest one (of the ``project``). Raises RunNotFound."""
    last = text == LAST
    if last and project:
        return await _last(store, project)
    prefix = text if text.startswith("run_") else f"run_{text}"
    found = await store.list(kind=RUN, prefix="" if last else prefix, top=True, limit=1 if last else 10)
    exact = [one.id for one in found if one.id == prefix]
    if len(found) > 1 and not exact:
        names = ", ".join(one.id for one in found[:3])
        raise RunNotFound(f"{text!r} is ambiguous: {names}…", suggestion="give a longer prefix")
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
    """Return the beginning of an id, which is enough to name the run."""
    return run_id[:12]


def ended_here(worker: str) -> bool:
    """Report whether the worker was an unnamed process of this machine that has ended. If so, there is no need to wait
    until it counts as lost."""
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
    """Return the status of a run or a task, from its result if it has one. ``waiting`` says that only questions to
    people are in progress in it."""
    if execution.status is RunStatus.SUCCEEDED:
        return RunStatus(_result(execution).get("status", RunStatus.SUCCEEDED))
    going = execution.status in (RunStatus.QUEUED, RunStatus.RUNNING)
    return RunStatus.WAITING_APPROVAL if waiting and going else execution.status


def approvals_of(execution: Execution) -> list[dict[str, Any]]:
    """Return the questions of a task that wait for a person."""
    if execution.status.over or not execution.shown:
        return []
    return [{**one, "task": execution.id} for one in execution.shown.get("approvals", ())]


async def facts_of(store: Store, run_id: str) -> dict[str, Any]:
    """Return all facts of a run: id, the run it continues, name, status, workspace, worker, times, tasks, usage, notes
    for people, approvals. Tasks are followed by their parts, which are named by paths, and whose usage is included in
    theirs. Raises RunNotFound."""
    return (await run_and_facts(store, run_id))[1]


async def run_and_facts(store: Store, run_id: str) -> tuple[Execution, dict[str, Any]]:
    """Return a run, and its ``facts_of``. Raises RunNotFound."""
    run = await store.status(run_id)
    return run, run_facts(run, await store.list(prefix=f"{run_id}.", limit=MOST_TASKS))


def run_facts(run: Execution, executions: Sequence[Execution]) -> dict[str, Any]:
    """Return the ``facts_of`` a run, from its ``executions``: the tasks, and delegated work."""
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
        name: _task(results.get(name), latest.get(name), over=run.status.over, waiting=waits_for_people(name, going))
        for name in names
    }
    questions = [one for name in names if name in going for one in approvals_of(going[name])]
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
        "approvals": questions,
    }


def all_waiting(run: Execution, going: Mapping[str, Execution]) -> bool:
    """Report whether everything in progress in a run waits for people; ``going`` are its tasks that are not over."""
    names = [str(one["task"]) for one in (run.shown or {}).get("going", ())]
    return bool(names) and all(waits_for_people(name, going) for name in names)


def waits_for_people(task: str, going: Mapping[str, Execution]) -> bool:
    """Report whether a task waits for people, or all its parts in progress do."""
    if task not in going:
        return False
    parts = [waits_for_people(one, going) for one in going if enclosing_task(one, going) == task]
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
    """Raise UsageInvalid if the run does not have this task."""
    if not task:
        return
    payload: dict[str, Any] = (await store.status(run_id)).payload or {}
    names = [str(one["id"]) for one in payload.get("plan", {}).get("tasks", ())]
    if task.partition(".")[0] not in names:
        raise UsageInvalid(f"the run has no task {task!r}", suggestion=f"use one of: {', '.join(names)}")


async def unfinished_tasks(store: Store) -> list[Execution]:
    """Return the tasks of all runs that are not over, and their parts, newest first."""
    return [one for one in await store.list(unfinished=True, limit=MOST_TASKS) if one.kind != RUN]


async def runs(store: Store, limit: int, *, unfinished: bool = False) -> Sequence[Execution]:
    """Return runs, newest first, without delegated work."""
    return await store.list(kind=RUN, top=True, unfinished=unfinished, limit=limit)
