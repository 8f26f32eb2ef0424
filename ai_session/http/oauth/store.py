"""The built-in authorization server's persistent data: one SQLite file, mode 0600.

Of codes, tokens and client secrets, only SHA-256 digests are stored; they are long and random, so a slow hash is not
needed. Command line and front use the file concurrently. Every piece of work is one transaction, which is either on
disk or has not happened when the process is killed.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import sqlite3
import stat
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Self, TypeVar

from ai_session.errors import OperatorError, RuntimeDirectoryUnsafe, StorageFull

FILE = "oauth.sqlite"
VERSION = 1
BUSY_SECONDS = 5.0

SCHEMA = """
CREATE TABLE people (name TEXT PRIMARY KEY, password TEXT NOT NULL, scopes TEXT NOT NULL, created_at REAL NOT NULL);
CREATE TABLE clients (
    client_id TEXT PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, secret_hash TEXT NOT NULL,
    auth_method TEXT NOT NULL, redirect_uris TEXT NOT NULL, grant_types TEXT NOT NULL, scopes TEXT NOT NULL,
    created_at REAL NOT NULL, used_at REAL
);
CREATE TABLE grants (
    grant_id TEXT PRIMARY KEY, client_id TEXT NOT NULL, client_name TEXT NOT NULL, subject TEXT NOT NULL,
    scopes TEXT NOT NULL, resource TEXT NOT NULL, created_at REAL NOT NULL, used_at REAL NOT NULL,
    revoked_at REAL, revoked_why TEXT NOT NULL DEFAULT ''
);
CREATE TABLE codes (
    hash TEXT PRIMARY KEY, grant_id TEXT NOT NULL REFERENCES grants ON DELETE CASCADE, redirect_uri TEXT NOT NULL,
    redirect_uri_named INTEGER NOT NULL, challenge TEXT NOT NULL, expires_at REAL NOT NULL, used_at REAL
);
CREATE TABLE tokens (
    hash TEXT PRIMARY KEY, grant_id TEXT NOT NULL REFERENCES grants ON DELETE CASCADE, kind TEXT NOT NULL,
    scopes TEXT NOT NULL, created_at REAL NOT NULL, expires_at REAL NOT NULL, used_at REAL
);
CREATE INDEX tokens_of_grant ON tokens (grant_id);
CREATE INDEX tokens_over ON tokens (kind, expires_at);
CREATE INDEX codes_of_grant ON codes (grant_id);
CREATE INDEX grants_of_client ON grants (client_id);
CREATE INDEX grants_of_subject ON grants (subject);
"""

T = TypeVar("T")


class Refused(Exception):
    """An error response of RFC 6749: ``error`` is its code. What was written before it was raised stays written.

    ``note`` is for the log alone.
    """

    def __init__(self, error: str, description: str, note: str = "") -> None:
        super().__init__(f"{error}: {description}")
        self.error = error
        self.description = description
        self.note = note


class Store:
    """One file, and one thread that uses it. ``clock`` returns UTC seconds."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self.clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="oauth-store")
        try:
            self._db = self._thread.submit(_open, path).result()
        except BaseException:
            self._thread.shutdown()
            raise

    def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do ``work`` as one transaction and wait for it; for callers without an event loop."""
        return self._thread.submit(self._transact, work).result()

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do ``work`` as one transaction. Cancelling the caller does not undo it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transact, work)

    def close(self) -> None:
        """Wait for the work in progress and close the file."""
        self._thread.submit(self._db.close).result()
        self._thread.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            # Deferred, so that readers take no write lock; transactions that write begin with a write.
            self._db.execute("BEGIN")
            try:
                result = work(self._db)
            except Refused:
                self._db.execute("COMMIT")
                raise
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise _store_error(error, self.path) from error
        return result


def new_secret(kind: str) -> str:
    """Return 256 random bits after a prefix by which scanners recognize leaks: ``code``, ``at``, ``rt``, ``cs``."""
    return f"ais_{kind}_{secrets.token_urlsafe(32)}"


def digest(secret: str) -> str:
    """Return what is stored of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def writing(db: sqlite3.Connection) -> None:
    """Take the write lock now, so that what is read next is unchanged when it is written."""
    db.execute("UPDATE people SET name = name WHERE 0")


def _open(path: Path) -> sqlite3.Connection:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        info = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    if info.st_uid != os.getuid() or stat.S_IMODE(info.st_mode) & 0o077:
        raise RuntimeDirectoryUnsafe(
            f"{path} is not this user's alone (mode {stat.S_IMODE(info.st_mode):04o})", suggestion=f"chmod 600 {path}"
        )
    try:
        db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            _prepare(db, path)
        except BaseException:
            db.close()
            raise
    except sqlite3.Error as error:
        raise _store_error(error, path) from error
    return db


def _prepare(db: sqlite3.Connection, path: Path) -> None:
    db.row_factory = sqlite3.Row
    for setting in ("synchronous = FULL", "foreign_keys = ON", "secure_delete = ON", "trusted_schema = OFF"):
        db.execute(f"PRAGMA {setting}")
    db.execute("BEGIN IMMEDIATE")
    with closing(db.execute("PRAGMA user_version")) as found:
        version: int = found.fetchone()[0]
    if version == 0:
        for statement in SCHEMA.split(";"):
            db.execute(statement)
        db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute("COMMIT")
    if version > VERSION:
        raise OperatorError(f"{path} was made by a newer ai-session", suggestion="use that one, or move the file away")


def _store_error(error: sqlite3.Error, path: Path) -> OperatorError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return StorageFull(f"{path}: {error}", suggestion="free space on its disk")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return OperatorError(
            f"{path}: {error}", suggestion=f"move it away; people and clients must then sign in again: {path}"
        )
    return OperatorError(f"{path}: {error}", suggestion="another process may hold it: ai-session doctor")
