"""The events of a run: its own record and those of its tasks as one sequence, and the calls in the journal. Tasks are
named by their ids, and parts of a task by a path: ``main.hand.count`` is the task ``count`` that ``main`` delegated in
its step ``hand``, and ``main.review1.bob`` is bob's review of its first attempt."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentwire.counts import counted
from ccswarm.errors import RunNotFound
from ccswarm.journal.chain import Record, parse_line
from ccswarm.journal.files import directory_of, files, read

if TYPE_CHECKING:
    from ccswarm.engines.base import Store
    from ccswarm.models import Execution

SHOWN_CHARS = 120
MOST_EXECUTIONS = 10_000
CALLS = ("call.begin", "call.end", "call.refused")
"""The journal's events that are shown."""

TRY = re.compile(r"~\d+(?=\.|$)")


@dataclass(frozen=True, slots=True)
class RunEvent:
    """An event in ``run``. ``task`` is empty for the run's own; ``at`` is in seconds since 1970, 0 if unknown."""

    run: str
    execution: str
    facts: Mapping[str, Any]
    at: float = 0.0
    count: int = 0
    """The number of events of its execution up to this one; 0 for an event that is not the execution's own."""

    @property
    def event(self) -> str:
        """The kind of event."""
        return str(self.facts.get("event", ""))

    @property
    def task(self) -> str:
        """The path of the task that it is about."""
        within = task_of(self.run, self.execution)
        if not self.event.startswith("task."):
            return within
        return f"{within}.{self.facts['task']}" if within else str(self.facts["task"])

    def to_json(self) -> dict[str, Any]:
        """Return a line of ``--json``; delegated work is named by ``execution``."""
        shown = {"event": self.event, "at": round(self.at, 3) or None, "run": self.run, "task": self.task or None}
        facts = {"execution" if name == "run" else name: value for name, value in self.facts.items()}
        return {name: value for name, value in {**shown, **facts, "task": shown["task"]}.items() if value is not None}


def task_of(run: str, execution: str) -> str:
    """Return the path of the task that an execution attempts; ``""`` for the run itself."""
    return TRY.sub("", execution.removeprefix(run).removeprefix("."))


def execution_of(run: str, task: str, attempt: int) -> str:
    """Return the id of an attempt at a task of a run, or of delegated work."""
    return f"{run}.{task}" + (f"~{attempt}" if attempt > 1 else "")


def enclosing_task(task: str, known: Collection[str]) -> str:
    """Return the nearest of ``known`` that contains the task; ``""`` if none does."""
    while "." in task:
        task = task.rpartition(".")[0]
        if task in known:
            return task
    return ""


def nested(tasks: Iterable[str]) -> dict[str, int]:
    """Return the tasks in the given order, but each followed by its parts, with the depth of each."""
    known = dict.fromkeys(tasks)
    parts: dict[str, list[str]] = {}
    for task in known:
        parts.setdefault(enclosing_task(task, known), []).append(task)
    found: dict[str, int] = {}
    left = [(task, 0) for task in reversed(parts.get("", []))]
    while left:
        task, depth = left.pop()
        found[task] = depth
        left += [(part, depth + 1) for part in reversed(parts.get(task, []))]
    return found


def started_executions(execution: str, facts: Mapping[str, Any]) -> list[str]:
    """Return the executions that begin with an event of ``execution``."""
    match facts.get("event"):
        case "task.started":
            return [str(facts["execution"])]
        case "work.handed_on":
            return [str(facts["run"])]
        case "review.asked":
            return [reviewing(execution, facts, by) for by in facts["by"]]
        case _:
            return []


def ended_execution(execution: str, facts: Mapping[str, Any]) -> str:
    """Return the execution whose end ``execution`` reports by this event; ``""`` if none."""
    match facts.get("event"):
        case "task.ended":
            return execution_of(execution, str(facts["task"]), int(facts["attempt"]))
        case "work.came_back":
            return str(facts["run"])
        case "review.said":
            return reviewing(execution, facts, facts["by"])
        case _:
            return ""


def reviewing(execution: str, facts: Mapping[str, Any], agent: str) -> str:
    """Return the execution of the review that an event reports."""
    return f"{execution}.review{facts['round']}.{agent}"


