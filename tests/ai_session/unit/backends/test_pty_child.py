"""Children of the holder: how they start, how they fail to, and how the end of one that is not its child is learned."""

from __future__ import annotations

import os
import platform
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ai_session.backends.pty import child
from tests.ai_session.support.holder_client import Client, Keeper, read_until
from tests.support.process_ends import wait_ended
from tests.support.processor_time import once_within

SCRIPTS = [("exit 0", (0, None)), ("exit 7", (7, None)), ("kill -KILL $$", (None, 9))]
PIDFD_TELLS = tuple(int(part) for part in platform.release().split(".")[:2]) >= (6, 15)


@pytest.fixture
def keeper(home: Path) -> Iterator[Keeper]:
    made = Keeper(home / "run")
    made.runtime.mkdir(mode=0o700)
    made.start()
    yield made
    made.stop()


def descriptors(owner: Client) -> set[int]:
    """Of the holder, once it has noticed who left."""
    owner.ask("version")
    pid = owner.ask("version")["pid"]
    return {int(name) for name in os.listdir(f"/proc/{pid}/fd")}


def count_descriptors(owner: Client) -> int:
    return len(descriptors(owner))


def leave_descriptors(owner: Client, spare: int) -> tuple[int, int]:
    """Lets the holder open ``spare`` more descriptors; its limits before."""
    taken, limit = descriptors(owner), 0
    while limit in taken or spare:
        spare -= limit not in taken
        limit += 1
    pid = owner.ask("version")["pid"]
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    return before


def test_failed_starts_leak_nothing(keeper: Keeper) -> None:
    (keeper.runtime / "file").touch()
    owner = keeper.own()
    before = count_descriptors(owner)
    for _ in range(2):
        assert owner.spawn("a", "true", cwd="/absent")["error"]["kind"] == "directory"
        assert owner.spawn("a", "true", argv=["/absent"])["error"]["kind"] == "exec"
        assert owner.spawn("a", "true", argv=[str(keeper.runtime / "file")])["error"]["kind"] == "exec"
        assert owner.spawn("a", "true", env={"X": "x" * (1 << 22)})["error"]["kind"] == "exec"
        for name, value in (("X", "nul\0"), ("nul\0", "x"), ("", "x"), ("a=b", "x"), ("X", "\ud800")):
            assert owner.spawn("a", "true", env={name: value})["error"]["kind"] == "exec"
        assert owner.spawn("a", "true", argv=["/bin/true", 7])["error"]["kind"] == "internal"
    assert count_descriptors(owner) == before
    assert owner.spawn("a", "true")["pid"]


def test_a_failed_start_does_not_pause_the_holder(keeper: Keeper) -> None:
    """ptyprocess would sleep 0.1 s or more for each."""
    owner = keeper.own()

    def attempt() -> float:
        begun = time.monotonic()
        for _ in range(20):
            owner.spawn("a", "true", argv=["/absent"])
        return time.monotonic() - begun

    once_within(1.9, attempt)


@pytest.mark.parametrize("spare", [0, 1, 4, 7])
def test_running_out_of_descriptors_hurts_nobody_else(keeper: Keeper, spare: int) -> None:
    owner = keeper.own()
    owner.spawn("first", "echo ready; read x; echo got $x")
    master = owner.fds[0]
    limits = leave_descriptors(owner, spare)
    assert owner.spawn("second", "true")["error"]["kind"] == "exhausted"
    os.write(master, b"word\n")
    read_until(master, b"got word")
    before = count_descriptors(owner)
    resource.prlimit(owner.ask("version")["pid"], resource.RLIMIT_NOFILE, limits)
    assert count_descriptors(owner) == before
    assert owner.spawn("second", "true")["pid"]


def test_callers_are_turned_away_when_there_is_no_descriptor(keeper: Keeper) -> None:
    owner = keeper.own()
    limits = leave_descriptors(owner, 0)
    for _ in range(3):
        with pytest.raises((EOFError, ConnectionResetError, BrokenPipeError)):
            keeper.connect().ask("version")
    pid = owner.ask("version")["pid"]
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    assert keeper.pid() == pid


