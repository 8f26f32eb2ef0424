"""Clients leave the daemon behind, as they should; here it ends with the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ai_session.support.mcp_client import stop_daemons
from tests.clients.node import Person
from tests.conftest import client_environment
from tests.support import forked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def daemons_end(home: Path) -> Iterator[None]:
    yield
    stop_daemons(home)


@pytest.fixture(scope="module")
def sharer(shared_home: Path) -> Iterator[Person]:
    """Whose daemon goes on from one test of a module to the next."""
    forked.daemon(client_environment(shared_home))
    yield Person(environment=client_environment(shared_home))
    stop_daemons(shared_home)
