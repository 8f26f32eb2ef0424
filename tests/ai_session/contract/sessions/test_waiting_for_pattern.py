"""Waiting for a pattern in a command's output, from before its output begins."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from ai_session.models import Principal
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.ownership import Visibility
from ai_session.sessions.spec import NewSession, SessionDefaults
from ai_session.sessions.visible import VisibleSessions
from ai_session.tools.base import Context, Limits
from ai_session.tools.commands import ExecuteCommand, execute_command
from ai_session.tools.output import ReadOutput, read_output
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio
NOWHERE: Any = None


async def test_the_line_that_shows_a_command_is_not_its_output(home: Path) -> None:
    runtime = home / "run"
    runtime.mkdir(mode=0o700)
    manager = SessionManager(runtime, SessionDefaults(backend="pty", user_rc=False, shell="bash"))
    context = Context(Principal("mcp", 0), VisibleSessions(manager, Visibility(everything=True)), NOWHERE, Limits())
    try:
        async with asyncio.timeout(BOUND_SECONDS):
            wanted = NewSession(name="s", working_directory=str(home), client_env=dict(os.environ), env={})
            session = await manager.create(wanted)
            command = "read -r go; echo found it; read -r go"
            started = ExecuteCommand(session_id="s", command=command, timeout_seconds=0)
            assert (await execute_command(context, started)).structured["status"] == "running"
            wait: dict[str, Any] = {"session_id": "s", "wait_for": "pattern", "pattern": "found"}
            early = (await read_output(context, ReadOutput(**wait, timeout_seconds=0.5))).structured
            assert (early["waited"], early["matches"]) == ("timeout", 0)
            session.send(b"\r")
            there = (await read_output(context, ReadOutput(**wait))).structured
            assert (there["waited"], there["matches"]) == ("pattern", 1)
    finally:
        await manager.stop()
