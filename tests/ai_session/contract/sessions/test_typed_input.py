"""Commands and what people type share a prompt: neither reaches the other, in every shell and on every backend."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ai_session.errors import SessionBusy
from ai_session.models import SessionState
from ai_session.sessions import wait
from ai_session.sessions.commands import RunningCommand
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.session import Session
from ai_session.sessions.spec import NewSession, SessionDefaults
from ai_session.system.terminal_device import unread_bytes
from tests.ai_session.support.sessions import Result, run, runtime_directory, spin, text_of, until, workspace
from tests.support.stopping import frozen

pytestmark = [pytest.mark.anyio, pytest.mark.corners, pytest.mark.either("backend")]
any_shell = pytest.mark.either("session")

SHELLS = ("bash", "zsh", "dash", "fish", "mksh")
READ = "read x; echo got:$x\n"
STEP_SECONDS = 5.0
"""For each key: a program that is just being started can miss the first one."""


@pytest.fixture(params=SHELLS)
async def session(request: pytest.FixtureRequest, backend: str, home: Path) -> AsyncIterator[Session]:
    assert shutil.which(request.param), f"{request.param} is not installed"
    (home / ".local/share/fish/generated_completions").mkdir(parents=True)
    runtime = runtime_directory(home)
    manager = SessionManager(runtime, SessionDefaults(backend=backend, user_rc=False, shell=request.param))
    try:
        new = NewSession(name="main", working_directory=str(workspace(home)), client_env=dict(os.environ), env={})
        yield await manager.create(new)
    finally:
        await manager.stop()


def log_of(session: Session) -> bytes:
    return session.log.read(session.log.first, session.log.end)


async def printed(session: Session, text: bytes) -> None:
    await until(session, lambda: text in log_of(session))


async def started(running: RunningCommand, session: Session) -> None:
    await until(session, lambda: running.started)


async def line_runs(session: Session) -> None:
    """Waits until the builtin of a typed line reads the terminal."""
    await until(session, lambda: session.at.human_line or not session.shell.line_editor)
    await asyncio.to_thread(spin, lambda: reads_on(session))


def reads_on(session: Session) -> bool:
    """Whether the foreground has read all that was typed, and reads."""
    holder, terminal = session.holder(), session.terminal
    assert terminal is not None
    reads = holder is not None and holder.input_mode is not None
    return reads and not terminal.unsent and not unread_bytes(terminal.tty)


@any_shell
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_builtin_that_a_person_started_gets_no_command(session: Session, at_once: bool) -> None:
    session.send(READ.encode())
    if not at_once:
        await line_runs(session)
    with pytest.raises(SessionBusy) as refused:
        await session.begin("echo agent", command_id="cmd")
    assert "C-c" in refused.value.suggestion
    session.send(b"person\n")
    await until(session, lambda: b"got:person" in log_of(session))
    assert b"__ais_" not in log_of(session).rpartition(b"read x")[2]
    assert await run(session, "echo agent") == Result("agent\n", 0, "finished")


@any_shell
async def test_what_was_typed_ahead_is_run_before_a_command(session: Session, home: Path) -> None:
    session.send(f"cd {home}; touch here\n".encode())
    assert await run(session, "pwd") == Result(f"{home}\n", 0, "finished")
    assert (home / "here").exists()


@any_shell
async def test_several_lines_with_their_answers_leave_the_session_usable(session: Session) -> None:
    for answer in (b"one", b"two"):
        session.send(READ.encode())
        await line_runs(session)
        session.send(answer + b"\n")
        await printed(session, b"got:" + answer)
    assert await run(session, "echo agent") == Result("agent\n", 0, "finished")
    session.send(b"true\n" + READ.encode())
    with pytest.raises(SessionBusy):
        await session.begin("echo agent", command_id="cmd")
    session.send(b"\x03")
    assert await run(session, "echo agent") == Result("agent\n", 0, "finished")


@any_shell
async def test_an_answer_sent_before_the_command_has_begun_reaches_it(session: Session) -> None:
    """The shell is stopped meanwhile: while its line editor has the terminal, Enter ends no line for the command."""
    assert session.terminal is not None
    with frozen(session.terminal.pid):
        running = await session.begin("read x; echo got:$x", command_id="cmd")
        answering = asyncio.ensure_future(session.typed_lines.send_lines(b"answer\r", "typed"))
        for _ in range(10):
            await asyncio.sleep(0)
    assert await answering is None
    await until(session, running.finished.done)
    assert text_of(session, running.record).endswith("got:answer\n")


async def test_a_line_that_is_not_complete_makes_the_session_busy_until_it_is_dropped(session: Session) -> None:
    session.send(b"echo 'not\n")
    if os.path.basename(session.spec.shell) == "fish":
        # Its line editor holds both lines as one, which is dropped as any other.
        running = await session.begin("echo agent", command_id="cmd")
        assert running.dropped == "echo 'not"
        await until(session, running.finished.done)
        return
    with pytest.raises(SessionBusy):
        await session.begin("echo agent", command_id="cmd")
    session.send(b"\x03")
    assert await run(session, "echo agent") == Result("agent\n", 0, "finished")


async def test_a_half_typed_line_is_dropped_and_the_answer_says_which(session: Session) -> None:
    session.send(b"echo hall\x7ff")
    running = await session.begin("echo agent", command_id="cmd")
    assert running.dropped == "echo half"
    await until(session, lambda: running.finished.done())
    # Whoever is attached is told, too, above the command.
    shown = log_of(session)
    assert 0 < shown.find(b"half-typed line dropped: echo half") < shown.find("❯".encode())
    assert (await run(session, "echo again")).output == "again\n"
    assert session.running is None
    assert (await session.begin("true", command_id="cmd")).dropped == ""


@pytest.mark.parametrize(
    ("session", "without"),
    [
        pytest.param("zsh", "unsetopt zle", marks=pytest.mark.torture),
        ("zsh", "exec zsh -f +Z"),
        ("bash", "exec bash --norc --noediting"),
    ],
    indirect=["session"],
)
async def test_without_a_line_editor_a_half_typed_line_is_dropped_as_well(
    session: Session, without: str, home: Path
) -> None:
    await run(session, without)
    for setting in ("true", "stty kill undef"):
        await run(session, setting)
        session.send(f"touch {home}/half".encode())
        assert await run(session, "echo agent; (exit 3)") == Result("agent\n", 3, "finished")
        typed = await session.typed_lines.send_lines(b"(exit 4)\n", "typed")
        assert typed is not None
        await until(session, typed.finished.done)
        assert (typed.record.status, typed.record.exit_code) == ("finished", 4)
    assert not (home / "half").exists()


@any_shell
async def test_answers_to_a_command_leave_the_session_free(session: Session) -> None:
    for _ in range(2):
        running = await session.begin("read x; read y; echo $x-$y", command_id="cmd")
        await started(running, session)
        session.send(b"a\nb\n")
        await until(session, running.finished.done)
        assert running.record.exit_code == 0
    assert await run(session, "echo agent") == Result("agent\n", 0, "finished")


@any_shell
async def test_a_line_typed_after_an_interrupted_command_ends(session: Session) -> None:
    for code in (3, 0):
        running = await session.begin("sleep 1000", command_id="cmd")
        await started(running, session)
        assert (await wait.interrupt(session, STEP_SECONDS)).ended
        for number in (code, code + 1):
            typed = await session.typed_lines.send_lines(f"sh -c 'exit {number}'\n".encode(), "typed")
            assert typed is not None
            await until(session, typed.finished.done)
            assert (typed.record.status, typed.record.exit_code) == ("finished", number)


@pytest.mark.parametrize("times", [4, pytest.param(12, marks=pytest.mark.torture)])
@pytest.mark.parametrize("session", ["bash"], indirect=True)
async def test_a_line_ends_where_the_prompt_asks_the_terminal_for_the_cursor(session: Session, times: int) -> None:
    await run(session, r"""PROMPT_COMMAND='printf "\e[6n"; read -sdR x'""")
    for code in range(3, 3 + times):
        assert await run(session, "echo agent") == Result("agent\n", 0, "finished")
        typed = await session.typed_lines.send_lines(f"sh -c 'exit {code}'\n".encode(), "typed")
        assert typed is not None
        await until(session, typed.finished.done)
        assert (typed.record.status, typed.record.exit_code) == ("finished", code)


@any_shell
async def test_a_program_that_a_person_runs_makes_the_session_busy(session: Session) -> None:
    session.send(b"sleep 1000\n")
    with pytest.raises(SessionBusy, match="sleep"):
        await session.begin("echo agent", command_id="cmd")
    session.send(b"\x03")
    assert await run(session, "echo agent") == Result("agent\n", 0, "finished")


@any_shell
async def test_a_session_is_ready_when_its_prompt_is_back(session: Session) -> None:
    session.send(READ.encode())
    await line_runs(session)
    assert session.state() in (SessionState.WAITING_INPUT, SessionState.RUNNING)
    session.send(b"person\n")
    await printed(session, b"got:person")
    # Its prompt is known first, and then that the shell reads there.
    await until(
        session,
        lambda: not session.at.human_line and (session.shell.line_editor or session.typed.answered(session.at.prompts)),
    )
    await asyncio.to_thread(spin, lambda: (h := session.holder()) is not None and h.input_mode is not None)
    assert session.state() is SessionState.READY
