"""All of a run that a page shows: its tasks in the plan's order, the attempts at each with what happened in them and
when they waited for people, and what of the budget is used."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ccswarm.runs.answers import answer
from ccswarm.runs.events import RunEvent, ended, format_event, past, task_of, timed
from ccswarm.runs.status import MOST_TASKS, RUN, asking, described, status_of

if TYPE_CHECKING:
    from ccswarm.engines.base import Store
    from ccswarm.models import Execution

MOST_CHARS = 20_000
"""Of one text that an agent or a gate wrote."""

BUDGETS = ("seconds", "calls", "tokens", "dollars")


async def detail(store: Store, run_id: str) -> dict[str, Any]:
    """Of a run with its whole id. Times are seconds since 1970, 0 where not yet. Raises RunNotFound."""
    run = await store.status(run_id)
    executions = await store.list(prefix=f"{run_id}.", limit=MOST_TASKS)
    facts = described(run, executions)
    events = timed(await past(store, run_id), {one.id: one for one in (*executions, run)})
    payload: Mapping[str, Any] = run.payload or {}
    plan: Mapping[str, Any] = payload.get("plan", {})
    over = [one for one in events if one.event == "task.ended"]
    summaries = {ended(one.execution, one.facts): str(one.facts.get("summary") or "") for one in over}
    attempts: dict[str, list[dict[str, Any]]] = {}
    going = {task_of(run_id, one.id): one for one in executions if one.kind != RUN and not one.status.over}
    for execution in sorted(executions, key=lambda one: one.created_at):
        if execution.kind != RUN:
            path = task_of(run_id, execution.id)
            own = [one for one in events if one.execution == execution.id]
            summary = summaries.get(execution.id, "")
            attempts.setdefault(path, []).append(_attempt(execution, own, summary, asking(path, going)))
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
    shown = {"task": name, "status": facts["status"], "agent": facts["agent"], "summary": cut(facts["summary"] or "")}
    wanted = {
        "text": cut(str(planned.get("text", ""))),
        "needs": list(planned.get("needs", ())),
        "planned": bool(planned),
    }
    came = {"answer": cut(answer(facts)), "todo": list(facts.get("todo", ())), "usage": dict(facts.get("usage") or {})}
    return {**shown, **wanted, **came, "gates": gates, "reviewers": reviewers, "attempts": list(attempts)}


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
    """What is used, and the most of it, 0 where there is no limit; nothing of what is neither."""
    caps: Mapping[str, Any] = plan.get("swarm", {}).get("budget", {})
    used = {**(await store.spent(run.id)), **_used(run)}
    if run.created_at:
        used["seconds"] = (run.ended_at or time.time()) - run.created_at
    rows = [{"name": name, "used": float(used.get(name) or 0), "most": float(caps.get(name) or 0)} for name in BUDGETS]
    return [row for row in rows if row["used"] or row["most"]]


def _used(run: Execution) -> dict[str, Any]:
    """What a run that is over has used, from its result."""
    result: Mapping[str, Any] = run.result or {}
    usage: Mapping[str, Any] = result.get("usage") or {}
    return {name: value for name, value in usage.items() if name in BUDGETS}


def cut(text: str) -> str:
    """The text; of one that is very long the beginning, and how much is left out."""
    left = len(text) - MOST_CHARS
    return text if left <= 0 else f"{text[:MOST_CHARS]}\n… {left} characters more"
