"""Verbs that only look at runs read the store without the engine, where they can."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from ccswarm.cli.parameters import looking, tell_last
from ccswarm.config import files
from ccswarm.config.programs import tables_in, workspace_in
from ccswarm.config.project import Project
from ccswarm.config.trust import Change, ConfigTrust, Content, as_used_last, chosen, is_discovered
from ccswarm.errors import EngineUnavailable
from ccswarm.runs.store import StoreView, open_store

T = TypeVar("T")
Look = Callable[[StoreView], Awaitable[T]]


def looked(config: Path | None, look: Look[T]) -> T:
    """What ``look`` makes of the store that the configuration names, as a person used it last. A store in a file is
    only read; any other, and one whose file only an engine can read, is opened. Raises ConfigInvalid,
    EngineUnavailable."""
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
            seen = _at_once(look(StoreView(store, state, project, in_files=True)))
        except EngineUnavailable:
            pass  # the engine may know what to do about it, and says so where it does not
        else:
            for change in changes:
                tell_last(change)
            return seen
    return _with_engine(config, look)


def _at_once(work: Awaitable[T]) -> T:
    """What comes of work that never waits for anything: for that, no loop is needed."""
    steps = work.__await__()
    try:
        next(steps)
    except StopIteration as over:
        return over.value
    raise AssertionError("a store that is only read does not wait")


def _with_engine(config: Path | None, look: Look[T]) -> T:
    import asyncio

    async def opened() -> T:
        async with looking(config) as app:
            assert app.project
            return await look(StoreView(app.engine, app.state_directory, app.project))

    return asyncio.run(opened())
