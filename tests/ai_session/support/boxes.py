"""Boxes made and entered as root and as an ordinary user: a forked child gives up root before it does anything."""

from __future__ import annotations

import asyncio
import base64
import concurrent.futures.thread  # noqa: F401  (before the fork, as below)
import ctypes
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ai_session.models import SandboxProfile

# Imported before the fork, because the ordinary user may not be able to read these files.
from ai_session.sandbox import (
    probe,
)
from ai_session.sandbox.bwrap import Bubblewrap
from ai_session.sandbox.probe import SandboxStatus
from ai_session.sandbox.sandbox import PreparedSandbox, Sandbox
from tests.support.bounds import BOUND_SECONDS
from tests.support.strangers import as_that_user

ORDINARY = 12345
PATH = "/usr/local/bin:/usr/bin:/bin"


def as_user(uid: int, work: Callable[[], Any]) -> Any:
    """Do ``work`` in a forked process of user ``uid`` and return its result; its exception fails the test."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            become(uid)
            answer = (True, work())
        except BaseException as problem:
            answer = (False, f"{type(problem).__name__}: {problem}\n{traceback.format_exc()}")
        with open(writer, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        content = pipe.read()
    os.waitpid(pid, 0)
    fine, answer = pickle.loads(content)
    assert fine, answer
    return answer


def become(uid: int) -> None:
    """Change this process to user ``uid`` for good."""
    if os.geteuid() != uid:
        as_that_user(uid)
        # Cleared by the change of user, and normally restored by executing a program.
        assert ctypes.CDLL(None).prctl(4, 1, 0, 0, 0) == 0


EACH = """
for script; do
    /bin/sh -c "$script" >/tmp/out 2>/tmp/err
    echo "$?|$(base64 -w 0 /tmp/out)|$(base64 -w 0 /tmp/err)"
done
"""


@cache
def probed(uid: int) -> tuple[SandboxStatus, Bubblewrap | None]:
    """Return what a probe of the machine by this user finds, cached."""
    return as_user(uid, probe.probe)


class Probed(Sandbox):
    """A sandbox with a given result of the probe."""

    def __init__(self, runtime: Path, status: SandboxStatus, bubblewrap: Bubblewrap | None) -> None:
        super().__init__(runtime_directory=runtime)
        self._status = status
        self._bubblewrap = bubblewrap


@dataclass
class BoxUser:
    """A user with a home, a workspace and a runtime directory of their own, in ``root``."""

    uid: int
    root: Path
    profile: SandboxProfile = field(default_factory=SandboxProfile)
    others: bool = True
    """Whether root may have other users in a box, if the machine allows that."""

    @property
    def workspace(self) -> Path:
        return self.root / "ws"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def runtime(self) -> Path:
        return self.root / "run"

    def sh(self, script: str) -> str:
        """Run a script outside of any box, in the workspace, as the user. Return its output."""
        return self.outside(["/bin/sh", "-ec", script])

    def outside(self, argv: list[str]) -> str:
        ids = {"user": self.uid, "group": self.uid, "extra_groups": []} if os.geteuid() == 0 else {}
        env = {"PATH": PATH, "HOME": str(self.home), "GIT_CONFIG_GLOBAL": "/dev/null", "LANG": "C.UTF-8"}
        done = subprocess.run(argv, cwd=self.workspace, env=env, capture_output=True, text=True, check=True, **ids)
        return done.stdout

    def run(self, script: str, **changes: Any) -> subprocess.CompletedProcess[str]:
        """Run ``script`` in a box, by ``/bin/sh``."""
        return self.enter(["/bin/sh", "-c", script], **changes)

    def run_each(self, scripts: Sequence[str], **changes: Any) -> dict[str, subprocess.CompletedProcess[str]]:
        """Run scripts one after the other in one box. Return their results by script."""
        done = self.enter(["/bin/sh", "-c", EACH, "sh", *scripts], **changes)
        rows = [row.split("|") for row in done.stdout.splitlines()]
        assert (done.returncode, len(rows)) == (0, len(scripts)), done
        return {
            script: subprocess.CompletedProcess(script, int(code), *(base64.b64decode(text).decode() for text in texts))
            for script, (code, *texts) in zip(scripts, rows, strict=True)
        }

    def enter(
        self,
        argv: list[str],
        *,
        between: Callable[[], None] = lambda: None,
        pass_fds: tuple[int, ...] = (),
        outer: dict[str, str] | None = None,
        **changes: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in a box; ``between`` is called when the box is prepared but not entered yet."""

        async def work() -> subprocess.CompletedProcess[str]:
            boxed = await self.prepare(**changes)
            try:
                between()
                process = await asyncio.create_subprocess_exec(
                    *boxed.argv,
                    *argv,
                    env={**boxed.env, **(outer or {})},
                    cwd=self.workspace,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    pass_fds=pass_fds,
                )
                out, err = await asyncio.wait_for(process.communicate(), BOUND_SECONDS)
                assert process.returncode is not None
                return subprocess.CompletedProcess(
                    argv, process.returncode, out.decode(errors="replace"), err.decode(errors="replace")
                )
            finally:
                boxed.release()

        probed(self.uid)  # before the fork, so that it is cached
        return as_user(self.uid, lambda: asyncio.run(work()))

    async def prepare(self, box: str = "box", **changes: Any) -> PreparedSandbox:
        env = {"PATH": PATH, "HOME": str(self.home), "LANG": "C.UTF-8"}
        status, bubblewrap = probed(self.uid)
        if bubblewrap is not None and not self.others:
            bubblewrap = replace(bubblewrap, users=False)
        return await Probed(self.runtime, status, bubblewrap).prepare(
            replace(self.profile, **changes), self.runtime / box, env=env, die_with_parent=True
        )

    def files(self) -> list[str]:
        """Return all paths in the workspace."""
        return sorted(str(path.relative_to(self.workspace)) for path in self.workspace.rglob("*"))


@contextmanager
def box_user(uid: int) -> Iterator[BoxUser]:
    """Yield a user whose files are in /var/tmp, because a box has another /tmp."""
    root = Path(tempfile.mkdtemp(prefix="ai-session-box-", dir="/var/tmp"))
    try:
        made = BoxUser(uid, root)
        for path in (root, made.workspace, made.home, made.runtime):
            path.mkdir(mode=0o755, exist_ok=True)
            os.chown(path, uid, uid if os.geteuid() == 0 else os.getegid())
        made.profile = SandboxProfile("workspace", str(made.workspace), str(made.home), masked=(".env", "*.key"))
        yield made
    finally:
        shutil.rmtree(root)


def python_inside() -> tuple[str, tuple[str, ...]]:
    """Return an interpreter and the paths that must be readable for it."""
    if os.access("/usr/bin/python3", os.X_OK):
        return "/usr/bin/python3", ()
    return os.path.realpath(sys.executable), (sys.base_prefix,)
