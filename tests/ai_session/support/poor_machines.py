"""Machines that lack something boxes need, simulated by an outer box.

As a program, it prints as JSON, according to its arguments, what the machine can do and how a box behaves, and what
doctor finds there.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ai_session.cli.doctor import sandbox as findings
from ai_session.models import SandboxLevel
from ai_session.sandbox.sandbox import Sandbox
from tests.ai_session.support import unprivileged
from tests.ai_session.support.boxes import box_user
from tests.support.bounds import BOUND_SECONDS

OUTER = ("/usr/bin/bwrap", "--dev-bind", "/", "/")
HIDDEN = ("--bind-fd", "--ro-bind-fd", "--size", "--perms", "--disable-userns")
OLD = f"""#!/bin/sh
# An older bubblewrap, which does not know all that the real one does.
if [ "$1" = --help ]; then {{0}} --help | grep -v {" ".join(f"-e {word}" for word in HIDDEN)}; exit; fi
if [ "$1" = --args ] && grep -qzx {" ".join(f"-e {word}" for word in HIDDEN)} "/proc/self/fd/$2"; then
    echo "bwrap: Unknown option" >&2; exit 1
fi
exec {{0}} "$@"
"""


@dataclass(frozen=True)
class Machine:
    """The arguments of bubblewrap that simulate a machine, its level, and texts that must be said about it."""

    words: tuple[str, ...]
    level: SandboxLevel
    said: tuple[str, ...]


def machines(directory: Path) -> dict[str, Machine]:
    """Return the machines by name, with files that some need in ``directory``."""
    real, old = directory / "real", directory / "old"
    real.touch()
    old.write_text(OLD.format(real))
    old.chmod(0o755)
    by_path = "mounts are named by path, not by descriptor: use bubblewrap 0.10 or newer, and bash"
    masked = ("--unshare-pid", "--proc", "/proc", "--ro-bind", "/dev/null", "/proc/keys", "--tmpfs", "/proc/fs")
    shells = [path for path in ("/usr/bin/bash", "/usr/bin/busybox") if os.path.exists(path)]
    return {
        "masked /proc": Machine(masked, SandboxLevel.BWRAP_NOPROC, ("systempaths=unconfined",)),
        "no bash": Machine(
            tuple(word for path in shells for word in ("--ro-bind", "/dev/null", path)), SandboxLevel.BWRAP, (by_path,)
        ),
        "old bubblewrap": Machine(
            ("--ro-bind", "/usr/bin/bwrap", str(real), "--ro-bind", str(old), "/usr/bin/bwrap"),
            SandboxLevel.BWRAP,
            (by_path, "the size of /tmp inside is not limited: use bubblewrap 0.8 or newer"),
        ),
        "no bubblewrap": Machine(
            ("--ro-bind", "/dev/null", "/usr/bin/bwrap"), SandboxLevel.LANDLOCK, ("bubblewrap not installed: ",)
        ),
        "no namespaces": Machine(
            ("--unshare-user", "--disable-userns"),
            SandboxLevel.LANDLOCK,
            ("allows no further user namespaces; run ai-session outside of it",),
        ),
    }


def ask(machine: Machine, user: str, *about: str) -> dict[str, Any]:
    """Run this program on a machine and return its output about ``box``, ``doctor`` or both."""
    root = user == "root"
    python = sys.executable if root else unprivileged.interpreter()
    done = subprocess.run(
        [*OUTER, *machine.words, "--", python, "-m", __name__, *about],
        cwd="/",
        env={"PATH": os.environ["PATH"], "PYTHONPATH": unprivileged.library_path(), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        check=False,
        **({} if root else unprivileged.identity()),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


SCRIPT = """
echo two > two && git add two && git commit -qm two && git log --oneline | wc -l
cat .env
echo x >> .git/config; mv .git g; echo x > .claude/x; echo x > /usr/x; echo x > /proc/sys/kernel/core_pattern
ls -A "$HOME"; cat ../secret
grep ^Seccomp: /proc/self/status
tail -n +3 /proc/net/dev | cut -d: -f1
echo scratch > /tmp/scratch && cat /tmp/scratch
echo x > sub/new
"""


def report() -> dict[str, Any]:
    with box_user(os.geteuid()) as here:
        status = asyncio.run(Sandbox(runtime_directory=here.runtime).probe())
        here.sh("git init -q . && git config user.name a && git config user.email a@b; mkdir sub ../outside")
        here.sh("echo one > one && git add one && git commit -qm one && echo TOKEN=x > .env; echo x > ../secret")
        before = here.files()

        def swap() -> None:
            (here.workspace / "sub").rename(here.workspace / "was")
            (here.workspace / "sub").symlink_to("../outside")

        done = here.run(SCRIPT, between=swap)
        kept = here.sh("cat .git/config; ls -A ../outside")
        left = sorted({*here.files()} - {*before})
        return {
            **asdict(status),
            "code": done.returncode,
            "out": done.stdout,
            "err": done.stderr,
            "kept": kept,
            "left": [name for name in left if not name.startswith(".git/")],
        }


def doctor() -> list[dict[str, Any]]:
    with box_user(os.geteuid()) as here:
        os.environ["HOME"] = str(here.home)
        return [asdict(finding) for finding in findings()]


if __name__ == "__main__":
    print(json.dumps({about: {"box": report, "doctor": doctor}[about]() for about in sys.argv[1:]}))
