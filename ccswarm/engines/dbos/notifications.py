"""Detects changes in the queues of a PostgreSQL database, which sends notifications (``Store.create``)."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from agentwire.system.readable import readable

CHANNEL = "ccswarm_work"
AGAIN_SECONDS = 2.0
"""The pause before another connection attempt, after which anything may have changed."""

TRIGGER = "ccswarm_queued"


def announce(c: sa.Connection, table: str) -> None:
    """Create a trigger that announces every change of an execution's state, by whatever program."""
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
    """Implements ``Changes`` by LISTEN and NOTIFY of PostgreSQL."""

    def __init__(self, engine: sa.Engine, queued: sa.Select[Any]) -> None:
        self._engine = engine
        self._queued = queued
        self._woken, self._waking = os.pipe()
        self._connection: Any = None

    def wait_for_change(self, seconds: float) -> bool:
        try:
            if self._connection is None:
                self._connection = _connect(self._engine)
                return True
            link = self._connection.dbapi_connection
            if link.fileno() not in readable((link.fileno(), self._woken), seconds):
                return False
            return bool(list(link.notifies(timeout=0)))
        except (SQLAlchemyError, OSError, self._engine.dialect.loaded_dbapi.Error):
            self._disconnect()
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
        self._disconnect()
        os.close(self._woken)
        os.close(self._waking)

    def _disconnect(self) -> None:
        connection = self._connection
        self._connection = None
        if connection is not None:
            with suppress(Exception):  # it may be broken
                connection.close()


def _connect(engine: sa.Engine) -> Any:
    connection: Any = engine.raw_connection()
    connection.detach()
    connection.dbapi_connection.autocommit = True
    connection.dbapi_connection.execute(f"LISTEN {CHANNEL}")
    return connection
