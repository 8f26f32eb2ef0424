"""What a shell leaves running ends with its session: a box with its first process, all else wherever it went."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from agentwire import plugins
from ai_session.models import SandboxLevel
from ai_session.sandbox.limits import processes as box_processes
from ai_session.sessions.leftovers import Leftovers, Looks, Rounds
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.spec import SessionDefaults
from ai_session.system import membership
from tests.ai_session.support.boxed_managers import MANAGERS
from tests.ai_session.support.sessions import request, runtime_directory, spin, workspace
from tests.ai_session.support.shells import command_line
from tests.support.bounds import BOUND_SECONDS
from tests.support.processor_time import computing_seconds, once_within
from tests.support.stopping import stop

pytestmark = pytest.mark.anyio

BOX = ("/usr/bin/bwrap", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--unshare-user", "--unshare-pid")
DEAF = """
trap '' TERM HUP
setsid sh -c 'trap "" TERM HUP; sleep 9401 & echo up; exec sleep 9402' &
while :; do read x; done
"""
POLITE = "trap 'echo bye; exit 0' TERM; sh -c 'echo up; exec sleep 9403' & wait"
"""A copy of the shell would miss a signal that comes before it has given up the trap; a new one is up without it."""


class NoLooks(Looks):
    """Nobody may look at the processes of the whole machine here."""

    def __init__(self) -> None:
        super().__init__()
        self.ask_to_leave = Rounds[list[int]](refused)
        self.sweep = Rounds[int](refused)


def refused(_: Sequence[str]) -> Any:
    raise AssertionError("all processes of the machine were looked at")


Boxed = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def boxed() -> Iterator[Boxed]:
    """Starts a script in a box, and returns when it says that it is up."""
    started: list[tuple[subprocess.Popen[bytes], int]] = []

    def start(script: str, cookie: str = "") -> subprocess.Popen[bytes]:
        env = {**os.environ, "AI_SESSION_ID": cookie}
        box = subprocess.Popen((*BOX, "sh", "-c", script), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert box.stdout is not None
        assert box.stdout.readline() == b"up\n"
        started.append((box, os.pidfd_open(box_processes.children(box.pid)[0])))
        return box

    yield start
    for box, first in started:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(first, signal.SIGKILL)
        os.close(first)
        box.kill()
        box.communicate()


def ended(pidfds: Sequence[int]) -> bool:
    return all(select.select((fd,), (), (), BOUND_SECONDS)[0] for fd in pidfds)


@pytest.mark.parametrize("outer_killed", [False, True])
async def test_a_box_ends_with_its_first_process_and_nobody_looks_at_others(boxed: Boxed, outer_killed: bool) -> None:
    box = boxed(DEAF)
    leftovers = Leftovers("cookie", NoLooks())
    leftovers.hold(box.pid, SandboxLevel.BWRAP)
    inside = [os.pidfd_open(pid) for pid in box_processes.descendants(box.pid)]
    assert len(inside) >= 4
    if outer_killed:
        box.kill()
    await leftovers.end(0.01)
    assert ended(inside)
    for fd in inside:
        os.close(fd)
    await leftovers.end(0.01)


async def test_a_box_may_leave_in_its_own_way(boxed: Boxed) -> None:
    box = boxed(POLITE)
    leftovers = Leftovers("cookie", NoLooks())
    leftovers.hold(box.pid, SandboxLevel.BWRAP)
    await leftovers.end(BOUND_SECONDS)
    assert box.communicate()[0] == b"bye\n"


async def test_a_stopped_box_ends_with_what_made_it(boxed: Boxed) -> None:
    box = boxed(DEAF)
    leftovers = Leftovers("cookie", NoLooks())
    leftovers.hold(box.pid, SandboxLevel.BWRAP)
    stop(box.pid)
    await leftovers.end(0.01)
    assert await asyncio.to_thread(box.wait, BOUND_SECONDS) == -9


async def test_a_box_that_was_never_held_ends_by_its_cookie(boxed: Boxed) -> None:
    """An earlier daemon's, whose terminal ended before this one came."""
    box = boxed(DEAF, "never-held")
    inside = [os.pidfd_open(pid) for pid in box_processes.descendants(box.pid)]
    await Leftovers("never-held", Looks()).end(0)
    assert ended(inside)
    for fd in inside:
        os.close(fd)


@pytest.mark.parametrize("level", [SandboxLevel.NONE, SandboxLevel.LANDLOCK])
async def test_a_namespace_that_a_session_made_itself_is_not_its_box(boxed: Boxed, level: SandboxLevel) -> None:
    box = boxed(DEAF)
    leftovers = Leftovers("another", Looks())
    leftovers.hold(box.pid, level)
    await leftovers.end(0)
    assert box.poll() is None


async def test_those_who_ask_meanwhile_share_the_next_round() -> None:
    begun, go_on, rounds = threading.Event(), threading.Event(), list[list[str]]()

    def work(names: Sequence[str]) -> dict[str, str]:
        rounds.append(sorted(names))
        begun.set()
        assert go_on.wait(BOUND_SECONDS)
        return {name: name.upper() for name in names}

    ask = Rounds(work)
    first = asyncio.ensure_future(ask("a"))
    assert await asyncio.to_thread(begun.wait, BOUND_SECONDS)
    others = [asyncio.ensure_future(ask(name)) for name in ("b", "c", "a", "b")]
    await asyncio.wait(others, timeout=0)
    go_on.set()
    assert [await first, *[await other for other in others]] == ["A", "B", "C", "A", "B"]
    assert rounds == [["a"], ["a", "b", "c"]]


