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


@contextmanager
def server() -> Generator[str]:
    """Its address, without a database."""
    account = pwd.getpwnam("postgres" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name)
    directory = Path(tempfile.mkdtemp(prefix="swpg-", dir="/tmp"))
    shutil.chown(directory, account.pw_uid, account.pw_gid)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def run(program: str, *arguments: str) -> None:
        subprocess.run(
            [programs() / program, "-D", directory / "data", *arguments],
            check=True,
            cwd=directory,
            env={"PATH": "/usr/bin:/bin"},
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[],
            stdout=subprocess.DEVNULL,
        )

    try:
        run("initdb", "-U", "swarm", "-E", "UTF8", "--no-locale", "--auth=trust", "--no-instructions")
        options = " ".join(f"-c {setting}" for setting in (*SETTINGS, f"port={port}"))
        run("pg_ctl", "-w", "-l", str(directory / "log"), "-o", options, "start")
        try:
            yield f"postgresql://swarm@127.0.0.1:{port}"
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def database(address: str, name: str) -> str:
    """A new database there; its address."""
    import psycopg
    from psycopg import sql

    with psycopg.connect(f"{address}/postgres", autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return f"{address}/{name}"
