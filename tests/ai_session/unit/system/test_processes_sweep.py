"""Every process of a session is found and ended, wherever it fled; nobody else is."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ai_session.system import membership, processes
from tests.support.bounds import BOUND_SECONDS, pause

REPOSITORY = Path(__file__).parents[4]


@pytest.fixture
def cookie() -> Iterator[str]:
    made = secrets.token_hex(16)
    yield made
    membership.sweep(made)


RUNAWAYS = """
sleep 9101 &
nohup sleep 9102 >/dev/null 2>&1 &
setsid sleep 9103 &
(sleep 9104 &)
(setsid sh -c 'sleep 9105 & exec sleep 9106' >/dev/null 2>&1 &)
env -i sleep 9107 &
setsid sh -c 'env -i sleep 9108 & exec sleep 9109' &
disown -a
echo all
read -r
"""


def test_every_process_of_a_session_is_found_and_swept(cookie: str, tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "9200"], env={**os.environ, "AI_SESSION_ID": cookie[:-1]})
    shell = start(["bash", "-c", RUNAWAYS], cookie)
    assert shell.stdout is not None
    assert shell.stdout.readline() == b"all\n"
    expected = {f"sleep {number}" for number in range(9101, 9110)}
    until(lambda: expected <= {_command(pid) for pid in membership.members(cookie)})
    assert shell.pid in membership.members(cookie)
    assert os.getpid() not in membership.members(cookie)
    assert membership.sweep(cookie) >= len(expected) + 1
    assert membership.members(cookie) == []
    assert not expected & {_command(int(name)) for name in os.listdir("/proc") if name.isdigit()}
    assert shell.wait(BOUND_SECONDS) == -signal.SIGKILL
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    shell.communicate()


# Each process starts its successor and ends: what is alive changes all the time, but does not grow.
FORKING = "go() { echo x; go & }; for i in 1 2 3 4; do go & done; wait"


def test_a_session_that_forks_as_fast_as_it_can_is_swept(cookie: str) -> None:
    shell = start(["bash", "-c", FORKING], cookie)
    assert shell.stdout is not None
    assert shell.stdout.readline() == b"x\n"
    killed = 0

    def over() -> bool:
        nonlocal killed
        killed += membership.sweep(cookie)  # which gives up where it gets too little of the processor to meet anybody
        return killed > 0 and membership.members(cookie) == []

    until(over)
    shell.communicate()


SWEEPER = """
import os, subprocess, sys
from ai_session.system import membership, processes
for _ in range(int(sys.argv[1])):
    child = subprocess.Popen(["sleep", "9300"], env={"PATH": os.environ["PATH"]})
    other = subprocess.Popen(["sleep", "9301"])
    print(membership.sweep(os.environ["AI_SESSION_ID"]), other.wait(), child.poll(), flush=True)
    child.kill()
    child.wait()
"""


@pytest.mark.parametrize("times", [5, pytest.param(100, marks=pytest.mark.torture)])
def test_a_caller_inside_the_session_is_spared_and_who_has_just_started_is_not(cookie: str, times: int) -> None:
    """A program that is being loaded has no environment yet."""
    done = start([sys.executable, "-c", SWEEPER, str(times)], cookie)
    out, _ = done.communicate(timeout=BOUND_SECONDS)
    assert (done.returncode, out.splitlines()) == (0, [b"1 -9 None"] * times)


def test_nothing_to_sweep() -> None:
    assert membership.members(secrets.token_hex(16)) == []
    assert membership.sweep(secrets.token_hex(16)) == 0


def start(argv: list[str], cookie: str) -> subprocess.Popen[bytes]:
    env = {**os.environ, "AI_SESSION_ID": cookie}
    return subprocess.Popen(
        argv, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY, start_new_session=True
    )


def until(wanted: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BOUND_SECONDS
    while not wanted():
        assert time.monotonic() < deadline
        pause()


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().strip("\0").replace("\0", " ")
    except OSError:
        return ""


def test_members_leave_in_their_own_way_when_asked_and_the_deaf_are_left_to_the_sweep(home: Path) -> None:
    polite = f"trap 'echo bye >{home}/bye; exit 0' TERM; echo >{home}/up1; while :; do sleep 1000 & wait; done"
    deaf = f"trap '' TERM; echo >{home}/up2; exec sleep 1001"
    env = {**os.environ, "AI_SESSION_ID": "end-cookie"}
    started = [subprocess.Popen(["sh", "-c", script], env=env, start_new_session=True) for script in (polite, deaf)]
    deadline = time.monotonic() + BOUND_SECONDS
    while not (home / "up1").exists() or not (home / "up2").exists():
        assert time.monotonic() < deadline
        pause()
    assert started[1].pid in membership.ask_to_leave("end-cookie")
    assert started[0].wait(BOUND_SECONDS) == 0
    assert (home / "bye").read_text() == "bye\n"
    assert membership.sweep("end-cookie") >= 1
    assert membership.members("end-cookie") == []
    assert started[1].wait(BOUND_SECONDS) == -9


SHELLS_WITH_JOBS = """
trap 'exit 0' TERM
for number in {1..150}; do (set -m; sleep 9301 & wait) & done
echo all
wait -n
: > "$1"
"""


def test_no_shell_goes_on_because_another_one_that_it_waits_for_was_asked_first(cookie: str, home: Path) -> None:
    after = home / "after"
    shell = start(["bash", "-c", SHELLS_WITH_JOBS, "bash", str(after)], cookie)
    assert shell.stdout is not None
    assert shell.stdout.readline() == b"all\n"
    until(lambda: [_command(pid) for pid in membership.members(cookie)].count("sleep 9301") == 150)
    processes.ask_to_leave(membership.members(cookie))
    shell.communicate(timeout=BOUND_SECONDS)
    assert shell.returncode == 0
    assert not after.exists()
    until(lambda: not membership.members(cookie))


@pytest.mark.torture  # the chain takes 20 s to begin
def test_a_chain_of_more_processes_than_calls_may_be_nested_leaves_when_asked(cookie: str) -> None:
    chain = "import os, signal\nfor _ in range(1100):\n    if os.fork():\n        signal.pause()\nprint(flush=True)"
    first = start([sys.executable, "-ISc", f"{chain}\nsignal.pause()"], cookie)
    assert first.stdout is not None
    assert first.stdout.readline() == b"\n"
    assert len(membership.ask_to_leave(cookie)) == 1101
    first.communicate(timeout=BOUND_SECONDS)
    assert first.returncode == -15
    until(lambda: not membership.members(cookie))


def test_a_process_that_has_ended_is_read_once_and_one_that_lives_may_become_a_member(cookie: str) -> None:
    ended = set[membership.Identity]()
    zombie = subprocess.Popen(["true"])
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    later = subprocess.Popen(
        ["sh", "-c", f"read line; exec env {membership.COOKIE_VARIABLE}={cookie} sleep 9300"], stdin=subprocess.PIPE
    )
    assert membership.Membership((cookie,), ended=ended).look() == {cookie: set()}
    assert zombie.pid in {pid for pid, _ in ended}
    assert later.pid not in {pid for pid, _ in ended}
    assert later.stdin is not None
    later.stdin.close()
    until(lambda: membership.members(cookie) == [later.pid])
    assert membership.Membership((cookie,), ended=ended).sweep()[cookie] == 1
    assert later.wait(BOUND_SECONDS) == -signal.SIGKILL
    zombie.wait()
    membership.Membership((cookie,), ended=ended).look()
    assert zombie.pid not in {pid for pid, _ in ended}
