"""The dbos engine, and a reader of its SQLite file that does not import dbos."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ccswarm.config.settings import EngineSettings
    from ccswarm.engines.base import Engine, Store

FILE = "engine.db"


class Plugin:
    """The maker of engines."""

    name = "dbos"

    def open(self, settings: EngineSettings, state_directory: Path) -> Engine:
        """Return an engine, not yet opened. If it needs a SQLite file, that is ``engine.db`` in ``state_directory``.
        Blocks: importing dbos takes a third of a second."""
        from ccswarm.engines.dbos.engine import DbosEngine

        return DbosEngine(settings, state_directory)

    def store(self, database_url: str, state_directory: Path) -> Store | None:
        """Return a store that reads without an engine and without waiting, or None if only an engine can read it."""
        if database_url:
            return None
        from ccswarm.engines.dbos.reading import FileStore

        return FileStore(state_directory / FILE)


PLUGIN = Plugin()
