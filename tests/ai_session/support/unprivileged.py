"""Somebody who is not root: a user id, an interpreter that user may run, and a world that user owns."""

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

ROOT = Path(__file__).parents[3]
USER = 12345 if os.geteuid() == 0 else os.getuid()
GROUP = 12345 if os.geteuid() == 0 else os.getgid()


def identity() -> dict[str, Any]:
    """Options of subprocess.Popen that make a child this user."""
    return {"user": USER, "group": GROUP, "extra_groups": []} if os.geteuid() == 0 else {}


def become() -> Callable[[], None] | None:
    """What a forked child has to call to be this user."""
    if os.geteuid() != 0:
        return None

    def change() -> None:
        if os.isatty(0):
            os.fchown(0, USER, GROUP)  # a terminal belongs to whoever opened it
        os.setgroups([])
        os.setgid(GROUP)
        os.setuid(USER)

    return change


@cache
def interpreter() -> str:
    """A Python that this user may run and that knows the project's libraries with ``library_path``."""
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
    """PYTHONPATH with the project and its libraries."""
    return os.pathsep.join([str(ROOT), *(path for path in sys.path if path.endswith("-packages"))])


@contextmanager
def world() -> Iterator[Path]:
    """A folder of this user's own; short, because socket paths end at 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="aiu-", dir="/tmp"))
    give(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def give(path: Path) -> Path:
    """Makes a file or folder this user's."""
    if os.geteuid() == 0:
        os.chown(path, USER, GROUP)
    return path


def folder(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return give(path)
