"""The database of dbos: its connection, and the tables that dbos does not have."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from dbos import DBOSClient
from dbos._sys_db import SystemDatabase
from sqlalchemy import event, exc
from sqlalchemy.dialects import postgresql, sqlite

from ccswarm.config.settings import EngineSettings
from ccswarm.engines.base import Step
from ccswarm.engines.dbos.bell import Changes
from ccswarm.engines.dbos.file_changes import FileChanges
from ccswarm.engines.dbos.notifications import Notifications, announce
from ccswarm.engines.dbos.rows import STEP, to_step
from ccswarm.engines.dbos.serializer import AsciiJson
from ccswarm.errors import ConfigInvalid
from ccswarm.models import Json

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import CompiledCacheType

NAME, FILE = "ccswarm", "engine.db"
OURS = sa.MetaData()
WORKER = sa.Table(
    "ccswarm_worker",
    OURS,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("pid", sa.Integer, nullable=False),
    sa.Column("beat", sa.Float, nullable=False),
)
MARK = sa.Table(
    "ccswarm_mark",
    OURS,
    sa.Column("execution", sa.Text, primary_key=True),
    sa.Column("root", sa.Text, nullable=False),
    sa.Column("why", sa.Text, nullable=False),
)
"""Which operation stopped an execution, and whether it only paused: dbos only knows CANCELLED."""
SPENT = sa.Table(
    "ccswarm_spent",
    OURS,
    sa.Column("scope", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("amount", sa.Float, nullable=False),
)
SPENDING = sa.Table(
    "ccswarm_spending",
    OURS,
    sa.Column("step", sa.Text, primary_key=True),
    sa.Column("execution", sa.Text, nullable=False, index=True),
    sa.Column("scope", sa.Text, nullable=False, index=True),
    sa.Column("answer", sa.Text, nullable=False),
)
LOCK = 720_193_348
"""The key of PostgreSQL's advisory locks; dbos uses 1234567890."""
CHUNK = 500
CONNECTIONS = 4
"""The connections to a file."""
SQLITE: list[sa.Dialect] = []
"""The dialect of the first file that was opened, shared by all: compiled statements belong to a dialect."""
COMPILED: CompiledCacheType = {}
"""Statements for SQLite: a process that opens one file after the other compiles each statement once."""


def _address(text: str) -> sa.URL:
    try:
        url = sa.make_url(text)
    except (exc.ArgumentError, ValueError):
        url = None
    if url is None or url.get_backend_name() != "postgresql":
        # The message omits it: it may contain a password.
        raise ConfigInvalid(
            "engine.database_url is not the URL of a PostgreSQL database",
            suggestion="postgresql://USER@HOST/DATABASE, or leave it out for a SQLite file",
        )
    return url


def connect(settings: EngineSettings, directory: Path) -> sa.Engine:
    """Return an engine for the database in the settings, or ``engine.db`` in ``directory``, without opening it. Raises
    ConfigInvalid for an invalid address."""
    if settings.database_url:
        url = _address(settings.database_url)
        # A worker stopped inside a transaction would hold its locks; dbos prevents that only for its own engines.
        bound = f"-c idle_in_transaction_session_timeout={int(settings.lost_after_seconds * 1000)}"
        return sa.create_engine(
            url.set(drivername="postgresql+psycopg"),
            pool_size=settings.pool_size,
            max_overflow=0,
            pool_pre_ping=True,
            connect_args={
                "connect_timeout": 5,
                "client_encoding": "utf8",
                "options": f"{url.query.get('options', '')} {bound}".strip(),
                "keepalives_idle": 5,
                "keepalives_interval": 2,
                "keepalives_count": 3,
                "tcp_user_timeout": 8000,
            },
        )
    # A thread waiting for a connection is woken, one waiting for SQLite's lock sleeps: 25 concurrent steps took
    # 3.0 to 5.1 ms each with 30 connections, 2.3 to 2.9 ms with 3.
    engine = sa.create_engine(
        f"sqlite:///{directory / FILE}", pool_size=min(settings.pool_size, CONNECTIONS), max_overflow=0
    )
    if SQLITE:
        engine.dialect = SQLITE[0]
    engine.update_execution_options(compiled_cache=COMPILED)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        connection.isolation_level = "IMMEDIATE"
        # Before Python 3.12 dbos asks for the time in whole seconds, which do not order events.
        connection.create_function("strftime", 2, exact_time)
        if sqlite3.sqlite_version_info < (3, 42):  # from Python 3.12 on, dbos uses this
            connection.create_function("unixepoch", 1, exact_time)
        # The rollback journal is 1.7 times slower than WAL, and NORMAL loses nothing but to a crash of the machine.
        for pragma in ("busy_timeout=30000", "journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")
        if not SQLITE:  # which by now has asked what this SQLite can do
            SQLITE.append(engine.dialect)

    return engine


