"""Thousands of random commands, and not one wrong answer: output byte for byte, text, exit code, directory."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Protocol

import pytest

from agentwire import plugins
from ai_session.models import CommandRecord, ExitStatus
from ai_session.sessions import wait
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.report import transcript
from ai_session.sessions.session import Session
from ai_session.sessions.spec import NewSession, SessionDefaults
from ai_session.system.turns import finished
from ai_session.terminal.marks import strip_marks
from ai_session.terminal.text import clean
from tests.ai_session.torture.random_fish import FishCommands
from tests.ai_session.torture.random_material import Expected
from tests.ai_session.torture.random_posix import PosixCommands
from tests.ai_session.torture.session_machine import SessionMachine
from tests.support.bounds import BOUND_SECONDS
from tests.support.products import first

MOST_CHARS = 200_000


class Commands(Protocol):
    rng: Random
    past: bytes

    def next(self) -> Expected: ...


@pytest.fixture(params=plugins.names("ai_session.backends"))
def backend(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def manager(backend: str, home: Path) -> AsyncIterator[SessionManager]:
    runtime = home / "run"
    runtime.mkdir(mode=0o700)
    manager = SessionManager(runtime, SessionDefaults(backend=backend))
    yield manager
    await manager.stop()


def all_text(session: Session, record: CommandRecord) -> str:
    """At once where that is possible, else page by page."""
    whole = transcript(session, record)
    if not (rendering := finished(whole.render(MOST_CHARS))).truncated:
        return rendering.text
    text, page = "", finished(whole.page(0, MOST_CHARS))
    while not page.at_end:
        text += page.text
        page = finished(whole.page(page.next_offset, MOST_CHARS))
    return text + page.text


async def answer(session: Session, expected: Expected, number: int) -> Expected:
    """What the session really answered, in the same shape."""
    running = await session.begin(
        expected.command,
        command_id=f"cmd_{number}",
        stdin=expected.stdin,
        separate_stderr=expected.stderr is not None,
    )
    for line in expected.answers:
        assert await wait.for_command(session, running, BOUND_SECONDS, until_input=True) == "input", expected
        session.send(line)
    assert await wait.for_command(session, running, BOUND_SECONDS, until_input=False) == "finished", expected
    record = running.record
    assert record.status == "finished"
    assert record.end_offset is not None
    assert record.exit_code is not None
    raw = session.log.read(record.start_offset, record.end_offset)
    text = all_text(session, record)
    if expected.text is None:
        assert text == clean(strip_marks(raw, session.spec.nonce)), expected
    return Expected(
        expected.command,
        strip_marks(raw, session.spec.nonce),
        text if expected.text is not None else None,
        record.exit_code,
        session.cwd,
        expected.stdin,
        Path(record.stderr_path).read_bytes() if record.stderr_path else None,
        expected.answers,
        expected.ends,
    )


def reported(expected: Expected, found: Expected, where: str) -> str:
    """What differs, in lines that can be read."""
    wrong = [n for n in expected.__dataclass_fields__ if getattr(expected, n) != getattr(found, n)]
    lines = [f"{n}:\n  wanted {getattr(expected, n)!r:.2000}\n  got    {getattr(found, n)!r:.2000}" for n in wrong]
    return "\n".join([where, *lines, f"command: {expected.command!r:.4000}"])


async def run_random(manager: SessionManager, shell: str, count: int, seed: int) -> None:
    work = manager.runtime_directory.parent / "work"
    work.mkdir()
    commands: Commands = FishCommands(seed, work) if shell == "fish" else PosixCommands(shell, seed, work)
    request = NewSession(name="main", working_directory=str(work), client_env=dict(os.environ), env={}, shell=shell)
    session = await manager.create(request)
    for number in range(count):
        if number % 20 == 0:
            commands.past = session.log.read(
                max(session.log.first, session.log.end - commands.rng.randrange(9000)), 1 << 60
            )
        expected = commands.next()
        expected = replace(expected, raw=strip_marks(expected.raw, session.spec.nonce))
        found = await answer(session, expected, number)
        assert found == expected, reported(expected, found, f"command {number} of seed {seed}")
        if expected.ends:
            assert await wait.for_output(session, BOUND_SECONDS, lambda: session.exit is not None)
            assert session.exit == ExitStatus(code=expected.exit_code)
            await manager.create(request)


@pytest.mark.torture  # contract/sessions/test_semantics.py has commands of every kind
@pytest.mark.parametrize("shell", first(("bash", "zsh", "dash", "fish"), "bash"))
@pytest.mark.anyio
@pytest.mark.either("backend")
async def test_random_commands(manager: SessionManager, shell: str) -> None:
    await run_random(manager, shell, 150 if shell == "bash" else 40, seed=0)


@pytest.mark.torture
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("shell", "count"), [("bash", 10_000), ("zsh", 1000), ("dash", 1000), ("fish", 1000)])
@pytest.mark.anyio
async def test_random_commands_by_the_thousand(manager: SessionManager, shell: str, count: int) -> None:
    await run_random(manager, shell, count, seed=1)


async def live(backend: str, home: Path, seed: int, steps: int) -> None:
    machine = SessionMachine(backend, home, seed)
    await machine.start()
    try:
        for _ in range(steps):
            await machine.step()
    except BaseException as error:
        error.add_note(f"seed {seed}: {', '.join(machine.story)}")
        raise
    finally:
        await machine.stop()


@pytest.mark.anyio
@pytest.mark.either("backend")
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.torture)])
async def test_a_session_and_its_model_agree(backend: str, home: Path, seed: int) -> None:
    await live(backend, home, seed, 20)


@pytest.mark.torture
@pytest.mark.anyio
@pytest.mark.parametrize("seed", range(100, 110))
async def test_a_session_and_its_model_agree_for_long(backend: str, home: Path, seed: int) -> None:
    await live(backend, home, seed, 150)