async def past(store: Store, run: str) -> list[RunEvent]:
    """Return the events recorded so far of a run, its tasks and their parts; each execution's events come before its
    end. Start and end of delegated work are reported by the delegating agent."""
    found: list[RunEvent] = []
    read: set[str] = set()

    async def add(execution: str) -> None:
        read.add(execution)
        count, unfinished = 0, dict[str, None]()
        async for facts in store.events(execution, follow=False):
            count += 1
            unfinished |= dict.fromkeys(started_executions(execution, facts))
            if (over := ended_execution(execution, facts)) in unfinished:
                del unfinished[over]
                await add_part(over)
            if execution == run or facts.get("event") not in ("run.started", "run.ended"):
                found.append(RunEvent(run, execution, facts, float(facts.get("at") or 0), count))
        for other in unfinished:
            await add_part(other)

    async def add_part(execution: str) -> None:
        with suppress(RunNotFound):  # removed in the meantime, as old runs are
            await add(execution) if execution not in read else None

    await add(run)
    return found


def recorded_calls(state_directory: Path, run: str) -> Iterator[dict[str, Any]]:
    """Yield the calls of the run that are in this machine's journals, as plain JSON. Raises OSError."""
    for one in read(directory_of(state_directory), run):
        yield {"event": one.event, "at": one.at, "worker": one.worker, **one.facts}


async def events_with_calls(store: Store, run: str, journal: Path) -> list[RunEvent]:
    """Return all events of a run so far, with the calls in ``journal``, in chronological order."""
    return await merged_by_time(store, await past(store, run), Calls(journal, run))


async def merged_by_time(store: Store, events: Sequence[RunEvent], calls: Calls) -> list[RunEvent]:
    """Return the events of a run and its calls in the journal, with their times, in chronological order."""
    run = calls.run
    executions = await store.list(prefix=f"{run}.", limit=MOST_EXECUTIONS)
    known = {execution.id: execution for execution in (*executions, await store.status(run))}
    records = [event_from_record(run, record) for record in calls.new() if record.event in CALLS]
    return sorted((*timed(events, known), *records), key=lambda run_event: run_event.at)


def timed(run_events: Sequence[RunEvent], executions: Mapping[str, Execution]) -> list[RunEvent]:
    """Add times to events without: when their execution began or ended, else that of its previous event."""
    last = {name: execution.created_at for name, execution in executions.items()}
    found: list[RunEvent] = []
    for one in run_events:
        about = one.execution
        if one.event.startswith("task."):
            about = execution_of(one.execution, str(one.facts["task"]), int(one.facts["attempt"]))
        execution = executions.get(about)
        at = one.at or last.get(about, 0.0)
        if not one.at and execution and one.event in ("task.ended", "run.ended"):
            at = execution.ended_at or at
        last[about] = at
        found.append(replace(one, at=at))
    return found


class Calls:
    """The calls of a run in the journal of this machine's workers. With ``fresh``, only those written from now on."""

    def __init__(self, directory: Path, run: str, *, fresh: bool = False) -> None:
        self._directory = directory
        self.run = run
        self._offsets = {path: path.stat().st_size for path in files(directory).values()} if fresh else {}

    def new(self) -> list[Record]:
        """Return the records written since the previous call, in chronological order."""
        found: list[Record] = []
        for path in files(self._directory).values():
            offset = self._offsets.get(path, 0)
            if path.stat().st_size <= offset:
                continue
            with path.open("rb") as file:
                file.seek(offset)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    offset += len(line)
                    if (link := parse_line(line)) and link.record.run_id == self.run:
                        found.append(link.record)
            self._offsets[path] = offset
        return sorted(found, key=lambda record: record.at)


def event_from_record(run: str, record: Record) -> RunEvent:
    """Return a record of the journal as an event of its task."""
    facts = {name: value for name, value in record.facts.items() if name not in ("run", "task")}
    return RunEvent(run, str(record.facts.get("task") or run), {"event": record.event, **facts}, record.at)


def format_event(run_event: RunEvent) -> str:
    """Format an event as one line for people."""
    facts, event = run_event.facts, run_event.event
    line = (_format_call_event if event in CALLS else _format_run_event)(event, facts)
    return f"{run_event.task}: {line}" if run_event.task else line


