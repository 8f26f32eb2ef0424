"""Reads the SQLite file of dbos without dbos, by the standard library alone. Never writes."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from ccswarm.engines.base import Step
from ccswarm.engines.dbos.rows import ERROR, STATUS, STEP, Row, to_execution, to_step
from ccswarm.errors import EngineUnavailable, RunNotFound
from ccswarm.models import Execution, Json, RunStatus

BUSY_SECONDS = 5.0
ROWS = """
    SELECT f.workflow_uuid AS workflow_id, f.status, f.name, f.executor_id, f.created_at, f.completed_at, f.priority,
        f.queue_partition_key, f.parent_workflow_id, coalesce(o.output, f.output) AS output,
        coalesce(o.error, f.error) AS error, m.why, e.value AS shown, {input} AS input
    FROM workflow_status f LEFT JOIN workflow_output o USING (workflow_uuid)
        LEFT JOIN ccswarm_mark m ON m.execution = f.workflow_uuid
        LEFT JOIN workflow_events e ON e.workflow_uuid = f.workflow_uuid AND e.key = 'shown'
"""
INPUT = "coalesce((SELECT i.inputs FROM workflow_input i WHERE i.workflow_uuid = f.workflow_uuid), f.inputs)"


class FileStore:
    """A ``Store`` on a file, which need not exist. Its coroutines never wait, so they need no event loop."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._open: sqlite3.Connection | None = None

    async def status(self, execution_id: str) -> Execution:
        found = self._executions(f"{ROWS.format(input=INPUT)} WHERE f.workflow_uuid = ?", execution_id)
        if not found:
            raise RunNotFound(f"no execution {execution_id!r}")
        return found[0]

    async def list(
        self, *, kind: str = "", prefix: str = "", top: bool = False, unfinished: bool = False, limit: int = 100
    ) -> Sequence[Execution]:
        where, parameters = ["f.application_name = 'ccswarm'"], list[object]()
        if kind:
            where.append("f.name = ?")
            parameters.append(kind)
        if prefix:
            where.append("f.workflow_uuid >= ? AND f.workflow_uuid < ?")
            parameters += [prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)]
        if top:
            where.append("f.parent_workflow_id IS NULL")
        if unfinished:
            going = ", ".join(f"'{name}'" for name, status in STATUS.items() if not status.over)
            where.append(f"(f.status IN ({going}) OR (f.status = 'CANCELLED' AND m.why = 'paused'))")
        query = f"{ROWS.format(input='NULL')} WHERE {' AND '.join(where)} ORDER BY f.created_at DESC, f.rowid DESC"
        return self._executions(f"{query} LIMIT ?", *parameters, limit)

    async def sent(self, execution_id: str, topic: str, key: str) -> Json | None:
        name = f"{execution_id}/{topic}/{key}::{execution_id}"
        found = self._rows("SELECT message FROM notifications WHERE message_uuid = ?", name)
        return json.loads(found[0]["message"]) if found else None

    async def events(
        self, execution_id: str, *, offset: int = 0, follow: bool = True
    ) -> AsyncGenerator[Mapping[str, Any]]:
        """Yield the existing events. ``follow`` must be false."""
        assert not follow, "only an engine follows what happens"
        await self.status(execution_id)
        query = "SELECT value FROM streams WHERE workflow_uuid = ? AND key = 'events' AND \"offset\" >= ?"
        for row in self._rows(f'{query} ORDER BY "offset"', execution_id, offset):
            if isinstance(event := json.loads(row["value"]), dict):  # anything else marks the end
                yield event

    async def steps(self, execution_id: str) -> Sequence[Step]:
        query = "SELECT function_name, output, started_at_epoch_ms, completed_at_epoch_ms FROM operation_outputs"
        query += " WHERE workflow_uuid = ? AND function_name LIKE ? ORDER BY completed_at_epoch_ms, function_id"
        return [to_step(*row) for row in self._rows(query, execution_id, f"{STEP}%")]

    async def spent(self, scope: str) -> Mapping[str, float]:
        rows = self._rows("SELECT name, amount FROM ccswarm_spent WHERE scope = ?", scope)
        return {row["name"]: row["amount"] for row in rows}

    async def health(self) -> Mapping[str, Any]:
        workers = {row["id"]: max(0.0, time.time() - row["beat"]) for row in self._rows("SELECT * FROM ccswarm_worker")}
        rows = self._rows("SELECT status, count(*) AS many FROM workflow_status GROUP BY status")
        counts = dict.fromkeys(RunStatus, 0)
        for row in rows:
            counts[STATUS[row["status"]]] += row["many"]
        queued, running = counts[RunStatus.QUEUED], counts[RunStatus.RUNNING]
        return {"store": f"sqlite {self._file}", "workers": workers, "queued": queued, "running": running}

    def close(self) -> None:
        """Close the file."""
        if self._open:
            self._open.close()
            self._open = None

    def _executions(self, query: str, *parameters: object) -> list[Execution]:
        return [_execution(row) for row in self._rows(query, *parameters)]

    def _rows(self, query: str, *parameters: object) -> list[sqlite3.Row]:
        if not self._file.exists():
            return []
        with _store_errors():
            if self._open is None:
                self._open = _open_file(self._file)
            return self._open.execute(query, parameters).fetchall()


def _open_file(file: Path) -> sqlite3.Connection:
    """Open the file read-only. If the disk has no space for the index of its log, and the log is empty, the index is
    not needed: no other process has the file open."""
    try:
        return _connect(file, "mode=ro")
    except sqlite3.OperationalError:
        log = file.with_name(f"{file.name}-wal")
        if log.exists() and log.stat().st_size:
            raise
        return _connect(file, "mode=ro&immutable=1")


def _connect(file: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{file.as_uri()}?{how}", uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _execution(row: sqlite3.Row) -> Execution:
    facts: dict[str, Any] = dict(row)
    for name in ("output", "error", "shown", "input"):
        facts[name] = json.loads(facts[name]) if facts[name] else None
    error = cast("dict[str, list[str]] | None", facts["error"])
    words = (error or {}).get(ERROR, [])
    why = facts["why"] or ""
    shown = facts["shown"]
    error_text = ": ".join(map(str, words[:2])) or ("stored data cannot be read" if error else "")
    return to_execution(cast("Row", SimpleNamespace(**facts)), error_text, why, shown)


@contextmanager
def _store_errors() -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise EngineUnavailable(
            f"the store of the runs cannot be read: {error}", suggestion="ccswarm doctor"
        ) from error
