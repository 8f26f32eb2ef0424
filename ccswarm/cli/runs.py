"""The verbs status, ps and runs: which runs there are, their progress and their results."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any, cast

from agentwire.cli.options import Argument, Group, Option
from agentwire.cli.output import EXIT_ERROR, leave, remark, say, show_facts, show_json, show_rows, to_person, when
from ccswarm.cli.output import Json, show_json_line, show_line
from ccswarm.cli.parameters import MOST_RUNS, Config, LastRun
from ccswarm.cli.reading import read_store
from ccswarm.errors import UsageInvalid
from ccswarm.models import RunStatus
from ccswarm.runs.events import RunEvent, events_with_calls, nested
from ccswarm.runs.status import (
    LAST,
    all_waiting,
    facts_of,
    run_id_of,
    runs,
    short,
    status_of,
    task_of,
    unfinished_tasks,
    waits_for_people,
)
from ccswarm.runs.store import StoreView
from ccswarm.toolbox import questions

if TYPE_CHECKING:
    from pathlib import Path

    from ccswarm.models import Execution

app = Group("List, show, compare and replay runs.")

TASK_COLUMNS = ("task", "status", "agent", "attempts", "seconds", "summary")
OWN = ("_id", "_key", "_seconds")
"""The endings of names of values that differ for each call, in any run."""

BEGIN = 'Begin one: ccswarm run "list the files"'
DIFFERENCES = ("status", "agent", "attempts", "summary", "result")
RESULT_CHARS = 400


def status(
    run: LastRun = LAST,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show the progress of a run: its tasks, the steps that agents listed, and what waits for a person.

    Exit codes: 0 shown, 2 there is no such run.
    """
    facts = read_store(config, lambda view: _facts(run, view))
    if as_json:
        show_json(facts)
        return
    _show_head(facts)
    show_rows(task_rows(facts), TASK_COLUMNS)
    steps = [{"task": name, **one} for name, task in facts["tasks"].items() for one in task.get("todo", ())]
    if steps:
        show_rows(steps, ("task", "status", "text"))
    _show_approvals(facts)


def ps(config: Config = None, as_json: Json = False) -> None:
    """Show what is running now: runs, their tasks, and the workers with the seconds since their last heartbeats."""
    found = read_store(config, _in_progress)
    if as_json:
        show_json(found)
        return
    show_rows(found["going"], ("id", "status", "agent", "worker", "seconds"))
    workers = [{"worker": name, "heard_seconds_ago": round(age, 1)} for name, age in found["workers"].items()]
    if workers:
        show_rows(workers, ("worker", "heard_seconds_ago"))
    if not found["going"]:
        remark(f"Nothing is running. {BEGIN}")


