"""Files that grow and processes that end are told by the kernel, without polling."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import tty
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ai_session.backends.tmux.pty_master import borrow_tty
from ai_session.system.events import FileGrowth, Lifeline, Process, parent_of_orphans, process_ended
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio
MAXIMUM = Path("/proc/sys/fs/inotify/max_queued_events")


async def test_growth_of_each_file_is_reported_to_its_own_callback(home: Path) -> None:
    growth, reported = FileGrowth(), {name: asyncio.Event() for name in "abc"}
    for name, event in reported.items():
        (home / name).touch()
        growth.add(str(home / name), event.set)
    growth.remove(str(home / "c"))
    growth.remove(str(home / "never"))
    for name in "acb":
        with open(home / name, "ab") as file:
            file.write(b"x")
    async with asyncio.timeout(BOUND_SECONDS):
        await reported["a"].wait()
        await reported["b"].wait()
    assert not reported["c"].is_set()
    growth.close()


async def test_a_flood_of_changes_loses_nobody(home: Path) -> None:
    growth, quiet = FileGrowth(), asyncio.Event()
    loud = [home / name for name in "ab"]
    for path in (*loud, home / "quiet"):
        path.touch()
    for path in loud:
        growth.add(str(path), lambda: None)
    growth.add(str(home / "quiet"), quiet.set)
    files = [os.open(path, os.O_WRONLY) for path in loud]
    # Changes of one file in a row are one event, so they alternate until the kernel's queue is full.
    for number in range(int(MAXIMUM.read_text()) + 2):
        os.pwrite(files[number % 2], b"x", 0)
    (home / "quiet").write_text("x")
    async with asyncio.timeout(BOUND_SECONDS):
        await quiet.wait()
    for fd in files:
        os.close(fd)
    growth.close()


async def test_a_missing_file_cannot_be_watched(home: Path) -> None:
    growth = FileGrowth()
    with pytest.raises(FileNotFoundError):
        growth.add(str(home / "none"), lambda: None)
    growth.close()


@contextmanager
def no_more_watches() -> Generator[None]:
    """As where other programs of the user have taken them all: the kernel says the same to one without descriptors."""
    bounds = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, bounds[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, bounds)


async def test_growth_is_reported_without_free_watches(home: Path) -> None:
    path, grown, other = home / "log", asyncio.Event(), asyncio.Event()
    path.touch()
    (home / "other").touch()
    with no_more_watches():
        growth = FileGrowth()
    with pytest.raises(FileNotFoundError):
        growth.add(str(home / "none"), lambda: None)
    growth.add(str(path), grown.set)
    growth.add(str(home / "other"), other.set)
    growth.remove(str(home / "other"))
    for _ in range(2):
        grown.clear()
        with path.open("ab") as file:
            file.write(b"x")
        async with asyncio.timeout(BOUND_SECONDS):
            await grown.wait()
    (home / "other").write_text("x")
    path.write_text("")
    grown.clear()
    async with asyncio.timeout(BOUND_SECONDS):
        await grown.wait()
    path.unlink()
    grown.clear()
    async with asyncio.timeout(BOUND_SECONDS):
        await grown.wait()
    assert not other.is_set()
    growth.close()


async def test_the_end_of_a_process_is_reported_before_its_status_is_read() -> None:
    child = subprocess.Popen(["sleep", "1000"])  # noqa: ASYNC220 - asyncio would take the status itself
    process = Process(child.pid)
    assert not process.reaped()
    child.send_signal(signal.SIGKILL)
    async with asyncio.timeout(BOUND_SECONDS):
        await process.ended()
    assert not process.reaped()
    await asyncio.to_thread(child.wait)
    assert process.reaped()
    process.close()
    async with asyncio.timeout(BOUND_SECONDS):
        await process_ended(child.pid)


async def test_a_lifeline_is_held_as_long_as_somebody_lives(home: Path) -> None:
    os.mkfifo(path := home / "fifo")
    lifeline, ended = Lifeline(path), asyncio.Event()
    assert not lifeline.held()
    script = f"exec 3<>'{path}'; echo up >&3; exec cat"
    holder = await asyncio.create_subprocess_exec("sh", "-c", script, stdin=asyncio.subprocess.PIPE)
    async with asyncio.timeout(BOUND_SECONDS):
        assert await lifeline.word()
    assert lifeline.held()
    lifeline.watch(ended.set)
    later = Lifeline(path)
    assert later.held()
    assert not ended.is_set()
    await holder.communicate(b"")
    async with asyncio.timeout(BOUND_SECONDS):
        await ended.wait()
        await later.end()
    assert not lifeline.held()
    for one in (lifeline, later):
        one.close()


async def test_a_saver_appends_what_nobody_read(home: Path) -> None:
    for name in ("fifo", "own"):
        os.mkfifo(home / name)
    (home / "log").write_bytes(b"before ")
    master, slave = os.openpty()
    tty.setraw(slave)
    keeper = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE, pass_fds=[master])
    hold = borrow_tty(keeper.pid, os.ttyname(slave))
    assert hold is not None
    for child, wanted in ((os.getpid(), b"before "), (keeper.pid, b"before said")):
        holder, own = os.open(home / "fifo", os.O_RDWR), Lifeline(home / "own")
        saver = hold.leave_saver(child, str(home / "fifo"), str(home / "own"), str(home / "log"))
        assert own.held()
        if child == keeper.pid:
            keeper.kill()
            await keeper.wait()
            os.write(slave, b"said")
        os.close(holder)
        async with asyncio.timeout(BOUND_SECONDS):
            await own.end()
        assert (home / "log").read_bytes() == wanted
        await asyncio.to_thread(os.waitpid, saver, 0)
        own.close()
    hold.close()
    for end in (master, slave):
        os.close(end)


async def test_a_tty_is_borrowed_from_its_keeper() -> None:
    pairs = [os.openpty() for _ in range(3)]
    slave = pairs[1][1]
    tty.setraw(slave)
    masters = [master for master, _ in pairs]
    keeper = await asyncio.create_subprocess_exec("cat", stdin=asyncio.subprocess.PIPE, pass_fds=masters)
    hold = borrow_tty(keeper.pid, os.ttyname(slave))
    assert hold is not None
    assert borrow_tty(keeper.pid, "/dev/pts/987654") is None
    assert borrow_tty(keeper.pid, "/dev/tty1") is None
    keeper.kill()
    await keeper.wait()
    assert borrow_tty(keeper.pid, os.ttyname(slave)) is None
    for master in masters:
        os.close(master)
    os.write(slave, b"said")
    assert list(hold.tail()) == [b"said"]
    typed = bytearray(b"typed")
    assert hold.write(typed)
    assert os.read(slave, 100) == b"typed"
    much = bytearray(1 << 20)
    assert not hold.write(much)
    assert 0 < len(much) < 1 << 20
    hold.close()
    for _, end in pairs:
        os.close(end)


def test_a_daemon_started_under_us_is_ours() -> None:
    with parent_of_orphans():
        script = "(sleep 1000 >/dev/null & echo $!)"
        pid = int(subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, check=True).stdout)
    assert int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) == os.getpid()
    os.kill(pid, signal.SIGKILL)
    assert os.waitpid(pid, 0) == (pid, signal.SIGKILL)
    outside = int(subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, check=True).stdout)
    assert int(Path(f"/proc/{outside}/stat").read_text().rpartition(")")[2].split()[1]) != os.getpid()
    os.kill(outside, signal.SIGKILL)
