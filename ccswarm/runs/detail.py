"""All of a run that a page shows: tasks in the plan's order, events of each attempt, questions, and use of budgets."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ccswarm.runs.answers import answer
from ccswarm.runs.events import RunEvent, ended_execution, format_event, past, task_of, timed
from ccswarm.runs.status import MOST_TASKS, RUN, run_facts, status_of, waits_for_people

if TYPE_CHECKING:
    from ccswarm.engines.base import Store
    from ccswarm.models import Execution

MOST_CHARS = 20_000
"""The length to which a text of an agent or a gate is cut."""

BUDGETS = ("seconds", "calls", "tokens", "dollars")


async def detail(store: Store, run_id: str) -> dict[str, Any]:
    """Return the details of the run with this complete id. Times are Unix times, 0 if not yet. Raises RunNotFound."""
    run = await store.status(run_id)
    executions = await store.list(prefix=f"{run_id}.", limit=MOST_TASKS)
    facts = run_facts(run, executions)
    events = timed(await past(store, run_id), {one.id: one for one in (*executions, run)})
    payload: Mapping[str, Any] = run.payload or {}
    plan: Mapping[str, Any] = payload.get("plan", {})
    over = [one for one in events if one.event == "task.ended"]
    summaries = {ended_execution(one.execution, one.facts): str(one.facts.get("summary") or "") for one in over}
    attempts: dict[str, list[dict[str, Any]]] = {}
    going = {task_of(run_id, one.id): one for one in executions if one.kind != RUN and not one.status.over}
    for execution in sorted(executions, key=lambda one: one.created_at):
        if execution.kind != RUN:
            path = task_of(run_id, execution.id)
            own = [one for one in events if one.execution == execution.id]
            summary = summaries.get(execution.id, "")
            attempts.setdefault(path, []).append(_attempt(execution, own, summary, waits_for_people(path, going)))
    planned = {str(one["id"]): one for one in plan.get("tasks", ())}
    tasks = [_task(name, one, planned.get(name, {}), attempts.get(name, [])) for name, one in facts["tasks"].items()]
    basics = {
        name: facts[name] for name in ("run", "continues", "name", "status", "workspace", "worker", "error", "notes")
    }
    times = {name: facts[name] for name in ("created_at", "ended_at")}
    basics["begun_by"] = str(payload.get("begun_by", ""))
    return {**basics, **times, "tasks": tasks, "budgets": await _budgets(store, run, plan)}


def _task(
    name: str, facts: Mapping[str, Any], planned: Mapping[str, Any], attempts: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    gates = [str(one.get("tool") or one.get("command", "")) for one in planned.get("gates", ())]
    reviewers = list(planned.get("review", {}).get("by", ()))
    state = {"task": name, "status": facts["status"], "agent": facts["agent"], "summary": cut(facts["summary"] or "")}
    plan = {
        "text": cut(str(planned.get("text", ""))),
        "needs": list(planned.get("needs", ())),
        "planned": bool(planned),
    }
    outcome = {
        "answer": cut(answer(facts)),
        "todo": list(facts.get("todo", ())),
        "usage": dict(facts.get("usage") or {}),
    }
    return {**state, **plan, **outcome, "gates": gates, "reviewers": reviewers, "attempts": list(attempts)}


def _attempt(execution: Execution, events: Iterable[RunEvent], summary: str, waiting: bool) -> dict[str, Any]:
    happened: list[dict[str, Any]] = []
    waits: dict[str, dict[str, Any]] = {}
    for one in events:
        facts = one.facts
        if one.event == "approval.asked":
            waits[str(facts["id"])] = {"question": str(facts["id"]), "began": one.at, "ended": 0.0}
        elif one.event == "approval.answered" and str(facts["id"]) in waits:
            waits[str(facts["id"])]["ended"] = one.at
        words = str(facts["said"]) if one.event == "gate.failed" else format_event(one).removeprefix(f"{one.task}: ")
        happened.append({"at": one.at, "event": one.event, "said": cut(words)})
    return {
        "execution": execution.id,
        "attempt": int(execution.id.rpartition(".")[2].partition("~")[2] or 1),
        "agent": execution.agent,
        "status": status_of(execution, waiting).value,
        "summary": cut(summary),
        "began": execution.created_at,
        "ended": execution.ended_at,
        "owner": f"run:{quote(execution.id, safe='')}",
        "waits": list(waits.values()),
        "happened": happened,
    }


async def _budgets(store: Store, run: Execution, plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what is used and its limit, 0 for none, of each budget that is used or limited."""
    caps: Mapping[str, Any] = plan.get("swarm", {}).get("budget", {})
    used = {**(await store.spent(run.id)), **_used(run)}
    if run.created_at:
        used["seconds"] = (run.ended_at or time.time()) - run.created_at
    rows = [{"name": name, "used": float(used.get(name) or 0), "most": float(caps.get(name) or 0)} for name in BUDGETS]
    return [row for row in rows if row["used"] or row["most"]]


def _used(run: Execution) -> dict[str, Any]:
    """Return what a run that is over has used, from its result."""
    result: Mapping[str, Any] = run.result or {}
    usage: Mapping[str, Any] = result.get("usage") or {}
    return {name: value for name, value in usage.items() if name in BUDGETS}


def cut(text: str) -> str:
    """Return ``text``, or, if it is very long, its beginning and how much is left out."""
    left = len(text) - MOST_CHARS
    return text if left <= 0 else f"{text[:MOST_CHARS]}\n… {left} more characters"
