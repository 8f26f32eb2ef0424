"""Whole sessions in a test: their directories, commands run to the end, waits for output and marks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ai_session.models import CommandRecord
from ai_session.sessions import wait
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.report import transcript
from ai_session.sessions.session import Session
from ai_session.sessions.spec import NewSession
from ai_session.system.turns import finished
from tests.support.bounds import BOUND_SECONDS, pause


@dataclass(frozen=True)
class Result:
    output: str
    exit_code: int | None
    status: str


def runtime_directory(home: Path) -> Path:
    """Create a runtime directory next to an empty workspace, and return it."""
    workspace(home).mkdir()
    (home / "run").mkdir(mode=0o700)
    return home / "run"


def workspace(home: Path) -> Path:
    """Return the directory in which sessions start, and which boxed ones can change."""
    return home / "ws"


def successor(manager: SessionManager) -> SessionManager:
    """Return the manager of the next daemon."""
    return type(manager)(manager.runtime_directory, manager.defaults)


def request(name: str = "main", **fields: str) -> NewSession:
    given = {"working_directory": str(workspace(Path(os.environ["HOME"]))), **fields}
    return NewSession(name=name, client_env=dict(os.environ), env={}, person=True, **given)  # pyright: ignore[reportArgumentType]


def text_of(session: Session, record: CommandRecord) -> str:
    return finished(transcript(session, record).render(200_000)).text


async def run(session: Session, command: str, **options: object) -> Result:
    running = await session.begin(command, command_id="cmd", **options)  # pyright: ignore[reportArgumentType]
    assert await wait.for_command(session, running, BOUND_SECONDS, until_input=False) == "finished"
    return Result(text_of(session, running.record), running.record.exit_code, running.record.status)


async def until(session: Session, holds: Callable[[], object]) -> None:
    """Wait for output or marks until ``holds`` returns true."""
    assert await wait.for_output(session, BOUND_SECONDS, lambda: bool(holds()))


def printed(session: Session, text: bytes) -> Callable[[], bool]:
    """Return a function that reports whether the running command, or anything if none runs, has printed ``text``."""

    def seen() -> bool:
        running = session.running
        if running is not None and not running.started:
            return False
        return text in session.log.read(running.record.start_offset if running else session.log.first, session.log.end)

    return seen


def spin(holds: Callable[[], object]) -> None:
    """Check repeatedly until ``holds`` returns true; for facts that no event announces."""
    end = time.monotonic() + BOUND_SECONDS
    while not holds():
        assert time.monotonic() < end
        pause()
