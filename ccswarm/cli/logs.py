"""The verb logs: all events of a run, in order."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from agentwire.cli.options import Option
from ccswarm.cli.output import Json, show_json_line, show_line
from ccswarm.cli.parameters import Config, LastRun
from ccswarm.cli.reading import read_store
from ccswarm.journal.files import directory_of
from ccswarm.runs.events import (
    CALLS,
    Calls,
    RunEvent,
    event_from_record,
    events_with_calls,
    format_event,
    merged_by_time,
)
from ccswarm.runs.status import LAST, require_task, run_id_of
from ccswarm.runs.store import StoreView

if TYPE_CHECKING:
    from pathlib import Path

    from ccswarm.runs.feed import EventStream

POLL_SECONDS = 0.5
"""The interval of reads of the journal."""


def logs(
    run: LastRun = LAST,
    follow: Annotated[
        bool, Option("--follow", "-f", help="Print events as they happen, until the run is over.")
    ] = False,
    task: Annotated[str, Option("--task", "-t", help="Only events of this task and its parts.")] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show the events of a run and its calls, one a line with the time; with --json one document a line.

    Calls are those in the journal of this machine.
    """
    if follow:
        _follow_run(run, config, task, as_json)
    else:
        _show(read_store(config, lambda view: _past(run, task, view)), task, as_json)


async def _past(text: str, task: str, view: StoreView) -> list[RunEvent]:
    run_id = await run_id_of(view.store, text, view.project)
    await require_task(view.store, run_id, task)
    return await events_with_calls(view.store, run_id, view.journal)


def _follow_run(text: str, config: Path | None, task: str, as_json: bool) -> None:
    import asyncio

    from ccswarm.cli.parameters import open_app
    from ccswarm.runs.feed import EventStream

    async def follow_run() -> None:
        async with open_app(config) as opened:
            run_id = await run_id_of(opened.engine, text, opened.project)
            await require_task(opened.engine, run_id, task)
            feed = EventStream(opened.engine, run_id)
            calls = Calls(directory_of(opened.state_directory), run_id)
            _show(await merged_by_time(opened.engine, await feed.past(), calls), task, as_json)
            await _follow(feed, calls, task, as_json)

    asyncio.run(follow_run())


async def _follow(feed: EventStream, calls: Calls, task: str, as_json: bool) -> None:
    import asyncio

    async with feed.follow() as queue:
        coming = asyncio.create_task(queue.get())
        try:
            over = False
            while not over:
                await asyncio.wait({coming}, timeout=POLL_SECONDS)
                found = [event_from_record(feed.run, record) for record in calls.new() if record.event in CALLS]
                while coming.done() and not over:
                    run_event = coming.result()
                    over = run_event is None
                    found += [run_event] if run_event else []
                    coming = asyncio.create_task(queue.get())
                    await asyncio.sleep(0)
                _show(sorted(found, key=lambda one: one.at), task, as_json)
        finally:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


def _show(run_events: Sequence[RunEvent], task: str, as_json: bool) -> None:
    for one in run_events:
        if task and not f"{one.task}.".startswith(f"{task}."):
            continue
        if as_json:
            show_json_line(one.to_json())
        else:
            show_line(f"{clock(one.at)} {format_event(one)}")


def clock(at: float) -> str:
    """Return the time of day; a dash if the time is unknown."""
    return f"{time.strftime('%H:%M:%S', time.localtime(at))}.{int(at % 1 * 1000):03}" if at else "-"
