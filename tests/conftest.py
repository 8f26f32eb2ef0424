"""Every test owns its world: a home of its own, the six variables an MCP client passes on, nobody left behind."""

from __future__ import annotations

import gc
import os
import pwd
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from blockbuster import BlockBuster
from blockbuster.blockbuster import BlockBusterFunction
from hypothesis import HealthCheck, settings

from tests.support.forked_holders import HOLDERS
from tests.support.products import leave_the_rest_to_torture

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

GRACE_SECONDS = float(os.environ.get("PYTEST_GRACE_SECONDS", "60"))
"""How long a process that was told to end may take before it counts as left behind."""

WATCHED = ("time.sleep", "os.read", "os.write", "socket.", "ssl.", "sqlite3.", "threading.Lock", "builtins.input")
"""Calls that may wait for somebody else. Files of a few kilobytes may be read on the loop, so the rest is let be."""


BY_CHANCE = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
"""What depends on the load or on what is drawn, and says nothing of what is tested."""

settings.register_profile(
    "quick", max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=BY_CHANCE
)
settings.register_profile("thorough", max_examples=1000, deadline=None, suppress_health_check=BY_CHANCE)
settings.load_profile("quick")  # every run draws others; --hypothesis-profile thorough looks longer

gc.disable()  # until the first test: it looks again and again through what stays, for a third of the time of collection

STARTED: list[str] = []
"""What started processes, so that a test that started none need not look through all of /proc."""

EARLIER: set[int] = set()
"""Processes that ran before this test started its first: those that it cannot have left behind."""


def note_start(event: str, _: object) -> None:
    if event in ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"):
        if not EARLIER:
            EARLIER.update(pids())
        STARTED.append(event)


sys.addaudithook(note_start)


def give_default_signals_to_programs() -> None:
    """What tests start finds the signals of a shell in the foreground, also where this run is a script's background
    job, which ignores Ctrl-C, or one of nohup. A handler that does nothing ends at exec, as ignoring does not."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


give_default_signals_to_programs()
HOLDERS.use()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    leave_the_rest_to_torture(items)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def world() -> Iterator[Path]:
    """The folder under which all homes of this run lie; short, because socket paths end at 107 bytes."""
    root = Path(tempfile.mkdtemp(prefix="ais-", dir="/tmp"))
    gc.collect()
    gc.freeze()  # what was collected and imported belongs to no test: 150 ms of each look for what one has left
    gc.enable()
    with environment(client_environment(root)):
        yield root
    left = end_leftovers(root)
    shutil.rmtree(root, ignore_errors=True)
    assert not left, f"left behind by the run: {left}"


UNBOXED = '[sandbox]\nprofile = "trusted"\n\n[policy]\nmode = "trusted"\n'
"""What shells, terminals and wires do is tested without boxes and questions, which have tests of their own."""


NO_RUNS = "\n[console]\nruns = []\n"
"""A console of a test that is not about runs asks no program for them, which would load ccswarm."""


UNBOXED_VARIABLES = {"AI_SESSION_SANDBOX_PROFILE": "trusted", "AI_SESSION_POLICY_MODE": "trusted"}
"""The same for a home whose files nobody writes beforehand."""


WINDOWS = f'\n[consent]\nterminals = ["{os.path.realpath(sys.executable)}"]\n'
"""What a test shows in a terminal of its own is a person's window, unless the test is about who counts as a person."""


def new_home(world: Path, config: str = UNBOXED) -> Path:
    """A home with that configuration, below ``world``."""
    if "[consent]" not in config:
        config += WINDOWS
    path = Path(tempfile.mkdtemp(prefix="", dir=world))
    file = path / ".config/ai-session/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(config)
    return path


UNTOUCHED: list[tuple[Path, list[int]]] = []
"""A home that a test left as it was made, for the next one; and when it was made."""


def changes(home: Path) -> list[int]:
    """When the home, what it was made with, and their names and rights were changed last; 0 for what is gone."""
    found: list[int] = []
    for name in ("", ".config", ".config/ai-session", ".config/ai-session/config.toml"):
        try:
            found.append((home / name).lstat().st_ctime_ns)
        except OSError:
            found.append(0)
    return found


@pytest.fixture(autouse=True)
def home(world: Path) -> Iterator[Path]:
    """This test's HOME. The test fails when a process started under it is still alive at the end."""
    path, made = UNTOUCHED.pop() if UNTOUCHED else (path := new_home(world), changes(path))
    EARLIER.clear()
    before = len(STARTED)
    with environment(client_environment(path)):
        yield path
    if len(STARTED) == before and changes(path) == made:
        UNTOUCHED.append((path, made))
        return
    left: list[str] = []
    if len(STARTED) > before:
        gc.collect()  # what this test did not close is this test's failure, not that of whoever runs when it is found
        gc.freeze()  # and what it imported is looked at no more
        left = end_leftovers(path, EARLIER)
    shutil.rmtree(path, ignore_errors=True)
    assert not left, f"left behind by this test: {left}"


