"""Whatever an agent does in a session, in any order: it is usable within seconds, and each exit code is right."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from agentwire import plugins
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.spec import SessionDefaults
from tests.ai_session.support.sessions import runtime_directory
from tests.ai_session.support.walks import Walk, write_program
from tests.support.products import first

pytestmark = [pytest.mark.anyio, pytest.mark.corners]

SEED = os.environ.get("WALKS_SEED")
AT_ONCE = 4
ATTEMPTS = 3
"""Of a walk after which a session was usable too late: on a busy machine, one in time shows that it can be."""
SHELLS = ("bash", "zsh", "fish", "dash", "busybox", "mksh", "lksh")


@pytest.fixture(params=plugins.names("ai_session.backends"))
async def manager(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[SessionManager]:
    # Where it is missing, fish reads all manual pages of the system first.
    (home / ".local/share/fish/generated_completions").mkdir(parents=True)
    write_program(home)
    manager = SessionManager(runtime_directory(home), SessionDefaults(backend=request.param, max_sessions=1000))
    yield manager
    await manager.stop()


@pytest.mark.parametrize("walks", [1, pytest.param(40, marks=pytest.mark.torture)])
@pytest.mark.parametrize("shell", first(SHELLS, "bash", "dash"))
async def test_random_walks(manager: SessionManager, shell: str, walks: int, home: Path) -> None:
    """Torture takes other seeds each time, or from ``$WALKS_SEED`` on; whatever fails names them."""
    least = int(SEED or (Random().randrange(10**6) if walks > 1 else 1))
    places = asyncio.Semaphore(AT_ONCE)

    async def in_turn(seed: int) -> list[str]:
        wrong: list[str] = []
        async with places:
            for attempt in range(ATTEMPTS):
                wrong = await Walk(manager, shell, f"w{seed}-{attempt}", seed, home).take()
                if not wrong or any("usable only" not in what for what in wrong):
                    break
        return [f"WALKS_SEED={seed}: {what}" for what in wrong]

    found = await asyncio.gather(*(in_turn(least + number) for number in range(walks)))
    assert not [what for wrong in found for what in wrong]
