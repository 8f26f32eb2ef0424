"""Whatever state a command leaves its shell in: its exit code is right or unknown, and the next command exact."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentwire import plugins
from ai_session.sessions import wait
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.spec import SessionDefaults
from tests.ai_session.support.recovery_cases import Lost
from tests.ai_session.support.sessions import request, run, runtime_directory
from tests.ai_session.torture.shell_states import cases
from tests.support.bounds import BOUND_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.torture]

AT_ONCE = 8
"""Sessions at a time: those that find out what became of a command mostly wait."""


@pytest.fixture(params=plugins.names("ai_session.backends"))
async def manager(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[SessionManager]:
    # Where it is missing, fish reads all manual pages of the system first.
    (home / ".local/share/fish/generated_completions").mkdir(parents=True)
    manager = SessionManager(runtime_directory(home), SessionDefaults(backend=request.param, max_sessions=1000))
    yield manager
    await manager.stop()


@pytest.mark.parametrize("shell", ["bash", "zsh", "dash", "fish"])
async def test_every_state(manager: SessionManager, shell: str) -> None:
    places = asyncio.Semaphore(AT_ONCE)

    async def in_turn(number: int, case: Lost) -> str:
        async with places:
            return await goes_on(manager, shell, number, case)

    wrong = await asyncio.gather(*(in_turn(number, case) for number, case in enumerate(cases(shell))))
    problems = [text for text in wrong if text]
    assert not problems, "\n".join(problems)


async def goes_on(manager: SessionManager, shell: str, number: int, case: Lost) -> str:
    session = await manager.create(request(f"s{number}", shell=shell))
    try:
        running = await session.begin(case.command, command_id="cmd")
        reason = await wait.for_command(session, running, BOUND_SECONDS, until_input=True)
        if reason != "finished":
            return f"{case.command!r}: {reason}, {session.state()}"
        record = running.record
        if record.exit_code not in (case.exit_code, None) and case.exit_code is not None:
            return f"{case.command!r}: exit code {record.exit_code}"
        if record.exit_code is None and case.exit_code is not None:
            return f"{case.command!r}: {record.status}"
        if session.exit is not None:
            return f"{case.command!r}: the shell has ended, {session.exit}"
        if case.shell and os.path.basename(session.spec.shell) not in (case.shell, "dash"):
            return f"{case.command!r}: the shell counts as {session.spec.shell}"
        # Twice: the first may be found out about, the second must be exact.
        for code in (4, 7):
            result = await run(session, f"/bin/sh -c 'exit {code}'")
            if result.exit_code != code or result.status != "finished":
                return f"{case.command!r}: the next command gave {result}"
    except Exception as error:
        return f"{case.command!r}: {error!r}"
    finally:
        await manager.close(session)
    return ""