@pytest.fixture(scope="module")
def shared_home(world: Path) -> Iterator[Path]:
    """A HOME for the daemon of all tests of a module; nothing of it may be left after them."""
    path = new_home(world)
    yield path
    left = end_leftovers(path)
    shutil.rmtree(path, ignore_errors=True)
    assert not left, f"left behind by this module: {left}"


@pytest.fixture(scope="session", autouse=True)
def nothing_blocks_the_loop(world: Path) -> Iterator[None]:
    """A call from our packages that could block a running event loop raises BlockingError. Once for all tests: setting
    it up takes as long as a small test."""
    packages = [name for name in ("agentwire", "ai_session", "ccswarm") if find_spec(name)]
    guard = BlockBuster(packages)
    functions = [function for name, function in guard.functions.items() if name.startswith(WATCHED)]
    for name in ("os.read", "os.write"):
        guard.functions[name].can_block_predicate = never_waits
    # What the kernel says of a process waits for nobody.
    guard.functions["os.readlink"].can_block_in(
        "ai_session/system/processes.py", ["program", "directory", "has_open", "<listcomp>"]
    )
    # Once for each session that is made: where the directories of PATH lie.
    guard.functions["os.readlink"].can_block_in("agentwire/system/program_path.py", ["directories", "_is_apart"])
    functions += [
        BlockBusterFunction(
            os,
            "waitpid",
            scanned_modules=packages,
            can_block_predicate=lambda _pid, options: bool(options & os.WNOHANG),
        ).can_block_in("asyncio/unix_events.py", ["_do_wait", "_do_waitpid"]),
        BlockBusterFunction(subprocess.Popen, "wait", scanned_modules=packages),
        BlockBusterFunction(subprocess.Popen, "communicate", scanned_modules=packages),
    ]
    for function in functions:
        function.activate()
    yield
    for function in functions:
        function.deactivate()


def never_waits(fd: int, *_: object) -> bool:
    return not os.get_blocking(fd) or stat.S_ISREG(os.fstat(fd).st_mode)


def client_environment(home: Path) -> dict[str, str]:
    """What MCP clients hand to a server: these six names and nothing else."""
    user = pwd.getpwuid(os.getuid()).pw_name
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
    return {
        "HOME": str(home),
        "LOGNAME": user,
        "PATH": path,
        "SHELL": "/bin/bash",
        "TERM": "xterm-256color",
        "USER": user,
    }


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Sets the process environment to ``values`` (pytest keeps its own names) and puts it back."""
    before = dict(os.environ)
    for name in before:
        if not name.startswith("PYTEST_"):
            del os.environ[name]
    os.environ.update(values)
    try:
        yield
    finally:
        for name in list(os.environ):
            if not name.startswith("PYTEST_"):
                del os.environ[name]
        os.environ.update({name: value for name, value in before.items() if not name.startswith("PYTEST_")})


def end_leftovers(root: Path, earlier: Container[int] = ()) -> list[str]:
    """Kills what carries ``root`` in environment or arguments and outlived the grace; says what it was. Nothing is
    asked of those that ran ``earlier``."""
    needle = os.fsencode(root)
    found = {pid: what for pid, what in processes(earlier) if needle in what}
    outlived = [pid for pid in found if not ends_within(pid, time.monotonic() + GRACE_SECONDS)]
    for pid in outlived:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        ends_within(pid, time.monotonic() + GRACE_SECONDS)
    return [f"{pid}: {command_line(found[pid])}" for pid in outlived]


def pids() -> Iterator[int]:
    """Of every process but this one."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid())


def processes(but: Container[int] = ()) -> Iterator[tuple[int, bytes]]:
    """Pid, and arguments and environment as the kernel shows them, of every process but this one and those."""
    for pid in pids():
        if pid not in but:
            with suppress(OSError):
                # What has no arguments is the kernel's own, or gone.
                if arguments := contents(f"/proc/{pid}/cmdline"):
                    yield pid, arguments + b"\0\0" + contents(f"/proc/{pid}/environ")


def contents(path: str) -> bytes:
    """Of a file in /proc; a fifth of what pathlib takes, hundreds of times a test."""
    fd = os.open(path, os.O_RDONLY)
    try:
        pieces = list[bytes]()
        while piece := os.read(fd, 1 << 16):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(fd)


def ends_within(pid: int, deadline: float) -> bool:
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
    finally:
        os.close(fd)


def command_line(what: bytes) -> str:
    return what.partition(b"\0\0")[0].replace(b"\0", b" ").decode(errors="replace")
