"""Runs as resources: ``run://list``, and result, events and journal of each run; and notifications of their changes."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ccswarm.errors import InvalidArguments, RunNotFound, SwarmError
from ccswarm.runs.app import App
from ccswarm.runs.events import recorded_calls
from ccswarm.runs.feed import EventStream
from ccswarm.runs.status import facts_of, run_id_of
from ccswarm.runs.status import runs as listed
from ccswarm.servers.mcp.toolsets.swarm.answers import result_of
from ccswarm.servers.mcp.toolsets.swarm.calls import event_of, list_runs
from ccswarm.servers.mcp.workbench import Workbench

ADDRESS = re.compile(r"run://([A-Za-z0-9_-]{1,200})/(result|events|journal)\Z")
LIST = "run://list"
PARTS = {
    "result": ("Result of a run: its tasks with their results", "application/json"),
    "events": ("Events of a run, one JSON document per line", "application/x-ndjson"),
    "journal": ("The calls of a run as recorded by this machine's workers, one per line", "application/x-ndjson"),
}
RUNS_ON_A_PAGE = 20
MOST_LISTED = 1000
MOST_CHARS = 1_000_000
"""The maximal size of a resource; the last line of a larger one reports what was left out."""

Tell = Callable[[str], Awaitable[None]]
"""Reports that the resource with that address has changed."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A readable resource."""

    uri: str
    name: str
    description: str
    mime: str


async def page(workbench: Workbench, cursor: str) -> tuple[list[Resource], str]:
    """Return a page of resources, and the cursor of the next one, empty after the last. Raises InvalidArguments."""
    with workbench.in_use():
        found = await listed((await workbench.reading()).engine, MOST_LISTED)
    ids = [run.id for run in found]
    if cursor and cursor not in ids:
        raise InvalidArguments("no such cursor", suggestion="leave the cursor out to begin at the start")
    start = ids.index(cursor) + 1 if cursor else 0
    shown = ids[start : start + RUNS_ON_A_PAGE]
    resources = [] if cursor else [Resource(LIST, "runs", "The runs, newest first", "application/json")]
    resources += [
        Resource(f"run://{run}/{part}", f"{run[:12]} {part}", *about) for run in shown for part, about in PARTS.items()
    ]
    return resources, shown[-1] if shown and start + RUNS_ON_A_PAGE < len(ids) else ""


async def read(workbench: Workbench, uri: str) -> tuple[str, str]:
    """Return the resource's text and type. Raises RunNotFound, also for an address that is not a resource's."""
    with workbench.in_use():
        return await _read(workbench, uri)


async def _read(workbench: Workbench, uri: str) -> tuple[str, str]:
    if uri == LIST:
        return json.dumps(
            (await list_runs(workbench, {"limit": 100})).facts["runs"], ensure_ascii=False
        ), "application/json"
    found = ADDRESS.match(uri)
    if not found:
        raise RunNotFound(
            f"{uri[:200]!r} is not a resource", suggestion="run://list, run://RUN/result, events or journal"
        )
    app = await workbench.reading()
    run_id, part = await run_id_of(app.engine, found[1]), found[2]
    if part == "result":
        text = result_of(await facts_of(app.engine, run_id))
        return text if len(text) <= MOST_CHARS else json.dumps({"run": run_id, "use": "read_result"}), PARTS[part][1]
    if part == "events":
        events = await EventStream(app.engine, run_id).past()
        return _lines(event_of(one) for one in events), PARTS[part][1]
    return await asyncio.to_thread(_journal, app, run_id), PARTS[part][1]


def _journal(app: App, run_id: str) -> str:
    return _lines(recorded_calls(app.state_directory, run_id))


def _lines(documents: Iterable[dict[str, Any]]) -> str:
    lines: list[str] = []
    size = 0
    for document in documents:
        line = json.dumps(document, ensure_ascii=False)
        size += len(line) + 1
        if size > MOST_CHARS:
            lines.append(json.dumps({"event": "truncated", "after": len(lines)}))
            break
        lines.append(line)
    return "".join(f"{line}\n" for line in lines)


class Watchers:
    """The runs with subscribers, which are followed; each change is reported once."""

    def __init__(self, workbench: Workbench, tell: Tell) -> None:
        self._workbench = workbench
        self._tell = tell
        self._wanted: Counter[str] = Counter()
        self._following: dict[str, asyncio.Task[None]] = {}

    @property
    def wanted(self) -> set[str]:
        """The addresses with subscribers."""
        return {uri for uri, count in self._wanted.items() if count > 0}

    @contextmanager
    def watch(self, uris: Iterable[str]) -> Generator[None]:
        """Watch ``uris`` while the block runs."""
        uris = list(uris)
        for uri in uris:
            self.add(uri)
        try:
            yield
        finally:
            for uri in uris:
                self.remove(uri)

    def add(self, uri: str) -> None:
        """Add a subscriber."""
        self._wanted[uri] += 1
        found = ADDRESS.match(uri)
        if found and found[1] not in self._following:
            self._following[found[1]] = asyncio.create_task(self._follow(found[1]))

    def remove(self, uri: str) -> None:
        """Remove a subscriber."""
        self._wanted[uri] = max(0, self._wanted[uri] - 1)
        found = ADDRESS.match(uri)
        if found and not any(one.startswith(f"run://{found[1]}/") for one in self.wanted):
            task = self._following.pop(found[1], None)
            if task:
                task.cancel()

    def close(self) -> None:
        """Stop all notifications."""
        for task in self._following.values():
            task.cancel()

    async def _follow(self, name: str) -> None:
        with suppress(SwarmError), self._workbench.in_use():  # an unknown run never changes
            app = await self._workbench.reading()
            feed = EventStream(app.engine, await run_id_of(app.engine, name))
            await feed.past()
            async with feed.follow() as queue:
                one = await queue.get()
                while one:
                    while one and not queue.empty():
                        one = queue.get_nowait()
                    await self._report(name)
                    one = one and await queue.get()
            await self._report(name)

    async def _report(self, name: str) -> None:
        for uri in sorted(self.wanted):
            if uri.startswith(f"run://{name}/") or uri == LIST:
                await self._tell(uri)
