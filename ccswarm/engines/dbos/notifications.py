"""Hears of what changes in the queues of a PostgreSQL database, which announces it (``Store.make``)."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from agentwire.system.readable import readable

CHANNEL = "ccswarm_work"
AGAIN_SECONDS = 2.0
"""Before a server that cannot be reached is tried again; meanwhile there may have been anything."""

TRIGGER = "ccswarm_queued"


def announce(c: sa.Connection, table: str) -> None:
    """Whatever changes the state of an execution is announced from now on, by whichever program."""
    known = c.execute(sa.text("SELECT 1 FROM pg_trigger WHERE tgname = :name"), {"name": TRIGGER}).first()
    if known:
        return
    c.execute(
        sa.text(
            f"CREATE OR REPLACE FUNCTION {TRIGGER}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN PERFORM pg_notify('{CHANNEL}', ''); RETURN NULL; END $$"
        )
    )
    c.execute(
        sa.text(
            f"CREATE TRIGGER {TRIGGER} AFTER INSERT OR UPDATE OF status ON {table} "
            f"FOR EACH STATEMENT EXECUTE FUNCTION {TRIGGER}()"
        )
    )


class Notifications:
    """``Changes`` by LISTEN and NOTIFY of PostgreSQL."""

    def __init__(self, engine: sa.Engine, queued: sa.Select[Any]) -> None:
        self._engine = engine
        self._queued = queued
        self._woken, self._waking = os.pipe()
        self._held: Any = None

    def heard(self, seconds: float) -> bool:
        try:
            if self._held is None:
                self._held = _listening(self._engine)
                return True
            link = self._held.dbapi_connection
            if link.fileno() not in readable((link.fileno(), self._woken), seconds):
                return False
            return bool(list(link.notifies(timeout=0)))
        except (SQLAlchemyError, OSError, self._engine.dialect.loaded_dbapi.Error):
            self._let_go()
            readable([self._woken], min(seconds, AGAIN_SECONDS))
            return True

    def queued(self) -> bool:
        try:
            with self._engine.connect() as c:
                return c.execute(self._queued).first() is not None
        except SQLAlchemyError:
            return True

    def wake(self) -> None:
        os.write(self._waking, b".")

    def close(self) -> None:
        self._let_go()
        os.close(self._woken)
        os.close(self._waking)

    def _let_go(self) -> None:
        held = self._held
        self._held = None
        if held is not None:
            with suppress(Exception):  # it is broken already
                held.close()


def _listening(engine: sa.Engine) -> Any:
    """A connection of its own, on which announcements come."""
    held: Any = engine.raw_connection()
    held.detach()
    held.dbapi_connection.autocommit = True
    held.dbapi_connection.execute(f"LISTEN {CHANNEL}")
    return held