@app.command("list")
def list_runs(
    limit: Annotated[int, Option("--limit", "-n", least=1, help="How many, newest first.")] = 20,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List runs, the newest first."""
    found = read_store(config, lambda view: list_rows(limit, view))
    if as_json:
        show_json(found)
    elif found:
        named = short if to_person() else str
        rows = [{**row, "run": named(row["run"]), "begun": when(row["begun_at"])} for row in found]
        show_rows(rows, ("run", "status", "begun", "seconds", "tasks"))
    else:
        remark(f"There are no runs. {BEGIN}")


@app.command()
def show(run: LastRun = LAST, config: Config = None, as_json: Json = False) -> None:
    """Show all of a run: its tasks, their results, what was used, and the number of its calls in the journal.

    Exit codes: 0 shown, 2 there is no such run.
    """
    facts = read_store(config, lambda view: _all_facts(run, view))
    if as_json:
        show_json(facts)
        return
    _show_head(facts)
    show_facts({f"used_{name}": round(value, 3) for name, value in facts["usage"].items()})
    show_facts({f"journal_{name}": value for name, value in facts["journal"].items()})
    show_rows(task_rows(facts), TASK_COLUMNS)
    for name, task in facts["tasks"].items():
        if task["result"] is not None:
            text = _compact(task["result"])
            show_line(f"{name}: {text[:RESULT_CHARS]}{'…' if len(text) > RESULT_CHARS else ''}")
    say("--json shows whole results.")
    _show_approvals(facts)


@app.command()
def diff(
    one: Annotated[str, Argument(metavar="A", help="ID of a run, the beginning of one, or: last.")],
    other: Annotated[str, Argument(metavar="B", help="Another one.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Compare two runs task by task: status, agent, attempts, summary, and every part of the results. What differs in
    any run is left out: ids, keys, durations.

    Exit codes: 0 the results are the same, 1 they are not, 2 there is no such run.
    """
    found = compare(one, other, config)
    rows = found["differences"]
    if as_json:
        show_json(found)
    elif rows:
        shown = [{**row, "a": _compact(row["a"])[:200], "b": _compact(row["b"])[:200]} for row in rows]
        show_rows(shown, ("task", "what", "a", "b"))
    else:
        say("The results are the same.")
    leave(EXIT_ERROR if rows else 0)


@app.command()
def replay(run: LastRun = LAST, config: Config = None, as_json: Json = False) -> None:
    """Show again the events of a run, each with the seconds since the run began. Nothing is executed.

    Calls are those in the journal of this machine.
    """
    _replay(read_store(config, lambda view: all_events(run, view)), as_json)


def compare(one: str, other: str, config: Path | None) -> dict[str, Any]:
    """Return the document that ``diff --json`` shows. Raises RunNotFound and UsageInvalid."""
    first, second = read_store(config, lambda view: _both(one, other, view))
    rows = differences(_without_name(first), _without_name(second))
    return {"a": first["run"], "b": second["run"], "differences": rows}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return rows of task, what, a and b; of results only the parts that differ."""
    rows: list[dict[str, Any]] = []
    if one["status"] != other["status"]:
        rows.append({"task": "", "what": "status", "a": one["status"], "b": other["status"]})
    for name in dict.fromkeys((*one["tasks"], *other["tasks"])):
        first, second = one["tasks"].get(name), other["tasks"].get(name)
        if first is None or second is None:
            rows.append({"task": name, "what": "task", "a": bool(first), "b": bool(second)})
            continue
        for what in DIFFERENCES:
            rows += [{"task": name, **part} for part in _parts(what, first.get(what), second.get(what))]
    return rows


def _parts(path: str, one: Any, other: Any) -> list[dict[str, Any]]:
    if one == other or path.endswith(OWN):
        return []
    if isinstance(one, dict) and isinstance(other, dict):
        first, second = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
        names = dict.fromkeys((*first, *second))
        return [row for name in names for row in _parts(f"{path}.{name}", first.get(name), second.get(name))]
    if isinstance(one, list) and isinstance(other, list):
        pairs = list(zip_longest(cast("list[Any]", one), cast("list[Any]", other)))
        return [row for at, pair in enumerate(pairs) for row in _parts(f"{path}[{at}]", *pair)]
    return [{"what": path, "a": one, "b": other}]


def _without_name(facts: dict[str, Any]) -> dict[str, Any]:
    """Replace the run's own id by RUN, because it occurs in names of sessions and files."""
    return json.loads(json.dumps(facts).replace(facts["run"], "RUN")) | {"run": facts["run"]}


def task_rows(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return rows of TASK_COLUMNS."""
    return [
        {"task": name, **task, "seconds": _between(task["started_at"], task["ended_at"])}
        for name, task in facts["tasks"].items()
    ]


async def all_events(text: str, view: StoreView) -> list[RunEvent]:
    """Return all events of a run in chronological order, with the calls in the journal of this machine."""
    return await events_with_calls(view.store, await run_id_of(view.store, text, view.project), view.journal)


async def _facts(text: str, view: StoreView) -> dict[str, Any]:
    facts = await facts_of(view.store, await run_id_of(view.store, text, view.project))
    for one in facts["approvals"]:
        if answer := await questions.answer_to(view.store, str(one["id"]), str(one["task"])):
            one["answer"] = answer
    return facts


async def _both(one: str, other: str, view: StoreView) -> tuple[dict[str, Any], dict[str, Any]]:
    names = [await run_id_of(view.store, text, view.project) for text in (one, other)]
    if names[0] == names[1]:
        raise UsageInvalid(f"{one} and {other} are the same run", suggestion="ccswarm runs list")
    return await facts_of(view.store, names[0]), await facts_of(view.store, names[1])


async def _all_facts(text: str, view: StoreView) -> dict[str, Any]:
    from ccswarm.journal import files

    facts = await _facts(text, view)
    journal: dict[str, Any] = {"calls": 0, "ended": 0, "refused": 0, "seconds": 0.0}
    names = {"call.begin": "calls", "call.end": "ended", "call.refused": "refused"}
    workers: set[str] = set()
    for record in files.read(view.journal, facts["run"]):
        workers.add(record.worker)
        if record.event in names:
            journal[names[record.event]] += 1
        if record.event == "call.end":
            journal["seconds"] += float(record.facts.get("seconds") or 0)
    journal["seconds"] = round(journal["seconds"], 3)
    return {**facts, "journal": {**journal, "workers": sorted(workers)}}


async def list_rows(limit: int, view: StoreView) -> list[dict[str, Any]]:
    """Return rows of the newest runs."""
    found = await runs(view.store, min(limit, MOST_RUNS))
    tasks = await unfinished_tasks(view.store) if any(not run.status.over for run in found) else []
    return [_row(run, tasks) for run in found]


def _own(run: Execution, tasks: Iterable[Execution]) -> dict[str, Execution]:
    return {task_of(run.id, task.id): task for task in tasks if task.id.startswith(f"{run.id}.")}


def _row(execution: Execution, tasks: Iterable[Execution]) -> dict[str, Any]:
    result: dict[str, Any] = execution.result or {}
    counts: dict[str, int] = dict((execution.shown or {}).get("counts", {}))
    if result:
        counts = dict(Counter(task["status"] for task in result.get("tasks", {}).values()))
    status = status_of(execution, all_waiting(execution, _own(execution, tasks)))
    if status in (RunStatus.PAUSED, RunStatus.CANCELLED) and "running" in counts:
        counts[status] = counts.pop("running")
    return {
        "run": execution.id,
        "status": status.value,
        "begun": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(execution.created_at)),
        "begun_at": execution.created_at,
        "seconds": _between(execution.created_at, execution.ended_at),
        "tasks": ", ".join(f"{count} {what}" for what, count in counts.items()),
    }


async def _in_progress(view: StoreView) -> dict[str, Any]:
    health = await view.store.health()
    found: list[dict[str, Any]] = []
    tasks = await unfinished_tasks(view.store)
    for run in await runs(view.store, MOST_RUNS, unfinished=True):
        own = _own(run, tasks)
        found.append(_process(run, run.id, all_waiting(run, own)))
        for name, depth in nested(reversed(own)).items():
            found.append(_process(own[name], f"{'  ' * (depth + 1)}{name}", waits_for_people(name, own)))
    return {"going": found, "workers": dict(health["workers"])}


def _process(execution: Execution, shown: str, waiting: bool) -> dict[str, Any]:
    state = status_of(execution, waiting)
    seconds = round(time.time() - execution.created_at, 1)
    facts = {"id": shown, "kind": execution.kind, "status": state.value, "agent": execution.agent}
    return {**facts, "worker": execution.worker, "seconds": seconds}


def _replay(found: Sequence[RunEvent], as_json: bool) -> None:
    from ccswarm.runs.events import format_event

    began = found[0].at if found else 0.0
    for one in found:
        if as_json:
            show_json_line({**one.to_json(), "seconds": round(one.at - began, 3)})
        else:
            show_line(f"{one.at - began:9.3f} {format_event(one)}")


def _show_head(facts: Mapping[str, Any]) -> None:
    shown = {name: facts[name] for name in ("run", "continues", "name", "status", "workspace", "worker")}
    if facts["created_at"]:
        shown["begun"] = when(facts["created_at"])
    shown["seconds"] = _between(facts["created_at"], facts["ended_at"])
    if facts["error"]:
        shown["error"] = facts["error"]
    show_facts({name: value for name, value in shown.items() if value != ""})


def _show_approvals(facts: Mapping[str, Any]) -> None:
    for one in facts["approvals"]:
        asks = f"asks: {one['question']}" if "question" in one else f"asks for {one['tool']}"
        show_line(f"waits for approval {one['id']}: {one['agent']} {asks}")
        if answered := questions.unheard_answer({**one, "task_id": one["task"]}):
            show_line(f"    {answered}")
    if any("answer" not in one for one in facts["approvals"]):
        say("ccswarm approve ID approves, ccswarm reject ID rejects.")
    elif facts["status"] == RunStatus.PAUSED:
        say(f"ccswarm resume {short(facts['run'])} continues it.")


def _between(began: float, ended: float) -> float | str:
    return round(ended - began, 1) if began and ended else ""


def _compact(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
