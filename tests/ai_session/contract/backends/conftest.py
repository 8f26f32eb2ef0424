"""Terminals on tmux."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.ai_session.support.terminals import BackendSetup
from tests.ai_session.support.tmux_servers import a_world


@pytest.fixture
async def here(home: Path) -> AsyncGenerator[BackendSetup]:
    async with a_world(home) as made:
        yield made


@pytest.fixture(params=[True, False], ids=["held", "through tmux"])
async def either(request: pytest.FixtureRequest, home: Path) -> AsyncGenerator[BackendSetup]:
    """With terminals that hold on to their ttys beside tmux, and as it is where the kernel does not allow that."""
    async with a_world(home, hold=request.param) as made:
        yield made
