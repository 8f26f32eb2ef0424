"""Clients leave the daemon behind, as they should; here it ends with the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ai_session.contract.wire import stop_daemons

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def daemons_end(home: Path) -> Iterator[None]:
    yield
    stop_daemons(home)
