"""The verb logs, and what it shares with runs replay: everything that happened in a run, in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccswarm.cli_app import Config, RunName, looking
from ccswarm.cli_output import Json, show_json_line, show_line
from ccswarm.errors import UsageInvalid
from ccswarm.runs_events import CALLS, Calls, Feed, Happening, of_record, timed, told
from ccswarm.runs_facts import MOST_TASKS, run_id_of

if TYPE_CHECKING:
    from ccswarm.app import App

LOOK_SECONDS = 0.5
"""Between looks into the journal."""


def logs(
    run: RunName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run is over.")] = False,
    task: Annotated[str, typer.Option("--task", "-t", help="Only what happened in this task and its parts.")] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show what happened in a run: its events and its calls, one a line with the time; with --json one document a
    line.

    Calls are those in the journal of this machine.
    """
    asyncio.run(_logs(run, config, task, follow=follow, as_json=as_json))


async def _logs(text: str, config: Path | None, task: str, *, follow: bool, as_json: bool) -> None:
    async with looking(config) as opened:
        run_id = await run_id_of(opened.engine, text)
        await _require_task(opened, run_id, task)
        feed = Feed(opened.engine, run_id)
        calls = Calls(opened.state_directory / "journal", run_id)
        shown = await merged(opened, feed, calls)
        _show(shown, task, as_json)
        if follow:
            await _follow(feed, calls, task, as_json)


async def merged(opened: App, feed: Feed, calls: Calls) -> list[Happening]:
    """All there is so far, by time."""
    past = await feed.past()
    executions = await opened.engine.list(prefix=f"{feed.run}.", limit=MOST_TASKS)
    known = {execution.id: execution for execution in (*executions, await opened.engine.status(feed.run))}
    records = [of_record(feed.run, record) for record in calls.new() if record.event in CALLS]
    return sorted((*timed(past, known), *records), key=lambda happening: happening.at)


async def _follow(feed: Feed, calls: Calls, task: str, as_json: bool) -> None:
    async with feed.coming() as queue:
        coming = asyncio.create_task(queue.get())
        try:
            over = False
            while not over:
                await asyncio.wait({coming}, timeout=LOOK_SECONDS)
                found = [of_record(feed.run, record) for record in calls.new() if record.event in CALLS]
                while coming.done() and not over:
                    happening = coming.result()
                    over = happening is None
                    found += [happening] if happening else []
                    coming = asyncio.create_task(queue.get())
                    await asyncio.sleep(0)
                _show(sorted(found, key=lambda one: one.at), task, as_json)
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


def _show(happenings: Sequence[Happening], task: str, as_json: bool) -> None:
    for one in happenings:
        if task and not f"{one.task}.".startswith(f"{task}."):
            continue
        if as_json:
            show_json_line(one.to_json())
        else:
            show_line(f"{clock(one.at)} {told(one)}")


def clock(at: float) -> str:
    """A time of day; a dash for one that nobody knows."""
    return f"{time.strftime('%H:%M:%S', time.localtime(at))}.{int(at % 1 * 1000):03}" if at else "-"


async def _require_task(opened: App, run_id: str, task: str) -> None:
    if not task:
        return
    payload: dict[str, Any] = (await opened.engine.status(run_id)).payload or {}
    names = [str(one["id"]) for one in payload.get("plan", {}).get("tasks", ())]
    if task.partition(".")[0] not in names:
        raise UsageInvalid(f"the run has no task {task!r}", suggestion=f"there is: {', '.join(names)}")
