"""The backend ``auto``: tmux where it can be used, else pty; it is decided by what the session needs anyway."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from ai_session.backends.tmux.control import listener_pid
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.spec import SessionDefaults
from tests.ai_session.support.sessions import request, run, runtime_directory

pytestmark = pytest.mark.anyio

RECORDING = """#!/bin/sh
echo "$*" >>{calls}
exec {tmux} "$@"
"""
SHORTAGE = """#!/bin/sh
[ -e {calls} ] && exec {tmux} "$@"
>{calls}
echo "fork failed: Resource temporarily unavailable" >&2
exit 1
"""
"""A tmux that cannot start the first time."""
TOO_OLD = """#!/bin/sh
case " $* " in
    *" -C "*) {tmux} "$@" | sed -u 's/^\\([0-9]* \\)[0-9][0-9.a-z]*/\\13.1/' ;;
    *) exec {tmux} "$@" ;;
esac
"""


@contextmanager
def tmux(script: str, home: Path) -> Iterator[Path]:
    """Put this script before tmux in PATH. Yield the file in which it may record its calls."""
    calls = home / "calls"
    (home / "bin").mkdir()
    (home / "bin/tmux").write_text(script.format(calls=calls, tmux=shutil.which("tmux")))
    (home / "bin/tmux").chmod(0o755)
    kept = os.environ["PATH"]
    os.environ["PATH"] = f"{home}/bin:{kept}"
    try:
        yield calls
    finally:
        os.environ["PATH"] = kept


@contextmanager
def descriptors(left: int) -> Iterator[None]:
    """Leave this process so many unused descriptors."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    unused = os.dup(0)
    os.close(unused)
    resource.setrlimit(resource.RLIMIT_NOFILE, (unused + left, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@asynccontextmanager
async def opened(home: Path, **settings: str) -> AsyncIterator[SessionManager]:
    """Yield the manager of a daemon that has prepared for its first session."""
    manager = SessionManager(runtime_directory(home), SessionDefaults(user_rc=False, **settings))
    try:
        await manager.make_ready()
        yield manager
    finally:
        await manager.stop()


async def test_without_its_sessions_no_tmux_is_started(home: Path) -> None:
    with tmux(RECORDING, home) as calls:
        async with opened(home, backend="auto") as manager:
            session = await manager.create(request(backend="pty"))
            assert (session.spec.backend, (await run(session, "echo hi")).output) == ("pty", "hi\n")
        assert not calls.exists()


async def test_only_the_server_of_its_sessions_is_started(home: Path) -> None:
    with tmux(RECORDING, home) as calls:
        async with opened(home, backend="auto") as manager:
            for name in ("main", "second"):
                assert (await manager.create(request(name))).spec.backend == "tmux"
            (call,) = map(str.split, calls.read_text().splitlines())
            assert call[call.index("-S") + 1] == str(home / "run/tmux.sock")


@pytest.mark.parametrize("script", ["#!/bin/sh\necho broken >&2\nexit 1\n", TOO_OLD], ids=["broken", "too old"])
async def test_a_tmux_that_cannot_be_used_is_not_chosen(home: Path, script: str) -> None:
    with tmux(script, home):
        async with opened(home, backend="auto") as manager:
            session = await manager.create(request())
            assert (session.spec.backend, (await run(session, "echo hi")).output) == ("pty", "hi\n")
            assert not listener_pid(str(home / "run/tmux.sock")), "a server that nobody uses is left"


async def test_a_backend_that_could_not_start_once_is_tried_again(home: Path) -> None:
    with tmux(SHORTAGE, home):
        async with opened(home, backend="auto") as manager:
            assert [(await manager.create(request(name))).spec.backend for name in ("main", "second")] == [
                "pty",
                "tmux",
            ]


async def test_a_session_that_no_backend_could_open_is_opened_once_there_are_descriptors(home: Path) -> None:
    async with opened(home, backend="auto") as manager:
        with descriptors(left=0), pytest.raises(OSError, match="open files"):
            await manager.create(request())
        session = await manager.create(request())
        assert (session.spec.backend, (await run(session, "echo hi")).output) == ("tmux", "hi\n")


@pytest.mark.torture
async def test_a_tmux_that_does_not_answer_is_waited_for_once_by_all_who_ask(home: Path) -> None:
    with tmux("#!/bin/sh\necho $$ >>{calls}\nexec sleep 30\n", home) as calls:
        async with opened(home, backend="auto") as manager:
            creating = [asyncio.create_task(manager.create(request(f"s{number}"))) for number in range(4)]
            assert {(await one).spec.backend for one in creating} == {"pty"}
            assert len(calls.read_text().split()) == 1
