"""What a shell was told that makes each command fail: nothing counts as finished that did not run, and no trace of the
session's own shows its secret or stands in a result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agentwire import plugins
from ai_session.sessions import wait
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.session import Session
from ai_session.sessions.spec import SessionDefaults
from ai_session.terminal.marks import strip_marks
from tests.ai_session.support.sessions import request, run, runtime_directory, spin, text_of, until
from tests.support.bounds import BOUND_SECONDS

pytestmark = [pytest.mark.anyio, pytest.mark.corners]

TRACED = [
    *[("bash", trace) for trace in ("set -xv", "BASH_XTRACEFD=1; set -x")],
    *[("zsh", "set -xv"), ("dash", "set -x"), ("mksh", "set -x")],
    *[pytest.param(shell, "set -x", marks=pytest.mark.torture) for shell in ("bash", "zsh", "busybox")],
]


@pytest.fixture(params=plugins.names("ai_session.backends"))
async def manager(request: pytest.FixtureRequest, home: Path) -> AsyncIterator[SessionManager]:
    manager = SessionManager(runtime_directory(home), SessionDefaults(backend=request.param, user_rc=False))
    yield manager
    await manager.stop()


async def typed(session: Session, line: str) -> str:
    """What a line printed that was typed, without its echo."""
    last = session.history.last
    begun = last.start_offset if last else 0
    # A prompt is drawn after what the shell traced of ours.
    mark = f"7777;{session.spec.nonce};A;".encode()
    await until(session, lambda: session.at.ready or mark in session.log.read(begun, session.log.end))
    await asyncio.to_thread(spin, lambda: (holder := session.holder()) is not None and holder.input_mode is not None)
    running = await session.typed_lines.send_lines(line.encode() + b"\r", "typed")
    assert running is not None
    assert await wait.for_command(session, running, BOUND_SECONDS, until_input=False) == "finished"
    return text_of(session, running.record)


@pytest.mark.parametrize("shell", ["dash", "busybox"])
async def test_what_fails_after_each_command_hides_none(manager: SessionManager, shell: str, home: Path) -> None:
    """As outside of ai-session, the first command of each line is carried out, and then fails."""
    session = await manager.create(request(shell=shell))
    await run(session, "readonly _")
    for number in (1, 2):
        seen = await run(session, f"echo ran >>{home}/ran-{number}; echo never")
        assert (seen.status, seen.exit_code) == ("finished", 2)
        assert "read only" in seen.output
        assert "never" not in seen.output
        assert (home / f"ran-{number}").read_text() == "ran\n"
    assert (await run(session, "(exit 5)")).exit_code == 5


@pytest.mark.parametrize(("shell", "trace"), TRACED)
async def test_a_trace_shows_nothing_of_ours(manager: SessionManager, shell: str, trace: str) -> None:
    session = await manager.create(request(shell=shell))
    await run(session, trace)
    for printed in (
        await typed(session, "echo a"),
        (await run(session, "echo a")).output,
        await typed(session, "true"),
    ):
        assert "__ais" not in printed
        assert "builtin" not in printed
    sleeping = await session.begin("sleep 60", command_id="sleep")
    await until(session, lambda: sleeping.started)
    await asyncio.to_thread(spin, lambda: (holder := session.holder()) is not None and holder.name == "sleep")
    session.send(b"\x03")
    assert await wait.for_command(session, sleeping, BOUND_SECONDS, until_input=False) == "finished"
    assert sleeping.record.exit_code == 130
    assert "__ais" not in text_of(session, sleeping.record)
    seen = await run(session, "echo b")
    assert "__ais" not in seen.output
    assert seen.output.endswith("echo b\nb\n")
    # Where mksh traces, too, what prints it.
    log = strip_marks(session.log.read(session.log.first, session.log.end), session.spec.nonce)
    assert session.spec.nonce.encode() not in log


async def test_a_zsh_without_aliases_begins_what_goes_to_the_background(manager: SessionManager, home: Path) -> None:
    session = await manager.create(request(shell="zsh"))
    await run(session, "unsetopt aliases")
    seen = await run(session, f"echo ran >>{home}/ran &")
    assert (seen.status, seen.exit_code) == ("finished", 0)
    assert (await run(session, f"wait; cat {home}/ran")).output.endswith("ran\n")
    assert (await run(session, "[[ -o aliases ]]")).exit_code == 1
