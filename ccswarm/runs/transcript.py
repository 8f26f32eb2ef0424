"""What agents thought and did in a run: answers of models, calls with their results, messages of people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ccswarm.journal import files
from ccswarm.runs.events import MOST_EXECUTIONS, RunEvent, format_event, task_of
from ccswarm.runs.status import RUN, approvals_of, status_of

if TYPE_CHECKING:
    from ccswarm.engines.base import Step, Store
    from ccswarm.models import Execution

THOUGHT, CALL = "think ", "call "
"""The prefixes of the names of steps in which a brain did something, and of calls."""

SHOWN_ANYWAY = ("agent.said", "task.started", "task.ended")
"""Events that repeat what a transcript shows elsewhere."""

USED = ("tokens", "cached_tokens", "dollars")

Begun = dict[tuple[str, str], list[Mapping[str, Any]]]
"""The journal's begin records of the calls of each step of an execution, in order."""


async def transcript(store: Store, run: str, task: str, journal: Path) -> list[dict[str, Any]]:
    """Return the attempts at the tasks of a run and at their parts, in the order in which they began, each with task,
    attempt, agent, status, the task's text, usage, and ``entries`` in chronological order. With ``task``, only that
    task and its parts. Calls that are not in ``journal`` have no arguments."""
    executions = [one for one in await store.list(prefix=f"{run}.", limit=MOST_EXECUTIONS) if one.kind != RUN]
    wanted = [one for one in executions if not task or f"{task_of(run, one.id)}.".startswith(f"{task}.")]
    begun: Begun = {}
    for one in files.read(journal, run):
        if one.event == "call.begin":
            begun.setdefault((str(one.facts.get("task")), str(one.facts.get("step"))), []).append(one.facts)
    wanted.sort(key=lambda one: one.created_at)
    return [await _attempt(store, run, await store.status(one.id), begun) for one in wanted]


async def _attempt(store: Store, run: str, execution: Execution, begun: Begun) -> dict[str, Any]:
    entries = [entry for step in await store.steps(execution.id) if (entry := _entry(execution.id, step, begun))]
    async for facts in store.events(execution.id, follow=False):
        if facts["event"] not in SHOWN_ANYWAY:
            event = RunEvent(run, execution.id, facts)
            about = {"kind": "event", "said": format_event(event).removeprefix(f"{event.task}: ")}
            entries.append({**facts, "at": float(facts.get("at") or 0), **about})
    entries.sort(key=lambda entry: entry["at"])
    task: Mapping[str, Any] = _table(_table(execution.payload).get("task"))
    thoughts = [entry for entry in entries if entry["kind"] == "thought"]
    return {
        "task": task_of(run, execution.id),
        "attempt": int(execution.id.rpartition(".")[2].partition("~")[2] or 1),
        "agent": execution.agent or str(_table(execution.payload).get("agent", "")),
        "status": status_of(execution, bool(approvals_of(execution))).value,
        "asked": str(task.get("text", "")),
        "usage": {name: sum(one[name] for one in thoughts) for name in USED},
        "entries": entries,
    }


def _entry(execution: str, step: Step, begun: Begun) -> dict[str, Any] | None:
    facts = _table(step.result)
    kind, _, name = step.name.partition(" ")
    head = {"at": step.ended_at, "seconds": round(step.ended_at - step.began_at, 3), "step": name}
    if f"{kind} " == THOUGHT and "calls" in facts and "text" in facts:
        used = _table(facts.get("usage"))
        calls = [_requested_call(call) for call in facts["calls"]]
        usage = {one: used.get(one) or 0 for one in USED}
        return {
            **head,
            "kind": "thought",
            "model": facts.get("model", ""),
            "text": facts["text"],
            "calls": calls,
            **usage,
        }
    if f"{kind} " == THOUGHT and (error := _table(facts.get("error"))):
        return {**head, "kind": "trouble", "said": f"{error.get('kind')}: {error.get('message')}"}
    if f"{kind} " == CALL:
        records = begun.get((execution, name), [])
        known: Mapping[str, Any] = records.pop(0) if len(records) > 1 else records[0] if records else {}
        command: object = _table(_table(known.get("args")).get("command")).get("text")
        identity: dict[str, Any] = {name: known.get(name, "") for name in ("tool", "agent", "call")}
        identity["command"] = command or ""
        structured = _table(facts.get("structured"))
        code = {"exit_code": structured["exit_code"]} if "exit_code" in structured else {}
        outcome = {name: facts.get(name, "") for name in ("status", "code", "message")}
        text = facts.get("text") or structured.get("output") or structured or ""
        return {**head, "kind": "call", **identity, **outcome, **code, "answer": text}
    return None


def _requested_call(call: Mapping[str, Any]) -> dict[str, Any]:
    return {"tool": call.get("name", ""), "arguments": call.get("arguments")}


def used(attempts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the total usage of all attempts."""
    return {name: sum(one["usage"][name] for one in attempts) for name in USED}


def _table(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