def test_the_child_gets_default_signals_whatever_the_starter_ignored(home: Path) -> None:
    keeper = Keeper(home / "run")
    keeper.runtime.mkdir(mode=0o700)
    before = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    }
    try:
        keeper.start()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    owner = keeper.own()
    owner.spawn("a", "grep -E 'Sig(Ign|Blk)' /proc/self/status; echo end")
    seen = read_until(owner.fds[0], b"end").decode().split()
    keeper.stop()
    assert seen[::2] == ["SigBlk:", "SigIgn:", "end"]
    # The C library keeps two signals to itself, which nobody can set and which may come ignored from anywhere.
    usable = sum(1 << (number - 1) for number in signal.valid_signals())
    assert [int(mask, 16) & usable for mask in seen[1::2]] == [0, 0]


def adopted_elsewhere(keeper: Keeper, script: str) -> tuple[Client, int]:
    """A terminal handed to a second holder after the first was killed; its new owner and the child's pid."""
    owner = keeper.own()
    facts = owner.spawn("a", f"echo ready; read x; {script}")
    fds = list(owner.fds)
    read_until(fds[0], b"ready")
    pid = keeper.pid()
    os.kill(pid, signal.SIGKILL)
    wait_ended(pid)
    keeper.start()
    heir = keeper.own()
    fields = {name: facts[name] for name in ("pid", "tty", "directory", "exit")}
    heir.ask("adopt", fds, id="a", **fields)
    os.write(fds[0], b"\n")
    return heir, facts["pid"]


@pytest.mark.parametrize(("script", "status"), SCRIPTS)
def test_the_end_of_an_adopted_child_is_reported(
    keeper: Keeper, script: str, status: tuple[int | None, int | None]
) -> None:
    heir, pid = adopted_elsewhere(keeper, script)
    event = heir.event()
    assert (event["event"], event["id"]) == ("exit", "a")
    reported = (event["code"], event["signal"])
    assert reported == status if PIDFD_TELLS else reported in (status, (None, None))
    wait_ended(pid)


def test_an_adopted_child_that_is_already_gone(keeper: Keeper) -> None:
    heir, pid = adopted_elsewhere(keeper, "exit 5")
    wait_ended(pid)
    reported = heir.ask("take", id="a")["exit"] or heir.event()
    assert reported["code"] in ((5,) if PIDFD_TELLS else (5, None))


def test_adopting_twice_changes_nothing(keeper: Keeper) -> None:
    heir, _ = adopted_elsewhere(keeper, "read x; exit 6")
    before = count_descriptors(heir)
    facts = heir.ask("take", id="a")
    fds = list(heir.fds)
    assert heir.ask("adopt", fds, **{name: facts[name] for name in ("id", "pid", "tty", "directory", "exit")}) == {
        "n": heir.count
    }
    assert count_descriptors(heir) == before
    os.write(fds[0], b"\n")
    assert heir.event()["code"] == 6


@pytest.mark.parametrize(("script", "status"), SCRIPTS)
def test_exit_code_of_a_process_somebody_else_reaped(script: str, status: tuple[int | None, int | None]) -> None:
    process = subprocess.Popen(["/bin/sh", "-c", script])
    pidfd = os.pidfd_open(process.pid)
    process.wait()
    code = child.foreign_exit_code(process.pid, pidfd)
    wanted = status[0] if status[1] is None else -status[1]
    assert code == wanted if PIDFD_TELLS else code is None
    os.close(pidfd)


@pytest.mark.parametrize(("script", "status"), SCRIPTS)
def test_exit_code_of_a_process_nobody_has_reaped(script: str, status: tuple[int | None, int | None]) -> None:
    process = subprocess.Popen(["/bin/sh", "-c", script])
    pidfd = os.pidfd_open(process.pid)
    wait_ended(process.pid)
    code = child.foreign_exit_code(process.pid, pidfd)
    assert code == (status[0] if status[1] is None else -status[1])
    process.wait()
    os.close(pidfd)


def test_exit_code_of_a_process_that_runs_or_cannot_be_asked() -> None:
    process = subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE)
    pidfd = os.pidfd_open(process.pid)
    assert child.foreign_exit_code(process.pid, pidfd) is None
    assert child.foreign_exit_code(process.pid, -1) is None
    process.communicate()
    os.close(pidfd)
