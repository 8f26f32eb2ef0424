"""Answers about runs for clients: facts with a schema, and the same as text."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccswarm.models import Execution, RunStatus
from ccswarm.runs.events import asked_call, cut, task_of
from ccswarm.runs.status import all_waiting, status_of
from ccswarm.servers.mcp.toolsets.base import Answer, Facts
from ccswarm.servers.mcp.toolsets.swarm.tools import INTERRUPTED, PAGE_CHARS
from ccswarm.toolbox.questions import command_for

HERE = "this server"
MOST_CHARS = 2000
"""The limit of one text in an event."""


def make_answer(lines: Iterable[str], facts: Facts) -> Answer:
    """Return the answer, with the next step at the end of the text."""
    return Answer("\n".join((*lines, *(["next: " + facts["next"]] if facts["next"] else []))), facts)


@dataclass(frozen=True, slots=True)
class Carriers:
    """The live workers, and which of them is this process."""

    alive: frozenset[str]
    own: str = ""

    def of(self, run: Execution) -> str:
        """Return the worker that carries out the run, HERE if it is this process, or ``""``."""
        if run.status is not RunStatus.RUNNING or run.worker not in self.alive:
            return ""
        return HERE if run.worker == self.own else run.worker

    def status(self, run: Execution, waiting: bool = False) -> str:
        """Return the run's status; ``waiting`` says that only answers of people are missing."""
        if run.status is RunStatus.RUNNING and not self.of(run):
            return INTERRUPTED
        return status_of(run, waiting).value


def next_of(status: str, run: str, approvals: Sequence[Facts], has_workers: bool) -> str:
    """Return what the client should do next; ``anybody``: there is a live worker."""
    short = run[:12]
    match status:
        case "queued" if not has_workers:
            return f"no worker carries it out now: resume_run {short} does"
        case "queued" | "running":
            return f"run_events with run {short}, the last cursor, until over and wait_seconds 45 follows it"
        case "waiting_approval":
            questions = "; ".join(f"{one['agent']} asks for {one['tool']}: {one['answer']}" for one in approvals)
            return f"a person has to answer in a terminal, you cannot: {questions}. Then run_events follows it"
        case "paused" | "interrupted":
            return f"resume_run {short} continues it"
        case "succeeded":
            return f"read_result {short} reads its result"
        case "cancelled":
            return f"resume_run {short} continues it, read_result {short} reads what was done"
        case _:
            return f"read_result {short} shows why; resume_run {short} repeats the tasks that did not succeed"


def approvals_in(found: Iterable[Mapping[str, Any]]) -> list[Facts]:
    """Return open questions as clients see them."""
    return [
        {
            "id": one["id"],
            "task": one.get("task_id") or one.get("task", ""),
            "agent": one["agent"],
            "tool": one["tool"],
            "arguments": dict(one.get("arguments", {})),
            "answer": command_for(one),
        }
        for one in found
    ]


def lines_of_approvals(approvals: Sequence[Facts]) -> list[str]:
    """Return a line for each question."""
    return [
        f"waits for a person: {one['id']}: {one['agent']} in {one['task']} wants to call {asked_call(one)}"
        for one in approvals
    ]


def status_answer(facts: Mapping[str, Any], run: Execution, carriers: Carriers) -> Answer:
    """Return the answer of ``run_status``; ``facts`` are those of ``runs.status``."""
    approvals = approvals_in(facts["approvals"])
    status = carriers.status(run, facts["status"] == RunStatus.WAITING_APPROVAL)
    tasks: list[Facts] = [
        {
            "task": name,
            "status": one["status"],
            "agent": one["agent"],
            "attempts": one["attempts"],
            "seconds": _between(one["started_at"], one["ended_at"]),
            "summary": str(one["summary"])[:MOST_CHARS],
        }
        for name, one in facts["tasks"].items()
    ]
    shown: Facts = {
        "run": run.id,
        "name": facts["name"],
        "status": status,
        "over": run.status.over,
        "worker": carriers.of(run),
        "workspace": facts["workspace"],
        "seconds": _between(run.created_at, run.ended_at or time.time()),
        "tasks": tasks,
        "usage": dict(facts["usage"]),
        "approvals": approvals,
        "error": facts["error"],
        "next": next_of(status, run.id, approvals, bool(carriers.alive)),
    }
    head = f"{run.id} ({facts['name']}): {status}, {shown['seconds']:g} s, in {facts['workspace']}"
    by = [f"carried out by {shown['worker']}"] if shown["worker"] else []
    error = [f"error: {facts['error']}"] if facts["error"] else []
    used = [f"used: {json.dumps(shown['usage'])}"] if shown["usage"] else []
    return make_answer((head, *by, *error, *map(_line, tasks), *used, *lines_of_approvals(approvals)), shown)


