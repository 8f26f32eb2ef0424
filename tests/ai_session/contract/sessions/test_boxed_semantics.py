"""Every case of every shell in boxes of every level: as unboxed, see test_semantics.py."""

from __future__ import annotations

import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from agentwire import plugins
from ai_session.models import SandboxLevel
from ai_session.sessions.spec import SessionDefaults
from tests.ai_session.contract.sessions.test_semantics import SHELLS, play_all
from tests.ai_session.support.boxed_managers import MANAGERS
from tests.ai_session.support.sessions import runtime_directory, workspace
from tests.ai_session.support.shell_cases import Case, prepare

pytestmark = pytest.mark.anyio

REFUSES_EXEC = {("dash", level): "exec false" for level in (SandboxLevel.BWRAP, SandboxLevel.BWRAP_NOPROC)}
"""dash gives the terminal back to the group it was started in, which has no number in a box of its own processes."""


def cases(shell: str, level: SandboxLevel) -> list[Case]:
    """/tmp is another directory in every box, and with Landlock one that fish does not enter."""
    return [
        replace(
            case,
            command=case.command.replace("cd /tmp", "cd /usr"),
            output=None if case.output is None else case.output.replace(b"/tmp", b"/usr"),
        )
        for case in SHELLS[shell]
        if case.name != REFUSES_EXEC.get((shell, level))
    ]


BOXES = list(itertools.product(plugins.names("ai_session.backends"), MANAGERS, SHELLS))
ASKED = (
    ("pty", SandboxLevel.BWRAP, "dash"),
    ("pty", SandboxLevel.BWRAP, "busybox"),
    ("tmux", SandboxLevel.LANDLOCK, "zsh"),
)
"""Those of whom this kind of box asks something special: who has the terminal."""


async def play_in_box(backend: str, level: SandboxLevel, home: Path, shell: str, played: list[Case]) -> None:
    assert shutil.which(shell), f"{shell} is not installed"
    runtime = runtime_directory(home)
    prepare(workspace(home))
    manager = MANAGERS[level](runtime, SessionDefaults(backend=backend, user_rc=False, shell=shell))
    assert not (wrong := await play_all(manager, played, workspace(home))), "\n".join(wrong)


@pytest.mark.parametrize(("backend", "level", "shell"), ASKED)
async def test_cases_of_the_terminal(backend: str, level: SandboxLevel, shell: str, home: Path) -> None:
    await play_in_box(backend, level, home, shell, [case for case in cases(shell, level) if case.keys])


@pytest.mark.torture
@pytest.mark.parametrize(("backend", "level", "shell"), BOXES)
async def test_all_cases(backend: str, level: SandboxLevel, shell: str, home: Path) -> None:
    await play_in_box(backend, level, home, shell, cases(shell, level))
