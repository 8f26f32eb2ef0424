"""A session in a box keeps every promise of test_session.py, at each level, for root and for others.

An ordinary user tries one pair of backend and level; all pairs, and root, are minutes and torture, and so is
test_boxed_user.py, which is for runs by root. Root's boxes hold the cases of test_boxed_semantics.py.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentwire import plugins
from ai_session.models import SandboxLevel
from ai_session.sessions import wait
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.report import command_result
from ai_session.sessions.session import Session
from ai_session.sessions.spec import SessionDefaults
from tests.ai_session.contract.sessions.test_session import *  # noqa: F403
from tests.ai_session.support.boxed_managers import MANAGERS
from tests.ai_session.support.sessions import printed, run, runtime_directory, successor, until
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio


QUICK = {("pty", SandboxLevel.BWRAP)}
PAIRS = [
    pytest.param(pair, marks=() if pair in QUICK and os.geteuid() != 0 else pytest.mark.torture)
    for pair in itertools.product(plugins.names("ai_session.backends"), MANAGERS)
]


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest) -> tuple[str, SandboxLevel]:
    return request.param


@pytest.fixture
def backend(pair: tuple[str, SandboxLevel]) -> str:
    return pair[0]


@pytest.fixture
def level(pair: tuple[str, SandboxLevel]) -> SandboxLevel:
    return pair[1]


@pytest.fixture
async def manager(backend: str, level: SandboxLevel, home: Path) -> AsyncIterator[SessionManager]:
    manager = MANAGERS[level](runtime_directory(home), SessionDefaults(backend=backend, max_sessions=4))
    yield manager
    await manager.stop()


@pytest.mark.parametrize("pair", [("pty", SandboxLevel.BWRAP)])
async def test_after_a_takeover_the_box_is_not_what_a_command_left_running(
    manager: SessionManager, session: Session
) -> None:
    await session.begin("echo one; read x; echo $x", command_id="cmd_over")
    await until(session, printed(session, b"one"))
    await manager.aclose()
    later = successor(manager)
    try:
        assert await later.adopt() == 1
        again = later.named("", "main")
        assert again.running is not None
        taken = again.running
        again.send(b"go\n")
        assert await wait.for_command(again, taken, BOUND_SECONDS, until_input=False) == "finished"
        await run(again, "echo next")
        assert again.latest is not None
        result = await again.work(command_result(again, again.latest.record, 7000, [], None))
        assert "note" not in result.structured
    finally:
        await later.stop()
