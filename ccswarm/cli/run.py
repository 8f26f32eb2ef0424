"""The verbs run and resume: a plan is carried out here, or by workers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from agentwire.cli.output import EXIT_INTERRUPTED, leave, remark, say, to_person
from agentwire.system.user import user_name
from ccswarm.cli.output import Json, show_json_line, show_line
from ccswarm.cli.parameters import Config, LastRun, load, open_app, peek, project_of, with_agents
from ccswarm.cli.trust import agree, asker
from ccswarm.errors import ConfigChanged
from ccswarm.plan.origin import Origin
from ccswarm.runs.status import LAST, run_id_of, short

if TYPE_CHECKING:
    from ccswarm.config.project import Project
    from ccswarm.config.settings import Settings
    from ccswarm.models import Execution
    from ccswarm.runs.app import App

NoWait = Annotated[bool, typer.Option("--no-wait", help="Exit with code 3 when only people's answers are missing.")]
Detach = Annotated[bool, typer.Option("--detach", "-d", help="Only queue the run: ccswarm worker carries it out.")]

Start = Callable[["App"], Awaitable[tuple[str, Awaitable["Execution"]]]]
"""Prepares a run. Returns the id of the run to resume, empty for a new one, and an awaitable that starts it."""


def run(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|TEXT]", help="A plan file, or a task in words; default: the tasks of the configuration."
        ),
    ] = None,
    config: Config = None,
    workspace: Annotated[
        Path | None, typer.Option("--workspace", "-w", help="Directory to work in, instead of the configured one.")
    ] = None,
    name: Annotated[str, typer.Option("--name", "-n", help="Name of the run, instead of swarm.name.")] = "",
    detach: Detach = False,
    no_wait: NoWait = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check the plan, and show what would be done.")] = False,
    as_json: Json = False,
) -> None:
    """Carry out the tasks of the configuration, or a plan.

    On a terminal agents and tasks are shown as they work, and y or n answers their questions. In a pipe each event is a
    line; with --json it is a JSON document, and the last one is the result. Ctrl-C pauses the run, and ccswarm resume
    continues it; a second Ctrl-C ends at once, and a process in the background pauses the run.

    Exit codes: 0 done, 1 failed, 2 the plan is wrong, 3 blocked or waiting for approval, 4 a budget is used up, 5 the
    configuration or the plan changed since a person used it and nobody agreed, 130 Ctrl-C.
    """
    from ccswarm.plan.check import plan_problems
    from ccswarm.runs import planning, service

    loaded = peek(config) if dry_run else load(config, executes=True, workspace=workspace)
    loaded = with_agents(loaded) if what and what.strip() and not Path(what).exists() else loaded
    planned = planning.load_tasks(what, loaded, confirm=asker(), workspace=workspace, only_look=dry_run)
    settings = service.with_name(planned.settings, name)
    directory = planning.directory(workspace, settings, loaded)
    service.refuse(plan_problems(settings, None))
    if dry_run:
        _show_plan(settings, as_json)
        return
    sources = planning.sources(loaded, planned)
    if detach:
        asyncio.run(_queue(settings, directory, sources, as_json))
    else:
        _execute(
            settings,
            project_of(loaded, config),
            config,
            lambda opened: _submit(opened, settings, directory, sources),
            no_wait,
            as_json,
        )


def resume(
    run: LastRun = LAST, config: Config = None, detach: Detach = False, no_wait: NoWait = False, as_json: Json = False
) -> None:
    """Continue a run where it stopped: one that was paused, cancelled or interrupted, waits for approval, or is queued.
    Finished steps are not repeated. A call whose outcome is unknown is, if that has no further effect; else it fails as
    lost.

    If the run failed, or used up a budget, a new run repeats the tasks that did not succeed, from their first step,
    with the plan's files as they are now.

    Exit codes: as of ccswarm run.
    """
    loaded = with_agents(load(config, executes=True))
    while True:
        try:
            if detach:
                asyncio.run(_resume_detached(run, config, as_json))
                return
            begin = partial(_resume, text=run)
            _execute(loaded.settings, project_of(loaded, config), config, begin, no_wait, as_json)
        except ConfigChanged as changed:  # a file of its plan: nothing has started yet
            agree(changed)


def _execute(
    settings: Settings, project: Project, config: Path | None, start: Start, no_wait: bool, as_json: bool
) -> NoReturn:
    """Start a run, execute it here, and exit with its code."""
    # Imported before there is an event loop that this could block.
    from ccswarm.cli.stop import pause_afterwards
    from ccswarm.cli.watch import Interrupts, Watch
    from ccswarm.config import config as files
    from ccswarm.runs import app
    from ccswarm.runs.feed import EventStream

    async def watched(interrupts: Interrupts) -> int:
        async with app.working(settings, files.state_directory(), files.server_environment()) as working:
            opened = replace(working, project=project)
            with _starting(as_json):
                resumed_id, begin = await start(opened)
            feed = EventStream(opened.engine, resumed_id)
            before = await feed.past() if resumed_id else []
            interrupts.attend()  # what is queued from here on is paused by Ctrl-C, not just left
            started = await begin
            interrupts.leave = partial(pause_afterwards, started.id, config)
            if started.id != resumed_id:
                feed, before = EventStream(opened.engine, started.id), []
            if not as_json and not to_person():
                show_line(started.id)
            plan: dict[str, Any] = started.payload["plan"]
            watch = Watch(opened, feed, plan, before, no_wait=no_wait, as_json=as_json)
            return await watch.until_left(interrupts)

    async def interruptible() -> int:
        interrupts = Interrupts()
        with interrupts.caught():
            try:
                return await watched(interrupts)
            except asyncio.CancelledError:
                return EXIT_INTERRUPTED

    leave(asyncio.run(interruptible()))


def _starting(as_json: bool) -> AbstractContextManager[object]:
    """Show on a terminal that servers are being started."""
    if as_json or not to_person():
        return nullcontext()
    from ccswarm.cli.live_view import starting

    return starting()


async def _submit(
    opened: App, settings: Settings, directory: str, sources: list[str]
) -> tuple[str, Awaitable[Execution]]:
    from ccswarm.runs import service
    from ccswarm.runs.app import new_run_id
    from ccswarm.runs.terminals import end_old_terminals

    for warning in await service.check(opened, settings, directory):
        remark(f"warning: {warning}")
    if left := await end_old_terminals(opened, settings, directory):
        remark(f"{left} {'terminal is' if left == 1 else 'terminals are'} of finished runs closed")
    return "", opened.swarm.submit(settings, new_run_id(), directory, sources, origin=Origin.PERSON, by=user_name())


async def _resume(opened: App, text: str) -> tuple[str, Awaitable[Execution]]:
    from ccswarm.runs import service

    run_id = await run_id_of(opened.engine, text, opened.project)
    begin = await service.resume(opened, run_id)

    async def resume_run() -> Execution:
        started = await begin
        if started.id != run_id:
            remark(f"{short(run_id)} is over; {short(started.id)} repeats its tasks that did not succeed")
        return started

    return run_id, resume_run()


async def _queue(settings: Settings, directory: str, sources: list[str], as_json: bool) -> None:
    await asyncio.to_thread(import_module, "ccswarm.runs.app")
    from ccswarm.config import config as files
    from ccswarm.runs import app

    async with app.submitting(settings, files.state_directory()) as opened:
        started = await opened.swarm.submit(
            settings, app.new_run_id(), directory, sources, origin=Origin.PERSON, by=user_name()
        )
        _report_queued(started.id, as_json)


async def _resume_detached(text: str, config: Path | None, as_json: bool) -> None:
    async with open_app(config) as opened:
        _, begin = await _resume(opened, text)
        found = await begin
        _report_queued(found.id, as_json)


def _report_queued(run_id: str, as_json: bool) -> None:
    if as_json:
        show_json_line({"run": run_id, "status": "queued"})
        return
    show_line(run_id)
    say(f"It is queued: ccswarm worker carries it out, ccswarm logs -f {short(run_id)} shows it.")


def _show_plan(settings: Settings, as_json: bool) -> None:
    from agentwire.cli.output import show_json, show_rows
    from ccswarm.plan.check import describe

    plan = describe(settings)
    if as_json:
        show_json(plan)
        return
    stages = {name: number for number, names in enumerate(plan["stages"], 1) for name in names}
    rows = [
        {"stage": stages[task["id"]], "task": task["id"], **task, "steps": len(task["steps"])} for task in plan["tasks"]
    ]
    show_rows(rows, ("stage", "task", "agents", "needs", "steps", "text"))