def _format_run_event(event: str, facts: Mapping[str, Any]) -> str:
    match event:
        case "run.started":
            before = f", {len(facts['done'])} done in {facts['continues']}" if "continues" in facts else ""
            tasks = counted(len(facts["tasks"]), "task")
            agents = counted(facts["agents"], "agent")
            return f"run started: {tasks}, {agents}{before}"
        case "run.ended":
            counts = ", ".join(f"{count} {status}" for status, count in facts["counts"].items())
            notes = "".join(f"; {note}" for note in facts.get("notes", ()))
            return f"run {facts['status']}: {counts}{notes}"
        case "task.started":
            again = f", attempt {facts['attempt']}" if facts["attempt"] > 1 else ""
            return f"started by {facts['agent']}{again}"
        case "task.ended":
            summary = f": {cut(str(facts['summary']))}" if facts["summary"] else ""
            return f"{facts['status']}{', to be retried' if facts.get('again') else ''}{summary}"
        case "approval.asked":
            return f"waits for approval {facts['id']}: {question_text(facts)}"
        case "approval.answered":
            by = f" by {facts['by']}" if facts.get("by") else ""
            why = f": {facts['reason']}" if facts.get("reason") else ""
            how = "given" if facts["approved"] else "returned for more work" if facts.get("again") else "refused"
            return f"approval {facts['id']} {how}{by}{why}"
        case "person.said":
            return f"{facts['by']} says to it: {cut(str(facts['text']))}"
        case "gates.held":
            return "gates passed"
        case "gate.failed":
            return cut(str(facts["said"]))
        case "merge":
            result = "it cannot be merged" if facts.get("conflict") else counted(facts.get("commits") or 0, "commit")
            return f"merge of {facts['ref']}: {result}"
        case "merge.judged":
            return f"the gates check the merge with {facts['head'][:12]}, committed in the meantime"
        case "work.on_branch":
            return f"its work is on the branch {facts['branch']}, not merged"
        case "work.kept":
            return f"its work is kept at {facts['ref']}, not merged"
        case "work.handed_on":
            return f"{facts['agent']} delegates {counted(len(facts['tasks']), 'task')}: {', '.join(facts['tasks'])}"
        case "work.came_back":
            return f"the delegated work is {facts['status']}"
        case "review.asked":
            return f"to be reviewed by {', '.join(facts['by'])}"
        case "review.said":
            return f"{facts['by']} {'accepts' if facts['accepted'] else 'rejects'} it: {cut(str(facts['summary']))}"
        case "agent.said":
            used = f" ({facts['tokens']} tokens)" if facts.get("tokens") else ""
            if not facts["text"] and facts.get("calls"):
                return f"calls {cut(', '.join(facts['calls']))}{used}"
            return f"says: {cut(str(facts['text']))}{used}"
        case "agent.waits":
            return cut(f"asks {facts['model']} again in {facts['seconds']:g} s: {_why(facts)}")
        case "agent.redirected":
            return f"asks {facts['model']} at {facts['endpoint']}"
        case "agent.summed_up":
            return f"summarizes its conversation: {facts['chars']} characters become {facts['left']}"
        case "agent.changed_model":
            return cut(f"continues with {facts['to']}: {facts['model']}: {_why(facts)}")
        case "program.started":
            return f"{facts['program']} works in terminal {facts['session']} of {facts['server']}"
        case "program.ended":
            how = f"with {facts['exit']}" if "exit" in facts else facts.get("gone") or facts.get("failed")
            return f"{facts['program']} ended {how}"
        case "tools.opened":
            return f"waits for a client of {facts['agent']}"
        case _:
            rest = " ".join(f"{name}={value}" for name, value in facts.items() if name not in ("event", "at", "task"))
            return cut(f"{event} {rest}")


def _why(facts: Mapping[str, Any]) -> str:
    """Return in words why a model did not answer."""
    message = f": {facts['message']}" if facts.get("message") else ""
    return f"{str(facts['why']).replace('_', ' ')}{message}"


def _format_call_event(event: str, facts: Mapping[str, Any]) -> str:
    who = f"{facts.get('agent', '')} {facts.get('tool', '')}".strip()
    if event == "call.begin":
        return f"{who} {_command(facts)}".rstrip()
    code = facts.get("exit_code")
    outcome = str(facts.get("status", "")) + (f" {facts['code']}" if facts.get("code") else "")
    outcome += f", exit code {code}" if code is not None else ""
    why = f": {cut(str(facts['message']))}" if facts.get("message") else ""
    return f"{who} → {outcome}{why} ({float(facts.get('seconds') or 0):.1f} s)"


def _command(facts: Mapping[str, Any]) -> str:
    arguments: dict[str, Any] = facts.get("args") or {}
    command: dict[str, Any] = arguments.get("command") or {}
    return cut(str(command.get("text", "")))


def question_text(question: Mapping[str, Any]) -> str:
    """Return which agent asks a person for what."""
    if "question" in question:
        return f"{question['agent']} asks: {question['question']}"
    return f"{question['agent']} asks for {asked_call(question)}"


def asked_call(question: Mapping[str, Any]) -> str:
    """Return the call that a person is asked about."""
    given = (f"{name}={cut(str(value))}" for name, value in question.get("arguments", {}).items())
    return " ".join((str(question["tool"]), *given))


def cut(text: str) -> str:
    """Return the beginning of ``text``, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= SHOWN_CHARS else line[: SHOWN_CHARS - 1] + "…"
