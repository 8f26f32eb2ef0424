"""The store of runs, opened without the engine that executes them: this is immediate, and works on a full disk."""

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
class StoreView:
    """What can be read of runs. ``project`` is the one of the current directory."""

    store: Store
    state_directory: Path
    project: Project
    in_files: bool = False
    """Whether everything is stored in files of the state directory."""

    @property
    def journal(self) -> Path:
        """The directory of the records of calls."""
        return directory_of(self.state_directory)


def open_store(tables: Mapping[str, Any], state_directory: Path) -> Store | None:
    """Open the store of the engine that a configuration with these tables names; None if it has no reader."""
    engine: object = tables.get("engine", {})
    if not isinstance(engine, dict):
        return None
    facts: dict[str, Any] = engine  # pyright: ignore[reportUnknownVariableType]
    name, url = facts.get("name", DEFAULT_ENGINE), facts.get("database_url", "")
    if not (isinstance(name, str) and isinstance(url, str)):
        return None
    plugin = plugins.load("ccswarm.engines", name)
    return plugin.store(url, state_directory) if hasattr(plugin, "store") else None
