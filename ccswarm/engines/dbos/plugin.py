"""Runs kept and executed by dbos, and read without it where they lie in a file: what reads loads nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ccswarm.config.settings import EngineSettings
    from ccswarm.engines.base import Engine, Store

FILE = "engine.db"


class Plugin:
    """Makes engines."""

    name = "dbos"

    def open(self, settings: EngineSettings, state_directory: Path) -> Engine:
        """An engine whose SQLite file, where it needs one, is ``engine.db`` in ``state_directory``; it is not opened
        yet."""
        from ccswarm.engines.dbos.engine import DbosEngine

        return DbosEngine(settings, state_directory)

    def store(self, database_url: str, state_directory: Path) -> Store | None:
        """What is kept, to be read without an engine, and without waiting for anything; None where only an engine
        can read it."""
        if database_url:
            return None
        from ccswarm.engines.dbos.reading import FileStore

        return FileStore(state_directory / FILE)


PLUGIN = Plugin()
