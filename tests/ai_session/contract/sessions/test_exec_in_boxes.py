"""``exec`` in a boxed shell: the program takes the shell's place and its terminal, at each level, in every shell."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from agentwire import plugins
from ai_session.models import SandboxLevel
from ai_session.sessions import wait
from ai_session.sessions.spec import SessionDefaults
from tests.ai_session.support.boxed_managers import MANAGERS
from tests.ai_session.support.sessions import (
    request,
    run,
    runtime_directory,
    text_of,
    until,
)
from tests.support.bounds import BOUND_SECONDS
from tests.support.products import first

pytestmark = [pytest.mark.anyio, pytest.mark.corners]


@pytest.mark.parametrize("shell", first(("bash", "zsh", "dash", "fish", "busybox"), "bash", "dash"))
@pytest.mark.parametrize("backend", plugins.names("ai_session.backends"))
@pytest.mark.parametrize("level", [SandboxLevel.BWRAP, SandboxLevel.LANDLOCK])
async def test_a_program_in_the_place_of_the_shell_has_its_terminal(
    level: SandboxLevel, backend: str, shell: str, home: Path
) -> None:
    assert shutil.which(shell), f"{shell} is not installed"
    manager = MANAGERS[level](runtime_directory(home), SessionDefaults(backend=backend, shell=shell, user_rc=False))
    try:
        session = await manager.create(request("one"))
        running = await session.begin("exec sh -c 'read x; echo got:$x; exit 5'", command_id="cmd")
        assert await wait.for_command(session, running, BOUND_SECONDS, until_input=True) == "input"
        session.send(b"word\n")
        await until(session, lambda: session.exit)
        assert ("got:word" in text_of(session, running.record), running.record.exit_code) == (True, 5)
        # Its jobs are jobs: the terminal comes back, and Ctrl-C ends one alone.
        session = await manager.create(request("two"))
        running = await session.begin("sleep 1000", command_id="cmd")
        await until(session, lambda: running.started)
        assert (await wait.interrupt(session, 5.0)).ended
        assert (await run(session, "echo next")).output == "next\n"
    finally:
        await manager.stop()


@pytest.mark.either("backend")
@pytest.mark.either("level")
@pytest.mark.parametrize("backend", plugins.names("ai_session.backends"))
@pytest.mark.parametrize("level", [SandboxLevel.BWRAP, SandboxLevel.LANDLOCK])
async def test_the_type_of_the_terminal_can_be_chosen(level: SandboxLevel, backend: str, home: Path) -> None:
    manager = MANAGERS[level](runtime_directory(home), SessionDefaults(backend=backend, env_allow=("PATH", "HOME")))
    try:
        plain = await manager.create(request("plain"))
        kind = (await run(plain, 'echo "$TERM"')).output
        assert kind.strip()
        chosen = await manager.create(replace(request("chosen"), env={"TERM": "dumb"}))
        assert (await run(chosen, 'echo "$TERM"')).output == "dumb\n"
        assert os.environ["TERM"] != "dumb"
    finally:
        await manager.stop()