def _create_file(file: Path) -> None:
    """Create an empty database in WAL mode atomically. If several processes switch the same file to WAL, SQLite lets
    only one wait, and the others fail."""
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".engine.") as folder:
        made = Path(folder) / file.name
        made.touch(mode=0o600)
        with closing(sqlite3.connect(made)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
        with suppress(FileExistsError):
            os.link(made, file)


def exact_time(*_: str) -> float:
    """Return the Unix time to the millisecond, for ``strftime('%s', 'now')`` and ``unixepoch('subsec')``."""
    return round(time.time(), 3)


class Store:
    """The database. Every method blocks: call them on threads. ``system`` is dbos's own access to it: dbos's client
    cannot find lost workers or read what an execution shows."""

    def __init__(self, settings: EngineSettings, directory: Path) -> None:
        self.bare = connect(settings, directory)
        self.remote = bool(settings.database_url)
        self._directory = directory
        self.file = directory / FILE
        self.client = DBOSClient(
            system_database_engine=self.bare,
            serializer=AsciiJson(),
            application_name=NAME,
            lazy=True,
            retry_connection_errors=False,
        )
        self.system = self.client._sys_db  # pyright: ignore[reportPrivateUsage]
        self.engine = self.system.engine  # knows the schema of dbos's tables
        self.flows = self.system.tables.workflow_status
        self.shown = self.system.tables.workflow_events
        self._now = sa.extract("epoch", sa.func.clock_timestamp()) if self.remote else None
        self._insert = postgresql.insert if self.remote else sqlite.insert
        new = self._insert(WORKER)
        same = {"host": new.excluded.host, "pid": new.excluded.pid, "beat": new.excluded.beat}
        self._heartbeat = new.on_conflict_do_update(index_elements=["id"], set_=same)

    def create(self) -> None:
        """Create the missing tables. Several workers may do so at once."""
        if not self.remote:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self.file.exists():
                _create_file(self.file)
        SystemDatabase.create(
            system_database_url="postgresql://" if self.remote else "sqlite:///",
            engine_kwargs={},
            engine=self.bare,
            schema=None,
            serializer=AsciiJson(),
            executor_id=None,
            use_listen_notify=True,
        ).run_migrations()
        if self.remote:
            with self.begin() as c:
                c.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK)))
                OURS.create_all(c)
                announce(c, f"{self.system.schema}.{self.flows.name}")
        elif not all(sa.inspect(self.bare).has_table(table) for table in OURS.tables):
            with self.begin() as c:
                OURS.create_all(c)

    def has_queues(self, names: Collection[str]) -> bool:
        """Whether these queues are registered, as ours. To register them again changes nothing but takes 10 ms."""
        queues = self.system.tables.queues.c
        query = sa.select(queues.name).where(queues.name.in_(names), queues.application_name == NAME)
        with self.engine.connect() as c:
            return len(c.execute(query).all()) == len(names)

    def changes(self) -> Changes:
        """Return the notifications that something may have been queued."""
        if not self.remote:
            return FileChanges(self.file)
        waiting = self.flows.c.status.in_(("ENQUEUED", "DELAYED"))
        return Notifications(self.engine, sa.select(1).where(waiting).limit(1))

    def begin(self) -> Any:
        """Return a transaction. On SQLite it has the write lock from its beginning."""
        return self.engine.begin() if self.remote else Immediate(self.engine)

    def now(self, c: sa.Connection) -> float:
        """Return the current time in UTC seconds, by the database's clock if workers on several machines share it."""
        return time.time() if self._now is None else float(c.execute(sa.select(self._now)).scalar_one())

    def beat(self, worker: str, host: str, pid: int) -> None:
        """Record a heartbeat."""
        with self.begin() as c:
            c.execute(self._heartbeat, {"id": worker, "host": host, "pid": pid, "beat": self.now(c)})

    def workers(self) -> dict[str, tuple[str, int, float]]:
        """Return each worker's host, process id and seconds since its last heartbeat."""
        with self.engine.connect() as c:
            now = self.now(c)
            rows = c.execute(sa.select(WORKER)).all()
        return {row.id: (row.host, row.pid, max(0.0, now - row.beat)) for row in rows}

    def lost(self, after: float) -> list[str]:
        """Return the workers without a heartbeat for that long, and unknown workers of running executions."""
        alive = sa.select(WORKER.c.id)
        with self.engine.connect() as c:
            old = c.execute(sa.select(WORKER.c.id).where(WORKER.c.beat < self.now(c) - after)).scalars().all()
            running = sa.select(self.flows.c.executor_id).where(
                self.flows.c.status == "PENDING",
                self.flows.c.application_name == NAME,
                self.flows.c.executor_id.notin_(alive),
            )
            return sorted({*old, *c.execute(running.distinct()).scalars()})

    def forget(self, worker: str, after: float = 0.0) -> None:
        """Remove a lost worker, unless it has sent a heartbeat meanwhile."""
        with self.begin() as c:
            old = WORKER.c.beat < self.now(c) - after if after else sa.true()
            c.execute(sa.delete(WORKER).where(WORKER.c.id == worker, old))

    def recover(self, worker: str, version: str) -> int:
        """Queue the executions of ``worker`` again, and return how many."""
        left = self.system.get_pending_workflows(worker, version)
        return sum(self.system.reenqueue_for_recovery(flow.workflow_id, [worker], "runs") for flow in left)

    def not_owned(self, running: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return those of ``running`` that must not continue here, because they were stopped or another worker has
        them.

        Each is an id and a token. dbos gives an execution a new token whenever it takes it from a queue, the same to
        all it takes at once.
        """
        ids, owned = sorted({one for one, _ in running}), set[tuple[str, str]]()
        with self.engine.connect() as c:
            for start in range(0, len(ids), CHUNK):
                part = self.flows.c.workflow_uuid.in_(ids[start : start + CHUNK])
                rows = c.execute(sa.select(self.flows.c.workflow_uuid, self.flows.c.owner_xid).where(part))
                owned |= {(row.workflow_uuid, row.owner_xid) for row in rows}
        return [claim for claim in running if claim not in owned]

    def with_messages(self, executions: Collection[str]) -> set[tuple[str, str]]:
        """Return the executions with an unreceived message, and its topic."""
        mail = self.system.tables.notifications
        ids = sorted(executions)
        found = set[tuple[str, str]]()
        with self.engine.connect() as c:
            for start in range(0, len(ids), CHUNK):
                part = mail.c.destination_uuid.in_(ids[start : start + CHUNK])
                query = sa.select(mail.c.destination_uuid, mail.c.topic).where(part, mail.c.consumed == sa.false())
                found |= {(row.destination_uuid, row.topic) for row in c.execute(query.distinct())}
        return found

    def send(self, execution: str, topic: str, message: Json, key: str) -> bool:
        """Send a message. Report whether it is the first with that key. Raises DBOSNonExistentWorkflowError."""
        name = f"{execution}/{topic}/{key}" if key else None
        with self.begin() as c:
            if name and self.remote:  # even of concurrent senders
                c.execute(sa.select(sa.func.pg_advisory_xact_lock(LOCK, sa.func.hashtext(name))))
            if name and c.execute(self._mail(execution, name)).first():
                return False
            self.client.send_in_transaction(c, execution, message, topic, name)
            return True

    def sent(self, execution: str, topic: str, key: str) -> Json | None:
        """Return the message with that key, received or not."""
        with self.engine.connect() as c:
            text = c.execute(self._mail(execution, f"{execution}/{topic}/{key}")).scalar()
        return None if text is None else self.system.serializer.deserialize(text)

    def messages(self, execution: str, topic: str) -> dict[str, Json]:
        """Return the messages sent on ``topic``, received or not, by an id of each."""
        mail = self.system.tables.notifications.c
        query = sa.select(mail.message_uuid, mail.message).where(
            mail.destination_uuid == execution, mail.topic == topic
        )
        with self.engine.connect() as c:
            return {row.message_uuid: self.system.serializer.deserialize(row.message) for row in c.execute(query)}

    def _mail(self, execution: str, name: str) -> sa.Select[Any]:
        mail = self.system.tables.notifications
        return sa.select(mail.c.message).where(mail.c.message_uuid == f"{name}::{execution}")

    def steps(self, execution: str) -> list[Step]:
        """Return the recorded steps, in the order in which they ended."""
        steps = self.system.tables.operation_outputs.c
        shown = sa.select(steps.function_name, steps.output, steps.started_at_epoch_ms, steps.completed_at_epoch_ms)
        query = shown.where(steps.workflow_uuid == execution, steps.function_name.startswith(STEP))
        with self.engine.connect() as c:
            rows = c.execute(query.order_by(steps.completed_at_epoch_ms, steps.function_id)).all()
        return [to_step(*row) for row in rows]

    def family(self, root: str) -> list[Any]:
        """Return ``root`` and its descendants, parents first: id, kind, status, and why and by what root stopped."""
        flows = self.flows
        query = sa.select(flows.c.workflow_uuid, flows.c.name, flows.c.status, MARK.c.root, MARK.c.why).select_from(
            flows.outerjoin(MARK, MARK.c.execution == flows.c.workflow_uuid)
        )
        with self.engine.connect() as c:
            level: list[Any] = list(c.execute(query.where(flows.c.workflow_uuid == root)).all())
            found = list(level)
            while level:
                parents = [row.workflow_uuid for row in level]
                level = []
                for start in range(0, len(parents), CHUNK):
                    part = flows.c.parent_workflow_id.in_(parents[start : start + CHUNK])
                    level += c.execute(query.where(part)).all()
                found += level
        return found

    def mark(self, executions: Sequence[str], root: str, why: str) -> None:
        """Record why they were stopped, and with which root."""
        with self.begin() as c:
            for execution in executions:
                new = self._insert(MARK).values(execution=execution, root=root, why=why)
                c.execute(new.on_conflict_do_update(index_elements=["execution"], set_={"root": root, "why": why}))

    def unmark(self, executions: Sequence[str]) -> None:
        """Remove the marks of executions that continue."""
        with self.begin() as c:
            c.execute(sa.delete(MARK).where(MARK.c.execution.in_(list(executions))))

    def paused(self) -> list[str]:
        """Return the ids of paused executions."""
        with self.engine.connect() as c:
            return list(c.execute(sa.select(MARK.c.execution).where(MARK.c.why == "paused")).scalars())

    def notes(self, executions: Sequence[str]) -> tuple[dict[str, str], dict[str, Any]]:
        """Return the reasons for which executions were stopped, and what they show, by id."""
        why, shown = dict[str, str](), dict[str, Any]()
        with self.engine.connect() as c:
            for start in range(0, len(executions), CHUNK):
                part = list(executions[start : start + CHUNK])
                why |= {r.execution: r.why for r in c.execute(sa.select(MARK).where(MARK.c.execution.in_(part)))}
                query = sa.select(self.shown.c.workflow_uuid, self.shown.c.value)
                query = query.where(self.shown.c.workflow_uuid.in_(part), self.shown.c.key == "shown")
                shown |= {r.workflow_uuid: self.system.serializer.deserialize(r.value) for r in c.execute(query)}
        return why, shown

    def states(self, executions: Sequence[str]) -> dict[str, str]:
        """Return dbos's status of each execution, or PAUSED, by id."""
        query = sa.select(self.flows.c.workflow_uuid, self.flows.c.status, MARK.c.why).select_from(
            self.flows.outerjoin(MARK, MARK.c.execution == self.flows.c.workflow_uuid)
        )
        found = dict[str, str]()
        with self.engine.connect() as c:
            for start in range(0, len(executions), CHUNK):
                part = self.flows.c.workflow_uuid.in_(list(executions[start : start + CHUNK]))
                for row in c.execute(query.where(part)):
                    paused = row.status == "CANCELLED" and row.why == "paused"
                    found[row.workflow_uuid] = "PAUSED" if paused else row.status
        return found

    def retry(self, execution: str, queue: str) -> None:
        """Queue a failed execution. An error recorded last is removed, so that it does not fail again at once."""
        steps = self.system.tables.operation_outputs
        mine = steps.c.workflow_uuid == execution
        with self.begin() as c:
            last = c.execute(
                sa.select(steps).where(mine).order_by(steps.c.completed_at_epoch_ms.desc()).limit(1)
            ).first()
            if last is not None and (last.error is not None or (last.output or "").startswith('{"error": ')):
                c.execute(sa.delete(steps).where(mine, steps.c.function_id == last.function_id))
            c.execute(
                sa.update(self.flows)
                .where(self.flows.c.workflow_uuid == execution)
                .values(
                    status="ENQUEUED",
                    queue_name=queue,
                    owner_xid=None,
                    recovery_attempts=0,
                    started_at_epoch_ms=None,
                    completed_at=None,
                )
            )

    def count(self) -> dict[str, int]:
        """Count the executions by status."""
        query = sa.select(self.flows.c.status, sa.func.count()).group_by(self.flows.c.status)
        with self.engine.connect() as c:
            return {row[0]: row[1] for row in c.execute(query)}


class Immediate:
    """A transaction of SQLite that starts with BEGIN IMMEDIATE. The driver would start it only at the first write, when
    values read before may be outdated."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def __enter__(self) -> sa.Connection:
        self._context = self._engine.begin()
        connection = self._context.__enter__()
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        return connection

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(*error)  # pyright: ignore[reportArgumentType]
