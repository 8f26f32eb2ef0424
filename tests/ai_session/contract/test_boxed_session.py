"""A session in a box keeps every promise of test_session.py, at each level, for root and for others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ai_session.models import SandboxLevel
from ai_session.session_manager import SessionManager
from ai_session.session_spec import SessionDefaults
from tests.ai_session.contract.boxed import MANAGERS
from tests.ai_session.contract.session_harness import runtime_directory
from tests.ai_session.contract.test_session import *  # noqa: F403

pytestmark = pytest.mark.anyio


@pytest.fixture(params=MANAGERS, ids=str)
def level(request: pytest.FixtureRequest) -> SandboxLevel:
    return request.param


@pytest.fixture
async def manager(backend: str, level: SandboxLevel, home: Path) -> AsyncIterator[SessionManager]:
    manager = MANAGERS[level](runtime_directory(home), SessionDefaults(backend=backend, max_sessions=8))
    yield manager
    await manager.stop()
