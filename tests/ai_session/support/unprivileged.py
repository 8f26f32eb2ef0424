"""An ordinary user: its id, an interpreter that it may run, and folders that it owns."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.bounds import BOUND_SECONDS
from tests.support.strangers import as_that_user

ROOT = Path(__file__).parents[3]
USER = 12345 if os.geteuid() == 0 else os.getuid()
GROUP = 12345 if os.geteuid() == 0 else os.getgid()


def identity() -> dict[str, Any]:
    """Return options of subprocess.Popen that start a child as this user."""
    return {"user": USER, "group": GROUP, "extra_groups": []} if os.geteuid() == 0 else {}


def become() -> Callable[[], None] | None:
    """Return the function by which a forked child becomes this user; None if it is already."""
    if os.geteuid() != 0:
        return None

    def change() -> None:
        if os.isatty(0):
            os.fchown(0, USER, GROUP)  # a terminal belongs to the user that opened it
        as_that_user(USER)

    return change


@cache
def interpreter() -> str:
    """Return a Python that this user may run and that imports the project's libraries with ``library_path``."""
    seen: list[str] = []
    for path in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}", "/usr/bin/python3"):
        line = [path, "-c", "import pydantic_core, ai_session.models"]
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": library_path()}
        try:
            done = subprocess.run(
                line, env=env, capture_output=True, text=True, timeout=BOUND_SECONDS, cwd="/", **identity()
            )
        except OSError as error:
            seen.append(f"{path}: {error}")
            continue
        if done.returncode == 0:
            return path
        seen.append(f"{path}: {done.stderr[-200:]}")
    raise AssertionError(f"user {USER} can run no Python with the project's libraries (is it below /root?): {seen}")


def library_path() -> str:
    """Return a PYTHONPATH with the project and its libraries."""
    return os.pathsep.join([str(ROOT), *(path for path in sys.path if path.endswith("-packages"))])


@contextmanager
def directory() -> Iterator[Path]:
    """Yield a folder of this user, with a short path because socket paths are limited to 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="aiu-", dir="/tmp"))
    give(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def give(path: Path) -> Path:
    """Give a file or folder to this user."""
    if os.geteuid() == 0:
        os.chown(path, USER, GROUP)
    return path


def folder(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return give(path)
