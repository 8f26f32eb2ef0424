"""Sessions that a program opens with the Python API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ai_session
from ai_session.api import blocking
from tests.ai_session.support.mcp_client import living_in, running_daemon
from tests.conftest import environment


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    with running_daemon(homes) as home, environment(living_in(home)):
        yield home
        blocking._connections.close()  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def session(daemon_home: Path) -> Iterator[ai_session.Session]:
    with (
        environment(living_in(daemon_home)),
        ai_session.open(shell="bash", backend="pty", directory=daemon_home) as session,
    ):
        yield session
