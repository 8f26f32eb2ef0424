"""The tools' functions: each takes a workbench and valid arguments, and returns an answer or raises SwarmError."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from ccswarm.errors import ConfigInvalid, InvalidArguments, PlanInvalid, ServerUnavailable, SwarmError
from ccswarm.models import Execution, RunStatus
from ccswarm.plan.check import describe, plan_problems, split_location
from ccswarm.runs import service
from ccswarm.runs.app import App
from ccswarm.runs.checks import brain_problems
from ccswarm.runs.events import RunEvent, format_event
from ccswarm.runs.feed import EventStream
from ccswarm.runs.status import facts_of, run_id_of, unfinished_tasks
from ccswarm.runs.status import runs as listed
from ccswarm.servers.mcp.toolsets.base import Answer, Facts, Given
from ccswarm.servers.mcp.toolsets.swarm.answers import (
    Carriers,
    approvals_in,
    lines_of_approvals,
    make_answer,
    next_of,
    page_answer,
    result_of,
    runs_answer,
    shortened,
    status_answer,
)
from ccswarm.servers.mcp.toolsets.swarm.cursor import Position
from ccswarm.servers.mcp.toolsets.swarm.tools import BY_NAME, INTERRUPTED
from ccswarm.servers.mcp.workbench import Workbench
from ccswarm.toolbox.discovery import called_tools

EVENT_CHARS = 24_000
"""The size limit of the events in one answer, about 8,000 tokens."""

INSTEAD = {
    "ccswarm runs list": "list_runs shows the runs",
    "ccswarm runs show": "read_result reads its result, start_run starts another one",
    "write the steps": "give a plan: TOML with [[steps]] (id, tool = SERVER.TOOL, args); list_agents shows who may use "
    "what",
    "ccswarm config reference": "check_plan names every problem of a plan; a configuration is corrected by the person",
    "ccswarm doctor": "check_plan names what is wrong; ccswarm doctor in a terminal says more",
}
"""What a client should do where a person would use a terminal, by the beginning of the suggestion for the person."""


async def call(workbench: Workbench, name: str, arguments: Given) -> Answer:
    """Call a tool of ``BY_NAME``. Raises SwarmError: InvalidArguments with every problem, and what the tool raises."""
    if problem := BY_NAME[name].arguments.problem(arguments):
        raise InvalidArguments(problem, suggestion=f"see the input schema of {name}")
    try:
        with workbench.in_use():
            return await WORK[name](workbench, arguments)
    except SwarmError as error:
        suggestion = next((ours for theirs, ours in INSTEAD.items() if error.suggestion.startswith(theirs)), None)
        error.suggestion = suggestion or error.suggestion
        raise


async def start_run(workbench: Workbench, given: Given) -> Answer:
    loaded = await workbench.loaded()
    settings = service.with_name(workbench.settings_for(given, loaded), given.get("name", ""))
    directory = workbench.directory(given.get("workspace", "."), loaded)
    run, notes = await workbench.begin(given, settings, directory, loaded, origin=workbench.origin(given))
    return await _changed(workbench, run, "is started", notes)


async def resume_run(workbench: Workbench, given: Given) -> Answer:
    app = await workbench.reading()
    named = await run_id_of(app.engine, given["run"])
    run = await workbench.resume(named)
    notes = [] if run == named else [f"{named} is over; {run} repeats its tasks that did not succeed"]
    return await _changed(workbench, run, "continues", notes)


async def pause_run(workbench: Workbench, given: Given) -> Answer:
    return await _changed(
        workbench, (await service.stop(await workbench.reading(), given["run"], "pause")).run.id, "is paused"
    )


async def cancel_run(workbench: Workbench, given: Given) -> Answer:
    return await _changed(
        workbench, (await service.stop(await workbench.reading(), given["run"], "cancel")).run.id, "is cancelled"
    )


async def _changed(workbench: Workbench, run: str, what: str, notes: Sequence[str] = ()) -> Answer:
    app = await workbench.reading()
    carriers = await carriers_of(workbench, app)
    status = carriers.status(await app.engine.status(run))
    facts: Facts = {
        "run": run,
        "status": status,
        "notes": list(notes),
        "next": next_of(status, run, (), bool(carriers.alive)),
    }
    return make_answer((f"{run} {what}: {status}", *notes), facts)


async def run_status(workbench: Workbench, given: Given) -> Answer:
    app = await workbench.reading()
    run_id = await run_id_of(app.engine, given["run"])
    facts = await facts_of(app.engine, run_id)
    return status_answer(facts, await app.engine.status(run_id), await carriers_of(workbench, app))


async def list_runs(workbench: Workbench, given: Given) -> Answer:
    app = await workbench.reading()
    found = await listed(app.engine, given.get("limit", 20))
    tasks: Sequence[Execution] = []
    if any(not run.status.over for run in found):
        tasks = await unfinished_tasks(app.engine)
    return runs_answer(found, tasks, await carriers_of(workbench, app))


async def run_events(workbench: Workbench, given: Given) -> Answer:
    app = await workbench.reading()
    run_id = await run_id_of(app.engine, given["run"])
    position = Position(run_id, given.get("cursor", ""))
    carriers = await carriers_of(workbench, app)
    before = await app.engine.status(run_id)
    feed = EventStream(app.engine, run_id, position.counts)
    found, last = await feed.past(), before.status.over
    wait = float(given.get("wait_seconds", 0))
    whole = given.get("until", "event") == "over"
    waits = whole or not found
    if waits and not last and wait and carriers.status(before) not in (RunStatus.PAUSED, INTERRUPTED):
        come, last = await _next_events(feed, wait, whole=whole)
        found = [*found, *come]
    events: list[Facts] = []
    size = 0
    for one in found[: given.get("limit", 50)]:
        shown = event_of(one)
        size += len(json.dumps(shown))
        if events and size > EVENT_CHARS:
            break
        position.advance(one)
        events.append(shown)
    summary, run = await facts_of(app.engine, run_id), await app.engine.status(run_id)
    approvals = approvals_in(summary["approvals"])
    status = carriers.status(run, summary["status"] == RunStatus.WAITING_APPROVAL)
    more = len(events) < len(found)
    # What was recorded after reading the events belongs to the next answer, even the end.
    over = last and not more
    again = f"there is more: call again with cursor {position}"
    facts: Facts = {
        "run": run_id,
        "status": status,
        "over": over,
        "events": events,
        "cursor": str(position),
        "more": more,
        "approvals": approvals,
        "next": again if run.status.over and not over else next_of(status, run_id, approvals, bool(carriers.alive)),
    }
    lines = [one["sentence"] for one in events] or ["nothing new"]
    return make_answer((f"{run_id}: {status}; cursor {position}", *lines, *lines_of_approvals(approvals)), facts)


async def _next_events(feed: EventStream, seconds: float, *, whole: bool) -> tuple[list[RunEvent], bool]:
    """Return the next events, none after that time; of the ``whole`` run, all until it is over or a person is asked.
    Also return whether there will be no more."""
    found: list[RunEvent] = []
    asked = False
    async with feed.follow() as queue:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while one := await queue.get():
                    found.append(one)
                    asked = asked or one.event == "approval.asked"
                    if queue.empty() and (asked or not whole):
                        return found, False
                return found, True
    return found, False


def event_of(one: RunEvent) -> Facts:
    """Return an event as clients get it: its facts, and a sentence about it."""
    return {**shortened(one.to_json()), "sentence": format_event(one)}


async def list_approvals(workbench: Workbench, given: Given) -> Answer:
    app = await workbench.reading()
    run = await run_id_of(app.engine, given["run"]) if "run" in given else ""
    asked = [one for one in await app.swarm.approvals() if one["task_id"].startswith(f"{run}." if run else "")]
    approvals = approvals_in(asked)
    then = "show the person the question and the command that answers it; you cannot answer" if approvals else ""
    lines = [f"{line} -- {one['answer']}" for line, one in zip(lines_of_approvals(approvals), approvals, strict=True)]
    return make_answer(lines or ["Nothing waits for a person."], {"approvals": approvals, "next": then})


async def list_agents(workbench: Workbench, given: Given) -> Answer:
    del given
    loaded = await workbench.loaded()
    settings = loaded.settings
    shown = {"name", "type", "capabilities", "brain", "grants", "approval", "workspace"}
    agents = [one.model_dump(mode="json", include=shown) for one in settings.agents]
    lines = [
        f"{one['name']}: {one['type']}, brain {one['brain']}, may use {', '.join(one['grants']) or 'nothing'}, "
        f"a person is asked: {one['approval']}, workspace {one['workspace']}"
        + (f", capable of {', '.join(one['capabilities'])}" if one["capabilities"] else "")
        for one in agents
    ]
    words = any(one.takes_words for one in settings.agents)
    then = "start_run with a task in words, or a plan" if words else "start_run with a plan: no agent here takes words"
    facts: Facts = {
        "agents": agents,
        "servers": [server.name for server in settings.mcp.servers],
        "tasks": [task.id for task in settings.tasks],
        "workspace": str(workbench.root(loaded)),
        "topology": settings.swarm.topology,
        "next": then if agents else "the person writes a configuration: ccswarm init",
    }
    rest = [f"{name}: {', '.join(facts[name]) or 'none'}" for name in ("servers", "tasks")]
    rest += [f"{name}: {facts[name]}" for name in ("workspace", "topology")]
    return make_answer((*lines, *rest) if lines else ("There are no agents.", *rest), facts)


async def check_plan(workbench: Workbench, given: Given) -> Answer:
    loaded = await workbench.loaded()
    problems: list[str] = []
    described: Facts = {"stages": [], "tasks": []}
    try:
        settings = workbench.settings_for(given, loaded)
        problems = plan_problems(settings, None)
        with suppress(PlanInvalid):  # unsatisfiable needs, which are among the problems
            described = describe(settings)
        if not problems and not given.get("offline", False):
            problems = plan_problems(settings, await called_tools(settings, workbench.directory(".", loaded)))
            problems += await asyncio.to_thread(brain_problems, settings)
    except (ConfigInvalid, PlanInvalid) as error:
        problems = [*problems, *re.sub(r"^(the plan|/\S+\.toml): ", "", error.message).split("; ")]
    except ServerUnavailable as error:
        problems = [*problems, error.message]
    placed = [_placed(problem) for problem in problems]
    tasks: list[Facts] = [
        {
            "task": task["id"],
            "text": str(task.get("text", "")),
            "agents": task["agents"],
            "needs": list(task.get("needs", ())),
            "steps": [f"{step['id']}: {step['tool']}" for step in task["steps"]],
        }
        for task in described["tasks"]
    ]
    then = "fix the problems listed above" if problems else "start_run with the same arguments"
    facts: Facts = {
        "valid": not problems,
        "problems": placed,
        "stages": described["stages"],
        "tasks": tasks,
        "next": then,
    }
    lines = problems or ["The plan can be carried out."]
    order = [f"{one['task']}: {', '.join(one['agents'])}; {'; '.join(one['steps'])}" for one in tasks]
    return make_answer((*lines, *([] if problems else order)), facts)


def _placed(problem: str) -> Facts:
    location, rest = split_location(problem)
    return {"location": location, "problem": rest}


async def read_result(workbench: Workbench, given: Given) -> Answer:
    app = await workbench.reading()
    run_id = await run_id_of(app.engine, given["run"])
    facts, task = await facts_of(app.engine, run_id), given.get("task", "")
    if task and task not in facts["tasks"]:
        names = ", ".join(facts["tasks"])
        raise InvalidArguments(f"the run has no task {task[:80]!r}", suggestion=f"use one of: {names}")
    status = facts["tasks"][task]["status"] if task else facts["status"]
    return page_answer(run_id, task, status, result_of(facts, task), given.get("offset", 0))


async def carriers_of(workbench: Workbench, app: App) -> Carriers:
    """Return the live workers."""
    return Carriers(frozenset(await workbench.workers(app)), workbench.worker)


WORK: dict[str, Callable[[Workbench, Given], Awaitable[Answer]]] = {
    work.__name__: work
    for work in (
        cancel_run,
        check_plan,
        list_agents,
        list_approvals,
        list_runs,
        pause_run,
        read_result,
        resume_run,
        run_events,
        run_status,
        start_run,
    )
}