async def test_a_round_that_fails_tells_all_of_it_and_the_next_begins() -> None:
    ask = Rounds[int](refused)
    for _ in range(2):
        with pytest.raises(AssertionError, match="looked at"):
            await ask("a")


class Counted(membership.Membership):
    """Counts its looks."""

    looks = 0

    def look(self, meet: Callable[[int, str], object] | None = None) -> dict[str, set[int]]:
        self.looks += 1
        return super().look(meet)


@pytest.fixture
def births() -> Iterator[None]:
    """Somewhere else on the machine."""
    busy = subprocess.Popen(["bash", "-c", "while :; do /bin/true; done"])
    yield
    busy.kill()
    busy.wait()


@pytest.mark.usefixtures("births")
def test_births_elsewhere_do_not_make_a_sweep_look_again() -> None:
    def looks() -> float:
        child = subprocess.Popen(["sleep", "9404"], env={"AI_SESSION_ID": "counted", "PATH": os.environ["PATH"]})
        membership = Counted(("counted",))
        assert membership.sweep() == {"counted": 1}
        assert child.wait(BOUND_SECONDS) == -9
        return membership.looks

    once_within(4, looks)


@pytest.fixture
def crowd() -> Iterator[None]:
    """As many processes as a machine in use has."""
    those = subprocess.Popen(
        ["python3", "-c", CROWD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PATH": os.environ["PATH"]}
    )
    assert those.stdout is not None
    assert those.stdout.readline() == b"up\n"
    yield
    those.communicate()


CROWD = """
import os
for _ in range(300):
    if os.fork() == 0:
        os.close(1)
        os.read(0, 1)
        os._exit(0)
print("up", flush=True)
os.close(1)
os.read(0, 1)
"""


@pytest.mark.usefixtures("crowd")
def test_a_second_look_reads_no_environment_again() -> None:
    def part() -> float:
        found = membership.Membership(("nobody",))
        first = computing_seconds(found.look)
        return computing_seconds(found.look) / first

    once_within(0.5, part)


def sleeper(cookie: str) -> subprocess.Popen[bytes]:
    """A process of the session with that cookie."""
    return subprocess.Popen(["sleep", "9405"], env={"AI_SESSION_ID": cookie, "PATH": os.environ["PATH"]})


@pytest.mark.usefixtures("crowd")
async def test_who_was_there_before_a_session_began_is_not_asked_for_it() -> None:
    """Neither by its own end nor by one that ends with it; who came later is, whoever else was begun meanwhile."""
    looks = Looks()
    await looks.begin("first")
    of_the_first = sleeper("first")
    await looks.begin("second")
    of_the_second = sleeper("second")
    assert await asyncio.gather(looks.sweep("first"), looks.sweep("second")) == [1, 1]
    assert [one.wait(BOUND_SECONDS) for one in (of_the_first, of_the_second)] == [-9, -9]
    there = frozenset(membership.all_there())

    def part() -> float:
        whole = computing_seconds(membership.Membership(("first",)).look)
        return computing_seconds(membership.Membership(("first",), there).look) / whole

    once_within(0.5, part)


async def test_what_a_session_left_while_another_daemon_ran_is_found() -> None:
    left = sleeper("left")
    looks = Looks()
    await looks.begin("another")
    assert await asyncio.gather(looks.sweep("left"), looks.sweep("another")) == [1, 0]
    assert left.wait(BOUND_SECONDS) == -9


GOES_ON = {
    "a list": "sleep 9501; touch {after}; sleep 9502",
    "a loop": "while true; do sleep 9501; touch {after}; done",
    "without jobs": "set +m; sleep 9501; touch {after}",
    "a subshell": "(sleep 9501; touch {after})",
    "a script": "sh -c 'sleep 9501; touch {after}'",
    "another shell with jobs": "bash --norc -ic 'sleep 9501; touch {after}'",
    "the background": "sh -c 'sleep 9501; touch {after}' & wait",
    "a shell that ignores its end": "trap '' HUP; sleep 9501; touch {after}",
}


@pytest.mark.corners
@pytest.mark.parametrize("level", [SandboxLevel.NONE, *MANAGERS])
@pytest.mark.parametrize("backend", plugins.names("ai_session.backends"))
@pytest.mark.parametrize("grace", [0.5, 0])
@pytest.mark.parametrize("shell", ["bash", "zsh", "dash", "mksh"])
@pytest.mark.parametrize("kind", GOES_ON)
async def test_nothing_goes_on_after_a_program_that_ended_with_its_session(
    backend: str, level: SandboxLevel, grace: float, shell: str, kind: str, home: Path
) -> None:
    manager = MANAGERS.get(level, SessionManager)(runtime_directory(home), SessionDefaults(backend=backend))
    try:
        session = await manager.create(request(shell=shell))
        after = workspace(home) / "after"
        await session.begin(GOES_ON[kind].format(after=after), command_id="cmd")
        await asyncio.to_thread(
            spin, lambda: any(_runs(pid, "9501") for pid in box_processes.descendants(session.shell_pid))
        )
        await session.close(grace)
        assert not after.exists()
    finally:
        await manager.stop()


def _runs(pid: int, argument: str) -> bool:
    return argument.encode() in command_line(pid).split(b"\0")[1:2]
