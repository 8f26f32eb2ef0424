"""Fifty kills of owner and keeper at random moments of an output, on every backend."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from agentwire import plugins
from ai_session.models import ExitStatus
from tests.ai_session.contract.backends.test_backend_survival import (
    COUNT,
    COUNTED,
    KEEPS_GOING_WITHOUT_ITS_KEEPER,
    goes_on,
    keepers,
)
from tests.ai_session.support.terminals import BackendSetup, open_backend, start_owner
from tests.support.process_ends import ended

pytestmark = [pytest.mark.anyio, pytest.mark.torture]

ROUNDS = 50
PHASES = ("before", "read", "stored")


@pytest.fixture(params=plugins.names("ai_session.backends"))
async def here(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[BackendSetup]:
    async with open_backend(request.param, home) as made:
        yield made


async def test_owners(here: BackendSetup) -> None:
    for number in range(ROUNDS):
        await here.backend.aclose()
        waits, kill_at, phase = random.random() < 0.5, random.randrange(len(COUNTED)), random.choice(PHASES)
        spec = here.spec(["/bin/sh", "-c", f"{COUNT}; {'read x;' if waits else ''} exit 7"])
        owner, pid = await start_owner(here, spec, kill_at, phase)
        await ended(owner.pid)
        assert owner.wait() == -signal.SIGKILL
        owner.close()
        if not waits and random.random() < 0.5:
            await ended(pid)
        again = (await here.adopt())[spec.session_id]
        await again.holds(len(COUNTED))
        again.terminal.write(b"\n")
        assert await again.ended() == ExitStatus(code=7)
        assert again.output == COUNTED, f"round {number}, killed at {kill_at}, {phase}"
        await again.close()


async def test_keepers(here: BackendSetup) -> None:
    if here.name not in KEEPS_GOING_WITHOUT_ITS_KEEPER:
        return
    for number in range(ROUNDS):
        owned = await here.sh(f"{COUNT}; echo done; read x; echo $x; exit 3")
        waiting = await here.sh("stty -echo; echo ready; read x; echo got $x; exit 4")
        await waiting.shows(b"ready")
        await owned.holds(random.randrange(len(COUNTED)))
        for pid in keepers(here):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await goes_on(owned, waiting)
        assert not any(status.lost for status in owned.exits + waiting.exits), f"round {number}"
        for one in (owned, waiting):
            await one.close()
