"""Every case of every shell through whole sessions, on every backend: output byte-exact, exit code, shell usable."""

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from agentwire import plugins
from ai_session.sessions import wait
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.session import Session
from ai_session.sessions.spec import NewSession, SessionDefaults
from ai_session.terminal.marks import strip_marks
from tests.ai_session.support.sessions import run
from tests.ai_session.support.shell_cases import BASH, DASH, FISH, MKSH, POSIX, Case, prepare
from tests.support.bounds import BOUND_SECONDS, pause
from tests.support.products import first

pytestmark = pytest.mark.anyio
BUSYBOX = tuple(case for case in DASH if case.name != "^C in a pure shell loop")
"""busybox leaves its loop out of the handler of the signal, and then may wait for a lock of its own for ever."""
SHELLS = {"bash": BASH, "zsh": POSIX, "dash": DASH, "busybox": BUSYBOX, "mksh": MKSH, "lksh": MKSH, "fish": FISH}
SIGNALS_AS_CODES = {-9: 137}
"""A harness that owns the shell sees a signal number; a session reports what a shell would."""


@pytest.mark.corners  # what a backend does for a shell it does for all
@pytest.mark.parametrize("backend", plugins.names("ai_session.backends"))
@pytest.mark.parametrize("shell", first(SHELLS, "bash", "zsh", "dash", "fish"))
async def test_all_cases(backend: str, shell: str, home: Path) -> None:
    assert shutil.which(shell), f"{shell} is not installed"
    runtime, data = home / "run", home / "data"
    runtime.mkdir(mode=0o700)
    data.mkdir()
    prepare(data)
    manager = SessionManager(runtime, SessionDefaults(backend=backend, user_rc=False, shell=shell))
    assert not (wrong := await play_all(manager, SHELLS[shell], data)), "\n".join(wrong)


async def play_all(manager: SessionManager, cases: Sequence[Case], data: Path) -> list[str]:
    """What went wrong in the cases; a session that a case ended is followed by another."""
    wrong: list[str] = []
    number = 0
    try:
        session = await open_session(manager, number)
        for case in cases:
            wrong += await play(session, case, data)
            if session.exit is not None or session.running is not None:
                await manager.close(session)
                number += 1
                session = await open_session(manager, number)
    finally:
        await manager.stop()
    return wrong


async def open_session(manager: SessionManager, number: int) -> Session:
    session = await manager.create(
        NewSession(name=f"s{number}", working_directory="/", client_env=dict(os.environ), env={"HISTFILE": ""})
    )
    if os.path.basename(session.spec.shell) == "fish":  # whose own prompt runs git each time
        await run(session, "function fish_prompt; echo '> '; end")
    return session


async def play(session: Session, case: Case, data: Path) -> list[str]:
    (data / "old.log").write_bytes(session.log.read(session.log.first, session.log.end))
    running = await session.begin(case.command.replace("@DIR@", str(data)), command_id="cmd")
    for event, keys in case.keys:
        if not await happened(session, event):
            return [f"{case.name}: {event} never happened, state {session.state()}"]
        session.send(keys)
    if await wait.for_command(session, running, 2.0, until_input=False) != "finished":
        session.watchdog.probe_end()
        if await wait.for_command(session, running, BOUND_SECONDS, until_input=False) != "finished":
            return [f"{case.name}: no end, state {session.state()}, {output(session)[-300:]!r}"]
    record = running.record
    raw = output(session)
    wrong: list[str] = []
    if case.output is not None and raw != case.output:
        wrong.append(f"{case.name}: output {raw[-200:]!r}")
    if case.exit_code is not None and record.exit_code != SIGNALS_AS_CODES.get(case.exit_code, case.exit_code):
        wrong.append(f"{case.name}: exit code {record.exit_code}")
    if case.ends_shell and not await wait.for_output(session, BOUND_SECONDS, lambda: session.exit is not None):
        wrong.append(f"{case.name}: the shell has not ended")
    return wrong


async def happened(session: Session, event: str) -> bool:
    running = session.running
    assert running is not None
    if not await wait.for_output(session, BOUND_SECONDS, lambda: running.started):
        return False
    if event.startswith("text:"):
        text = event[5:].encode()
        return await wait.for_output(session, BOUND_SECONDS, lambda: text in output(session))
    if event == "foreground":
        return await asyncio.to_thread(spin, lambda: runs_another_program(session))
    if event == "reading":
        return await asyncio.to_thread(spin, lambda: (h := session.holder()) is not None and h.input_mode is not None)
    return event == "running"


def output(session: Session) -> bytes:
    """What the running or last command has printed, with LF line ends."""
    record = session.running.record if session.running else session.history.last
    assert record is not None
    end = session.log.end if record.end_offset is None else record.end_offset
    return strip_marks(session.log.read(record.start_offset, end), session.spec.nonce).replace(b"\r\n", b"\n")


def runs_another_program(session: Session) -> bool:
    """A forked shell that has the terminal but not yet called exec would swallow Ctrl-C."""
    holder = session.holder()
    return holder is not None and not holder.leads_itself and holder.name != os.path.basename(session.spec.shell)


def spin(holds: Callable[[], object]) -> bool:
    """Asks the kernel again and again: no event announces who holds the terminal."""
    end = time.monotonic() + BOUND_SECONDS
    while not holds():
        if time.monotonic() > end:
            return False
        pause()
    return True
