"""A PostgreSQL server of the tests: on loopback, run by an account that is not root, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator

SETTINGS = ("listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=60", "log_min_messages=fatal")


def programs() -> Path:
    """Where apt puts them, the newest version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    assert found, "apt-get install postgresql"
    return found[-1]


class Server:
    """``address`` is without a database; ``stop`` is as a restart of the machine's server does it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._account = pwd.getpwnam("postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name)
        shutil.chown(directory, self._account.pw_uid, self._account.pw_gid)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.address = f"postgresql://swarm@127.0.0.1:{self._port}"
        words = ("-E", "UTF8", "--no-locale", "--auth=trust", "--no-instructions")
        self._run("initdb", "-U", "swarm", *words)

    def start(self) -> None:
        options = " ".join(f"-c {setting}" for setting in (*SETTINGS, f"port={self._port}"))
        self._run("pg_ctl", "-w", "-l", str(self._directory / "log"), "-o", options, "start")

    def stop(self, how: str = "fast") -> None:
        self._run("pg_ctl", "-w", "-m", how, "stop")

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [programs() / program, "-D", self._directory / "data", *arguments],
            check=True,
            cwd=self._directory,
            env={"PATH": "/usr/bin:/bin"},
            user=self._account.pw_uid,
            group=self._account.pw_gid,
            extra_groups=[],
            stdout=subprocess.DEVNULL,
        )


@contextmanager
def machine() -> Generator[Server]:
    """One that is running, and may be stopped and started meanwhile."""
    directory = Path(tempfile.mkdtemp(prefix="swpg-", dir="/tmp"))
    try:
        made = Server(directory)
        made.start()
        try:
            yield made
        finally:
            made.stop("immediate")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def server() -> Generator[str]:
    """The address of one that runs, without a database."""
    with machine() as made:
        yield made.address


def database(address: str, name: str) -> str:
    """A new database there; its address."""
    import psycopg
    from psycopg import sql

    with psycopg.connect(f"{address}/postgres", autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return f"{address}/{name}"
