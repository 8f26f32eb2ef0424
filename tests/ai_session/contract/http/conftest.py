"""What several tests of the console and of the built-in authorization server begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.ai_session.support.consoles import Console, console
from tests.ai_session.support.mcp_client import running_daemon
from tests.ai_session.support.oauth_servers import Front, add_person, opened
from tests.conftest import NO_RUNS, UNBOXED


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    with running_daemon(homes, UNBOXED + NO_RUNS) as home:
        yield home


@pytest.fixture(scope="module")
def here(daemon_home: Path) -> Iterator[Console]:
    with console(daemon_home) as found:
        yield found


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[Front]:
    async with opened(tmp_path) as front:
        await add_person(front)
        yield front
