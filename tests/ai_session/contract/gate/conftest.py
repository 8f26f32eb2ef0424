"""A daemon that asks, for tests that do not configure one of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ai_session.support import asking


@pytest.fixture(scope="module")
def asking_home(shared_home: Path) -> Iterator[Path]:
    with asking.asking(shared_home):
        yield shared_home


@pytest.fixture
def daemon_home(asking_home: Path) -> Path:
    """The home of a daemon that asks and knows of nothing yet."""
    asking.anew(asking_home)
    return asking_home
