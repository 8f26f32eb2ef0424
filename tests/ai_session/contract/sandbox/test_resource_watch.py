"""Boxes that take more than they may: by looking, in real boxes of both kinds; by cgroup, where there is one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ai_session.models import SandboxProfile
from ai_session.sandbox import landlock, seccomp
from ai_session.sandbox.limits import cgroup
from ai_session.sandbox.limits import processes as box_processes
from ai_session.sandbox.limits.watch import ResourceWatch
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio
MEGABYTE = 1 << 20
PYTHON = f"{sys.executable} -I -S"
HOLD = "import sys, signal; held = bytearray(int(sys.argv[1]) << 20); print('held', flush=True); signal.pause()"
SHARE = (
    "import sys, os, signal; held = bytearray(int(sys.argv[1]) << 20)\n"
    "for _ in range(7):\n    if os.fork() == 0: break\n"
    "print('held', flush=True); signal.pause()"
)

FILES = (
    "import sys, os, mmap, signal; size = int(sys.argv[1]) << 20; file = os.memfd_create('x')\n"
    "for _ in range(size >> 20): os.write(file, bytes(1 << 20))\n"
    "held = mmap.mmap(file, size) if 'map' in sys.argv else b''\n"
    "sum(held[at] for at in range(0, len(held), 4096)); print('held', flush=True); signal.pause()"
)
LEFT = (
    "import sys, ctypes, threading, signal, os; held = bytearray(int(sys.argv[1]) << 20)\n"
    "file = os.memfd_create('x'); [os.write(file, bytes(1 << 20)) for _ in range(int(sys.argv[2]))]\n"
    "def stay():\n"
    "    while open('/proc/self/stat').read().rpartition(')')[2].split()[0] != 'Z': pass\n"
    "    print('held', flush=True); signal.pause()\n"
    "threading.Thread(target=stay).start(); ctypes.CDLL(None).pthread_exit(None)"
)
"""Says so once its first thread has ended."""


@dataclass
class Limits:
    memory_bytes: int = 100 * MEGABYTE
    processes: int = 40


@pytest.fixture(params=["bwrap", pytest.param("landlock", marks=pytest.mark.torture)])
def prefix(request: pytest.FixtureRequest, home: Path) -> tuple[str, ...]:
    """The words of a box; for what is the same in both real kinds."""
    return words(request.param, home)


@pytest.fixture(params=["bwrap", "landlock"])
def either(request: pytest.FixtureRequest, home: Path) -> tuple[str, ...]:
    """For what is to be had of both, as their processes hang together in other ways."""
    return words(request.param, home)


def words(kind: str, home: Path) -> tuple[str, ...]:
    """Without limits of their own that could get there first."""
    if kind == "bwrap":
        return ("bwrap", "--unshare-user", "--unshare-pid", "--dev-bind", "/", "/", "--proc", "/proc", "--")
    (home / "box").mkdir()
    profile = SandboxProfile("workspace", str(home), readable=(sys.prefix, sys.base_prefix), processes=1 << 14)
    filters = seccomp.build(network=False, unix_sockets=False, no_namespaces=True)
    return landlock.prefix(profile, home / "box", (), (), filters)


class Shell:
    """A boxed shell on pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.pid = process.pid

    def type(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line.encode() + b"\n")

    async def line(self) -> str:
        assert self.process.stdout
        async with asyncio.timeout(BOUND_SECONDS):
            return (await self.process.stdout.readline()).decode().strip()


