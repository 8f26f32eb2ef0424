"""Whole sessions in a test: where they live, a command run to its end, output and marks waited for."""

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
    """A new one, beside an empty workspace."""
    workspace(home).mkdir()
    (home / "run").mkdir(mode=0o700)
    return home / "run"


def workspace(home: Path) -> Path:
    """Where sessions start, and what a boxed one can change."""
    return home / "ws"


def successor(manager: SessionManager) -> SessionManager:
    """The manager of the next daemon."""
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
    """Waits for output or marks until ``holds``."""
    assert await wait.for_output(session, BOUND_SECONDS, lambda: bool(holds()))


def printed(session: Session, text: bytes) -> Callable[[], bool]:
    """Whether the running command (or anything, when none runs) has printed ``text``."""

    def seen() -> bool:
        running = session.running
        if running is not None and not running.started:
            return False
        return text in session.log.read(running.record.start_offset if running else session.log.first, session.log.end)

    return seen


def spin(holds: Callable[[], object]) -> None:
    """Asks the kernel again and again; for facts that no event announces."""
    end = time.monotonic() + BOUND_SECONDS
    while not holds():
        assert time.monotonic() < end
        pause()
