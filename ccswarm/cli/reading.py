"""The store of the runs, looked at without the engine that executes them: at once, and also where a disk is full."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agentwire import plugins
from ccswarm.cli.parameters import looking, tell_last
from ccswarm.config import files
from ccswarm.config.programs import tables_in, workspace_in
from ccswarm.config.project import Project
from ccswarm.config.trust import Change, ConfigTrust, Content, as_used_last, chosen, is_discovered
from ccswarm.errors import EngineUnavailable
from ccswarm.journal.files import directory_of

if TYPE_CHECKING:
    from ccswarm.engines.base import Store

T = TypeVar("T")
DEFAULT_ENGINE = "dbos"


@dataclass(frozen=True, slots=True)
class Sight:
    """What can be seen. ``project`` is that of the place where somebody asks."""

    store: Store
    state_directory: Path
    project: Project
    in_files: bool = False
    """Whether all that is kept lies in files of the state directory."""

    @property
    def journal(self) -> Path:
        """Where the records of calls lie."""
        return directory_of(self.state_directory)


Look = Callable[[Sight], Awaitable[T]]


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
    store = _store(tables, state) if not content or tables or not (content.data or b" ").strip() else None
    if store:
        own = bool(content and (config or is_discovered(content, config)))
        project = Project.at(content.path if content else None, workspace_in(tables), own=own)
        try:
            seen = _at_once(look(Sight(store, state, project, in_files=True)))
        except EngineUnavailable:
            pass  # the engine may know what to do about it, and says so where it does not
        else:
            for change in changes:
                tell_last(change)
            return seen
    return _with_engine(config, look)


def _store(tables: dict[str, Any], state: Path) -> Store | None:
    engine: object = tables.get("engine", {})
    if not isinstance(engine, dict):
        return None
    facts: dict[str, Any] = engine  # pyright: ignore[reportUnknownVariableType]
    name, url = facts.get("name", DEFAULT_ENGINE), facts.get("database_url", "")
    if not (isinstance(name, str) and isinstance(url, str)):
        return None
    plugin = plugins.load("ccswarm.engines", name)
    return plugin.store(url, state) if hasattr(plugin, "store") else None


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
            return await look(Sight(app.engine, app.state_directory, app.project))

    return asyncio.run(opened())
