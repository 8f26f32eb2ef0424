"""A fixture for the tests of other programs: `terminal`, a session independent of this machine's configuration."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ai_session.api.blocking import Session

RUNTIME = ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "AI_SESSION_ID", "AI_SESSION_NAME")


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Yield an ``ai_session.Session`` in ``tmp_path``, with its own HOME, configuration and daemon."""
    from ai_session.api.blocking import open as open_session
    from ai_session.client.connection import connect

    home = tempfile.mkdtemp(prefix="ais-", dir="/tmp")  # tmp_path is too long for a socket
    monkeypatch.setenv("HOME", home)
    for name in RUNTIME:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    try:
        with open_session() as session:
            yield session
    finally:
        with connect() as daemon:
            daemon.request("stop", sessions=True)
            daemon.wait_closed()
        shutil.rmtree(home, ignore_errors=True)
