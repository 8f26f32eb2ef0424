"""What is tried for a moment leaves nothing in the directory for temporary files, also when it is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentwire import plugins
from ai_session.sandbox.probe import probe
from ai_session.system.temporary_directories import PREFIX, abandoned, trial_directory
from tests.support.bounds import BOUND_SECONDS

KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from ai_session.backends.pty.plugin import PtyBackend
from ai_session.backends.tmux.server import TmuxServer
from ai_session.models import TerminalSpec
from ai_session.system.temporary_directories import trial_directory

async def main(kind):
    with trial_directory(f"trial-{kind}") as directory:
        if kind == "tmux":
            server = TmuxServer(directory)
            await server.client(start=True)
            keeper = server.pid
        else:
            backend = PtyBackend(directory)
            terminal = await backend.open(TerminalSpec("probe", str(directory), ("/bin/cat",), {}, "/", 24, 80))
            keeper = terminal.pid
        print(keeper, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main(*sys.argv[1:]))
"""

NOBODY = 65534


def ours(where: Path) -> list[str]:
    return [name for name in os.listdir(where) if name.startswith(PREFIX)]


@pytest.fixture(autouse=True)
def temporary(home: Path) -> Iterator[Path]:
    """The directory for temporary files, of this test alone."""
    before = tempfile.tempdir
    tempfile.tempdir = str(home)
    yield home
    tempfile.tempdir = before


def test_what_a_killed_process_left_is_removed_by_the_next_and_what_is_in_use_stays(temporary: Path) -> None:
    with trial_directory("a") as used, trial_directory("a") as also:
        assert sorted([used.name, also.name]) == sorted(ours(temporary))
        left = temporary / f"{PREFIX}a-left"
        left.mkdir()
        (left / "file").touch()
        (temporary / "elsewhere").mkdir()
        (temporary / f"{PREFIX}a-link").symlink_to(temporary / "elsewhere")
        (temporary / f"{PREFIX}b-other").mkdir()
        assert list(abandoned("a")) == [left]
        assert used.is_dir()
        assert also.is_dir()
    assert sorted(ours(temporary)) == [f"{PREFIX}a-link", f"{PREFIX}b-other"]
    assert (temporary / "elsewhere").is_dir()


def test_where_the_files_of_others_cannot_be_listed_it_is_made_all_the_same() -> None:
    user, before = os.geteuid(), tempfile.tempdir
    hidden = Path(tempfile.mkdtemp(dir="/tmp"))
    hidden.chmod(0o1333)
    tempfile.tempdir = str(hidden)
    try:
        if user == 0:
            os.seteuid(NOBODY)
        with pytest.raises(PermissionError):
            os.listdir(hidden)
        with trial_directory("a") as made:
            assert made.is_dir()
        assert not made.exists()
    finally:
        os.seteuid(user)
        tempfile.tempdir = before
        hidden.rmdir()


def test_who_tries_boxes_removes_what_was_left(temporary: Path) -> None:
    (temporary / f"{PREFIX}trial-box-left" / "workspace").mkdir(parents=True)
    probe()
    assert ours(temporary) == []


@pytest.mark.anyio
@pytest.mark.either("kind")
@pytest.mark.parametrize("kind", ["pty", "tmux"])
async def test_the_keeper_of_a_trial_that_was_killed_is_ended(kind: str, temporary: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(temporary)}
    words = [sys.executable, "-c", KILLED, kind]
    done = await asyncio.to_thread(
        subprocess.run, words, env=environment, capture_output=True, text=True, timeout=BOUND_SECONDS
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(ours(temporary)) == 1
    keeper, ended, loop = os.pidfd_open(int(done.stdout)), asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(keeper, ended.set)
    try:
        assert (await plugins.load("ai_session.backends", kind)(temporary).probe()).usable
        assert ours(temporary) == []
        async with asyncio.timeout(BOUND_SECONDS):
            await ended.wait()
    finally:
        loop.remove_reader(keeper)
        os.close(keeper)
