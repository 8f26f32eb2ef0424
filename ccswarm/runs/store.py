"""The store of the runs, looked at without the engine that executes them: at once, and also where a disk is full."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentwire import plugins
from ccswarm.config.project import Project
from ccswarm.journal.files import directory_of

if TYPE_CHECKING:
    from ccswarm.engines.base import Store

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


def open_store(tables: Mapping[str, Any], state_directory: Path) -> Store | None:
    """That of the engine which a configuration of these tables names; None where only the engine can read it."""
    engine: object = tables.get("engine", {})
    if not isinstance(engine, dict):
        return None
    facts: dict[str, Any] = engine  # pyright: ignore[reportUnknownVariableType]
    name, url = facts.get("name", DEFAULT_ENGINE), facts.get("database_url", "")
    if not (isinstance(name, str) and isinstance(url, str)):
        return None
    plugin = plugins.load("ccswarm.engines", name)
    return plugin.store(url, state_directory) if hasattr(plugin, "store") else None