@asynccontextmanager
async def shell(prefix: tuple[str, ...], home: Path) -> AsyncIterator[Shell]:
    (home / "hold.py").write_text(HOLD)
    (home / "share.py").write_text(SHARE)
    (home / "files.py").write_text(FILES)
    (home / "left.py").write_text(LEFT)
    process = await asyncio.create_subprocess_exec(
        *prefix,
        "/bin/bash",
        cwd=home,
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    started = Shell(process)
    started.type("echo ready")
    assert await started.line() == "ready"
    try:
        yield started
    finally:
        box_processes.kill_below(process.pid, set(box_processes.overseers(process.pid)))
        async with asyncio.timeout(BOUND_SECONDS):
            await process.communicate()


class LimitReports:
    """What on_limit was called with."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._more = asyncio.Event()

    def __call__(self, what: str) -> None:
        self.said.append(what)
        self._more.set()

    async def next(self) -> str:
        async with asyncio.timeout(BOUND_SECONDS):
            await self._more.wait()
        self._more.clear()
        return self.said[-1]


@asynccontextmanager
async def watching(
    root: int, limits: Limits, cgroups: Path | None = None
) -> AsyncIterator[tuple[ResourceWatch, LimitReports]]:
    watch, reported = ResourceWatch(cgroups), LimitReports()
    watch.add("box", root, limits, reported)
    try:
        yield watch, reported
    finally:
        watch.remove("box")
        watch.close()


def hold(megabytes: int, script: str = "hold.py") -> str:
    return f"{PYTHON} {script} {megabytes} &"


@pytest.mark.parametrize("either", ["bwrap", pytest.param("landlock", marks=pytest.mark.torture)], indirect=True)
async def test_the_biggest_goes_and_the_rest_stays(either: tuple[str, ...], home: Path) -> None:
    async with shell(either, home) as box, watching(box.pid, Limits()) as (_, reported):
        box.type(hold(30))
        assert await box.line() == "held"
        box.type(f"{hold(90)} wait %2; echo ended $?")
        assert (await reported.next()).startswith("memory: ")
        while (line := await box.line()) == "held":
            pass
        assert line == "ended 137"
        box.type("jobs -r | wc -l")
        assert await box.line() == "1"
        assert len(reported.said) == 1


@pytest.mark.parametrize("given", [pytest.param("150 0", marks=pytest.mark.torture), "20 100"])
async def test_memory_counts_of_which_the_first_thread_has_left(
    prefix: tuple[str, ...], home: Path, given: str
) -> None:
    async with shell(prefix, home) as box:
        box.type(f"{PYTHON} left.py {given} &")
        assert await box.line() == "held"
        async with watching(box.pid, Limits()) as (_, reported):
            assert (await reported.next()).startswith("memory: ")
            box.type("wait %1; echo ended $?")
            assert await box.line() == "ended 137"


async def test_what_is_shared_counts_once(prefix: tuple[str, ...], home: Path) -> None:
    async with shell(prefix, home) as box, watching(box.pid, Limits()) as (watch, reported):
        box.type(hold(50, "share.py"))
        assert [await box.line() for _ in range(8)] == ["held"] * 8
        inside = box_processes.descendants(box.pid)
        assert sum(map(box_processes.resident_bytes, inside)) > 300 * MEGABYTE
        await looked(watch)
        assert reported.said == []


async def test_memory_in_files_that_are_not_mapped_counts(prefix: tuple[str, ...], home: Path) -> None:
    async with shell(prefix, home) as box, watching(box.pid, Limits()) as (_, reported):
        box.type(f"{PYTHON} files.py 150 >/dev/null; echo ended $?")
        assert (await reported.next()).startswith("memory: ")
        assert await box.line() == "ended 137"


async def test_a_file_that_is_mapped_counts_once(prefix: tuple[str, ...], home: Path) -> None:
    async with shell(prefix, home) as box, watching(box.pid, Limits()) as (watch, reported):
        box.type(f"{PYTHON} files.py 75 map &")
        assert await box.line() == "held"
        await looked(watch)
        assert reported.said == []
        inside = box_processes.descendants(box.pid)
        files = await asyncio.to_thread(box_processes.nameless_bytes, inside)
        assert sum(files.values()) == 75 * MEGABYTE


async def looked(watch: ResourceWatch) -> None:
    """Returns when every box was looked at once more: one that is over its bounds whatever it does says so."""
    reported, nobody = LimitReports(), 1 << 30
    watch.add("witness", nobody, Limits(processes=-1), reported)
    await reported.next()
    watch.remove("witness")


@pytest.mark.parametrize("either", [pytest.param("bwrap", marks=pytest.mark.torture), "landlock"], indirect=True)
async def test_more_processes_than_allowed(either: tuple[str, ...], home: Path) -> None:
    async with shell(either, home) as box, watching(box.pid, Limits()) as (_, reported):
        box.type("for i in {1..60}; do sleep 1000 & done; echo started")
        assert await box.line() == "started"
        assert "all but the shell" in await reported.next()
        box.type("wait; echo left $(jobs -r | wc -l)")
        assert await box.line() == "left 0"


BOMB = 'b() { [ "$1" -gt 0 ] || exec sleep 1000; b $(($1 - 1)) & b $(($1 - 1)) & wait; }; b 9 2>/dev/null & disown'
"""A thousand processes at most, should nothing bound it."""


@pytest.mark.parametrize("either", ["bwrap", pytest.param("landlock", marks=pytest.mark.torture)], indirect=True)
async def test_a_fork_bomb(either: tuple[str, ...], home: Path) -> None:
    """Of root as well, whom no limit of the kernel's binds but the numbers of a namespace."""
    async with shell(either, home) as box, watching(box.pid, Limits()) as (watch, reported):
        await looked(watch)
        box.type("read -r most < /proc/sys/kernel/pid_max; echo $most")
        most = int(await box.line())
        box.type(f"{BOMB}; echo lit")
        assert await box.line() == "lit"
        while "all but the shell" not in await reported.next():
            pass
        box.type("while sleep 0 2>/dev/null; [ $? != 0 ]; do :; done; echo $(ls /proc | grep -c sleep)")
        assert await box.line() == "0"
        kernel = [int(number) for number in os.uname().release.split(".")[:2]]
        namespace = len(box_processes.overseers(box.pid)) == 2
        assert (most == 40 + 301) == (namespace and os.geteuid() == 0 and kernel >= [6, 14])


@pytest.mark.parametrize("either", ["bwrap", pytest.param("landlock", marks=pytest.mark.torture)], indirect=True)
async def test_a_shell_that_is_itself_too_big_goes(either: tuple[str, ...], home: Path) -> None:
    async with shell(either, home) as box, watching(box.pid, Limits()) as (_, reported):
        box.type(f"exec {PYTHON} hold.py 150")
        assert await box.line() == "held"
        assert "memory" in await reported.next()
        async with asyncio.timeout(BOUND_SECONDS):
            assert await box.process.wait() in (137, -9)


async def test_a_box_that_keeps_growing_keeps_only_its_shell(prefix: tuple[str, ...], home: Path) -> None:
    async with shell(prefix, home) as box, watching(box.pid, Limits(40 * MEGABYTE)) as (_, reported):
        again = f"while :; do {PYTHON} hold.py 30; done >/dev/null & " * 4
        box.type(f"{again} wait; echo all gone")
        assert await box.line() == "all gone"
        while "all but the shell" not in await reported.next():
            pass


@pytest.fixture
def delegated(home: Path) -> Path:
    """A tree like a delegated part of cgroup v2, as far as files go: nobody bounds anything here."""
    box = home / "cgroup/ours/ai-session-box"
    box.mkdir(parents=True)
    for folder in (home / "cgroup", home / "cgroup/ours"):
        (folder / "cgroup.controllers").write_text("cpu memory pids\n")
        (folder / "cgroup.procs").touch()
        (folder / "cgroup.subtree_control").write_text("memory pids\n")
    (box / "cgroup.kill").touch()
    (box / "memory.events").write_text("low 0\noom 0\noom_kill 0\n")
    (box / "pids.events").write_text("max 0\n")
    return home / "cgroup"


@pytest.mark.parametrize(
    ("membership", "controllers", "found"),
    [
        *(("0::/ours\n", "memory pids", "ours"), ("1:cpu:/x\n0::/ours/deeper\n", "cpu memory pids", "ours")),
        *(("0::/ours\n", "pids", ""), ("3:memory:/\n", "memory pids", None), ("0::/\n", "memory pids", "")),
    ],
)
async def test_which_cgroup_is_delegated(delegated: Path, membership: str, controllers: str, found: str | None) -> None:
    (delegated / "ours/cgroup.subtree_control").write_text(controllers)
    (delegated / "membership").write_text(membership)
    got = cgroup.delegated((delegated / "absent", delegated), delegated / "membership")
    assert got == (None if found is None else delegated / found)


@pytest.mark.parametrize("either", ["bwrap", pytest.param("landlock", marks=pytest.mark.torture)], indirect=True)
async def test_a_box_in_a_cgroup(either: tuple[str, ...], home: Path, delegated: Path) -> None:
    folder = delegated / "ours/ai-session-box"
    async with shell(either, home) as box, watching(box.pid, Limits(), delegated / "ours") as (watch, reported):
        assert (folder / "memory.max").read_text() == str(100 * MEGABYTE)
        assert (folder / "pids.max").read_text() == "40"
        assert int((folder / "cgroup.procs").read_text()) in box_processes.descendants(box.pid)
        (folder / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
        assert await reported.next() == f"memory: all of {100 * MEGABYTE} in use; the kernel ended its biggest process"
        (folder / "pids.events").write_text("max 3\n")
        assert await reported.next() == "processes: all of 40 in use; no more could be started"
        watch.remove("box")
        assert (folder / "cgroup.kill").read_text() == "1"
        for file in folder.iterdir():
            file.unlink()
        watch.remove("box")
        assert not folder.exists()


async def test_a_cgroup_that_cannot_be_had_leaves_a_box_watched(prefix: tuple[str, ...], home: Path) -> None:
    async with shell(prefix, home) as box, watching(box.pid, Limits(), home / "absent") as (_, reported):
        box.type(hold(150))
        assert "ended the 1 biggest" in await reported.next()


async def test_the_cgroups_of_this_machine(prefix: tuple[str, ...], home: Path) -> None:
    """Where a part is delegated, the kernel bounds the box; elsewhere the watch does."""
    here = cgroup.delegated()
    async with shell(prefix, home) as box, watching(box.pid, Limits(), here) as (_, reported):
        box.type(hold(150))
        assert ("the kernel" if here else "ended the 1 biggest") in await reported.next()