def _line(task: Facts) -> str:
    words = [f"{task['task']}: {task['status']}"]
    words += [f"by {task['agent']}"] if task["agent"] else []
    words += [f"attempt {task['attempts']}"] if task["attempts"] > 1 else []
    words += [f"{task['seconds']:g} s"] if task["seconds"] else []
    return ", ".join(words) + (f": {cut(task['summary'])}" if task["summary"] else "")


def runs_answer(found: Sequence[Execution], tasks: Sequence[Execution], carriers: Carriers) -> Answer:
    """Return the answer of ``list_runs``; ``tasks`` are those that are not over."""
    rows: list[Facts] = []
    for run in found:
        result: Mapping[str, Any] = run.result or {}
        counts: Mapping[str, int] = (run.shown or {}).get("counts", {})
        if result:
            counts = Counter(task["status"] for task in result.get("tasks", {}).values())
        own = {task_of(run.id, task.id): task for task in tasks if task.id.startswith(f"{run.id}.")}
        begun = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.created_at))
        rows.append(
            {
                "run": run.id,
                "status": carriers.status(run, all_waiting(run, own)),
                "begun": begun,
                "seconds": _between(run.created_at, run.ended_at),
                "tasks": ", ".join(f"{count} {what}" for what, count in counts.items()),
            }
        )
    lines = [f"{row['run']}: {row['status']}, begun {row['begun']}, tasks: {row['tasks'] or '-'}" for row in rows]
    then = "run_status RUN shows the progress of one" if rows else "start_run starts one"
    return make_answer(lines or ["There are no runs."], {"runs": rows, "next": then})


def result_of(facts: Mapping[str, Any], task: str = "") -> str:
    """Return the result of a run or of one task as text: JSON, except for a result that is text itself."""
    if task:
        result = facts["tasks"][task]["result"]
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, indent=1)
    kept = ("status", "agent", "attempts", "summary", "result")
    tasks = {name: {key: one.get(key) for key in kept} for name, one in facts["tasks"].items() if "." not in name}
    shown = {"run": facts["run"], "status": facts["status"], "error": facts["error"], "tasks": tasks}
    return json.dumps(shown, ensure_ascii=False, indent=1)


def page_answer(run: str, task: str, status: str, text: str, offset: int) -> Answer:
    """Return the answer of ``read_result``."""
    page = text[offset : offset + PAGE_CHARS]
    following = offset + len(page)
    more = following < len(text)
    then = f"read_result with offset {following} reads on" if more else ""
    facts: Facts = {
        "run": run,
        "task": task,
        "status": status,
        "text": page,
        "offset": offset,
        "next_offset": following,
        "more": more,
        "total_chars": len(text),
        "next": then,
    }
    head = f"{run}{' ' + task if task else ''}: {status}, characters {offset} to {following} of {len(text)}"
    return make_answer((head, page), facts)


def shortened(value: Any) -> Any:
    """Return the value with long texts cut; each says by how much."""
    if isinstance(value, str):
        left = len(value) - MOST_CHARS
        return value if left <= 0 else f"{value[:MOST_CHARS]}… ({left} more characters)"
    if isinstance(value, Mapping):
        return {str(name): shortened(item) for name, item in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list | tuple):
        return [shortened(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _between(began: float, ended: float) -> float:
    return round(ended - began, 1) if began and ended else 0
