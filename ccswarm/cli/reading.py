"""Reading runs from the store without the engine, if possible."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from ccswarm.cli.parameters import open_app, report_last_used
from ccswarm.config import files
from ccswarm.config.programs import tables_in, workspace_in
from ccswarm.config.project import Project
from ccswarm.config.trust import Change, ConfigTrust, Content, as_used_last, chosen, is_discovered
from ccswarm.errors import EngineUnavailable
from ccswarm.runs.store import StoreView, open_store

T = TypeVar("T")
Look = Callable[[StoreView], Awaitable[T]]


def read_store(config: Path | None, look: Look[T]) -> T:
    """Return the result of ``look`` on the store of the configuration, as a person used it last. A store in a file is
    only read, if that is possible; others are opened. Raises ConfigInvalid and EngineUnavailable."""
    state = files.state_directory()
    changes: list[Change] = []

    def last(change: Change) -> Content:
        changes.append(change)
        return as_used_last(change)

    content, _ = chosen(ConfigTrust(state), config, None, last)
    tables = tables_in(content.data) if content else {}
    store = open_store(tables, state) if not content or tables or not (content.data or b" ").strip() else None
    if store:
        own = bool(content and (config or is_discovered(content, config)))
        project = Project.at(content.path if content else None, workspace_in(tables), own=own)
        try:
            seen = _run_without_loop(look(StoreView(store, state, project, in_files=True)))
        except EngineUnavailable:
            pass  # the engine may be able to repair it, or else reports it
        else:
            for change in changes:
                report_last_used(change, content.path if content else None)
            return seen
    return _with_engine(config, look)


def _run_without_loop(work: Awaitable[T]) -> T:
    """Return the result of work that never waits, and so needs no event loop."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as over:
        return over.value
    raise AssertionError("a store that is only read does not wait")


def _with_engine(config: Path | None, look: Look[T]) -> T:
    import asyncio

    async def opened() -> T:
        async with open_app(config) as app:
            assert app.project
            return await look(StoreView(app.engine, app.state_directory, app.project))

    return asyncio.run(opened())
