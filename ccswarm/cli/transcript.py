"""The verbs transcript and result: what agents thought and did in a run, and its result."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from agentwire.cli.options import Argument
from agentwire.cli.output import EXIT_ERROR, leave, remark, say, show_json
from agentwire.visible import visible
from ccswarm.cli.logs import clock
from ccswarm.cli.output import Json, show_lines
from ccswarm.cli.parameters import Config, LastRun
from ccswarm.cli.reading import read_store
from ccswarm.errors import UsageInvalid
from ccswarm.models import RunStatus
from ccswarm.runs.answers import answer, is_over, last_task
from ccswarm.runs.status import LAST, require_task, run_and_facts, run_id_of, short
from ccswarm.runs.store import StoreView
from ccswarm.runs.transcript import transcript as transcript_of
from ccswarm.runs.transcript import used

if TYPE_CHECKING:
    from pathlib import Path

SHOWN_CHARS = 8000
"""The length to which an answer of a tool is cut for people."""

Task = Annotated[str, Argument(metavar="[TASK]", help="One of its tasks, with its parts; default: all.")]


def transcript(run: LastRun = LAST, task: Task = "", config: Config = None, as_json: Json = False) -> None:
    """Show what agents thought and did: the answers of models with their costs, the calls with their outputs, the
    messages of people. --json has complete outputs.

    Exit codes: 0 shown, 2 there is no such run or task.
    """
    facts = transcript_facts(run, task, config)
    if as_json:
        show_json(facts)
        return
    for attempt in facts["attempts"]:
        show_lines(_format_attempt(attempt))
    if not facts["attempts"]:
        say("Nothing has started yet.")


def result(
    run: LastRun = LAST,
    task: Annotated[str, Argument(metavar="[TASK]", help="One of its tasks; default: the last one.")] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show the result of a run: the answer of its last task, or of TASK.

    Exit codes: 0 shown, 1 there is none yet, or the task did not succeed, 2 there is no such run or task.
    """
    found = read_store(config, lambda view: _result(run, task, view))
    succeeded = found["status"] == RunStatus.SUCCEEDED
    if as_json:
        show_json(found)
        leave(0 if succeeded else EXIT_ERROR)
    if found["answer"]:
        show_lines(found["answer"].split("\n"))
    if not succeeded:
        verb = "has ended:" if found["over"] else "is"
        why = f" ({found['summary']})" if found["summary"] else ""
        remark(visible(f"{found['task'] or found['run']} {verb} {found['status'].replace('_', ' ')}{why}"))
        if not found["over"]:
            remark(f"next: ccswarm logs -f {short(found['run'])} shows its progress")
        leave(EXIT_ERROR)


def transcript_facts(run: str, task: str, config: Path | None) -> dict[str, Any]:
    """Return the document that ``transcript --json`` shows. Raises RunNotFound and UsageInvalid."""
    return read_store(config, lambda view: _transcript(run, task, view))


async def _transcript(text: str, task: str, view: StoreView) -> dict[str, Any]:
    run_id = await run_id_of(view.store, text, view.project)
    await require_task(view.store, run_id, task)
    attempts = await transcript_of(view.store, run_id, task, view.journal)
    return {"run": run_id, "usage": used(attempts), "attempts": attempts}


async def _result(text: str, task: str, view: StoreView) -> dict[str, Any]:
    run, facts = await run_and_facts(view.store, await run_id_of(view.store, text, view.project))
    tasks: Mapping[str, Mapping[str, Any]] = facts["tasks"]
    if task and task not in tasks:
        raise UsageInvalid(f"the run has no task {task!r}", suggestion=f"use one of: {', '.join(tasks)}")
    name = task or last_task(run, tasks)
    one = tasks.get(name) or {"status": facts["status"], "summary": facts["error"], "result": None}
    shown = {"status": one["status"], "summary": one.get("summary") or "", "over": is_over(one)}
    return {"run": run.id, "task": name, **shown, "answer": answer(one), "result": one.get("result")}


def _format_attempt(attempt: Mapping[str, Any]) -> Iterator[str]:
    again = f", attempt {attempt['attempt']}" if attempt["attempt"] > 1 else ""
    status = attempt["status"].replace("_", " ")
    yield f"== {attempt['task']} ({attempt['agent']}{again}): {status}{_cost(attempt['usage'])}"
    yield from _indented(attempt["asked"])
    for entry in attempt["entries"]:
        at = clock(entry["at"])
        if entry["kind"] == "thought":
            yield f"{at} {entry['model']} says{_cost(entry)}"
            yield from _indented(entry["text"])
            for call in entry["calls"]:
                yield f"    → {call['tool']} {json.dumps(call['arguments'], ensure_ascii=False)}"
        elif entry["kind"] == "call":
            code = f", exit code {entry['exit_code']}" if entry.get("exit_code") is not None else ""
            why = ": ".join(filter(None, (entry["code"], entry["message"])))
            who = f"{entry['agent']} {entry['tool'] or entry['step']}".strip()
            yield f"{at} {who} → {entry['status']}{code} ({entry['seconds']:.1f} s){f' {why}' if why else ''}"
            yield from _indented(f"$ {entry['command']}" if entry["command"] else "")
            yield from _indented(_bounded(entry["answer"]))
        else:
            yield f"{at} {entry['said']}"


def _cost(usage: Mapping[str, float]) -> str:
    parts = [f"{usage['tokens']:,.0f} tokens"] if usage["tokens"] else []
    parts += [f"{usage['cached_tokens']:,.0f} of them cached"] if usage["cached_tokens"] else []
    parts += [f"${usage['dollars']:.4f}"] if usage["dollars"] else []
    return f" ({', '.join(parts)})" if parts else ""


def _indented(text: str) -> Iterator[str]:
    return (f"    {line}" for line in text.rstrip("\n").split("\n")) if text else iter(())


def _bounded(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    left = len(text) - SHOWN_CHARS
    return text if left <= 0 else f"{text[:SHOWN_CHARS]}\n… {left} more characters: --json shows all"
