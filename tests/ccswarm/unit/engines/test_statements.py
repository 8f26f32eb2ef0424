"""Statements for SQLite are compiled once in a process, whatever store they are for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import CacheStats

from ccswarm.config.settings import EngineSettings
from ccswarm.engines.dbos.store import Store


def test_a_second_store_compiles_nothing_again(tmp_path: Path) -> None:
    found: list[CacheStats] = []

    def note(*given: Any) -> None:
        if given[4].compiled:
            found.append(given[4].cache_hit)

    for name in ("first", "second"):
        store = Store(EngineSettings(), tmp_path / name)
        store.create()
        found.clear()
        sa.event.listen(store.engine, "before_cursor_execute", note)
        assert store.states(["e1", "e2"]) == {}
        store.mark(["e1"], "e1", "paused")
        assert store.paused() == ["e1"]
        store.bare.dispose()
    assert found
    assert set(found) == {CacheStats.CACHE_HIT}
