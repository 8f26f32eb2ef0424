"""Each test has a home of its own, the six variables that an MCP client passes on, and must leave no process behind."""

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

from tests.support import workers
from tests.support.forked_holders import HOLDERS
from tests.support.products import leave_the_rest_to_torture

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

GRACE_SECONDS = float(os.environ.get("PYTEST_GRACE_SECONDS", "60"))
"""The time for a process to end before it counts as left behind."""

WATCHED = ("time.sleep", "os.read", "os.write", "socket.", "ssl.", "sqlite3.", "threading.Lock", "builtins.input")
"""Calls that may block on other processes. Others are ignored, because small files may be read on the event loop."""


BY_CHANCE = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
"""Health checks that depend on the machine's load or on the examples, not on the tested code."""

settings.register_profile(
    "quick", max_examples=10, stateful_step_count=25, deadline=None, suppress_health_check=BY_CHANCE
)
settings.register_profile("thorough", max_examples=1000, deadline=None, suppress_health_check=BY_CHANCE)
settings.load_profile("quick")  # each run draws other examples; make torture draws more

gc.disable()  # until the first test: it inspects what stays repeatedly, for a third of the time of collection

STARTED: list[str] = []
"""The starts of processes, because a test without any need not search /proc."""

EARLIER: set[int] = set()
"""The processes that ran before this test started its first one, and that it cannot have left behind."""


TMP_ENDS_WITH_RUN = bool(os.environ.get("TMP_IN_MEMORY"))
"""Whether the run's /tmp is its own, so that nothing in it needs to be removed."""


def remove(path: Path) -> None:
    if not TMP_ENDS_WITH_RUN:
        shutil.rmtree(path, ignore_errors=True)


def note_start(event: str, _: object) -> None:
    if event in ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"):
        if not EARLIER:
            EARLIER.update(pids())
        STARTED.append(event)


sys.addaudithook(note_start)


def give_default_signals_to_programs() -> None:
    """Let started programs have the signals of a shell's foreground job, even if this run ignores some.

    A background job of a script ignores Ctrl-C, and nohup SIGHUP. Unlike that, an empty handler ends at exec.
    """
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


give_default_signals_to_programs()
HOLDERS.use()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    leave_the_rest_to_torture(items)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()  # collected and imported objects belong to no test: this saves 150 ms of each search for leftovers
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    workers.add_option(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    return workers.run(session, prepare=prepare_for_all_workers)


def prepare_for_all_workers() -> None:
    """Do once, if some test needs it, what each worker would do for itself.

    That is loading the libraries of model providers, 2 s, and starting the processes that programs are forked from.
    """
    if "tests.ccswarm.support.model_servers" in sys.modules:
        from ccswarm.brains.llm.api import prepare
        from ccswarm.brains.llm.settings import Model

        for vendor in ("anthropic", "openai"):
            prepare(Model(model=f"{vendor}:any"))
        gc.freeze()
    if forked := sys.modules.get("tests.support.forked"):
        for package in ("ai_session", "ccswarm"):
            forked.parent(package, forked.STARTER)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def homes() -> Iterator[Path]:
    """The folder of all homes of this run, with a short path because socket paths are limited to 107 bytes."""
    root = Path(tempfile.mkdtemp(prefix="ais-", dir="/tmp"))
    with environment(client_environment(root)):
        yield root
    gc.collect()  # what the last test did not close is its failure
    left = end_leftovers(root)
    remove(root)
    assert not left, f"left behind by the run: {left}"


UNBOXED = '[sandbox]\nprofile = "trusted"\n\n[policy]\nmode = "trusted"\n'
"""The configuration of tests of shells, terminals and protocols: boxes and questions have tests of their own."""


NO_RUNS = "\n[console]\nruns = []\n"
"""The configuration of consoles in tests without runs, so that they do not start a program that loads ccswarm."""


UNBOXED_VARIABLES = {"AI_SESSION_SANDBOX_PROFILE": "trusted", "AI_SESSION_POLICY_MODE": "trusted"}
"""UNBOXED as variables, for a home without files."""


WINDOWS = f'\n[consent]\nterminals = ["{os.path.realpath(sys.executable)}"]\n'
"""Makes a test's own terminal a person's window, except in tests of who counts as a person."""


def new_home(homes: Path, config: str = UNBOXED) -> Path:
    """Create a home with a configuration below ``homes``, and return it."""
    if "[consent]" not in config:
        config += WINDOWS
    path = Path(tempfile.mkdtemp(prefix="", dir=homes))
    file = path / ".config/ai-session/config.toml"
    file.parent.mkdir(parents=True)
    file.write_text(config)
    return path


UNTOUCHED: list[tuple[Path, list[int]]] = []
"""Homes that a test left unchanged, for the next test, with the times of their creation."""


def changes(home: Path) -> list[int]:
    """Return when the home and its initial files were last changed, including names and modes; 0 for a missing one."""
    found: list[int] = []
    for name in ("", ".config", ".config/ai-session", ".config/ai-session/config.toml"):
        try:
            found.append((home / name).lstat().st_ctime_ns)
        except OSError:
            found.append(0)
    return found


@pytest.fixture(autouse=True)
def home(homes: Path) -> Iterator[Path]:
    """This test's HOME. The test fails if a process started under it is still alive at the end."""
    path, made = UNTOUCHED.pop() if UNTOUCHED else (path := new_home(homes), changes(path))
    EARLIER.clear()
    before = len(STARTED)
    with environment(client_environment(path)):
        yield path
    if len(STARTED) == before and changes(path) == made:
        UNTOUCHED.append((path, made))
        return
    left: list[str] = []
    if len(STARTED) > before:
        gc.collect()  # what this test did not close is its own failure, not that of a later test
        gc.freeze()  # and what it imported is not inspected again
        left = end_leftovers(path, EARLIER)
    remove(path)
    assert not left, f"left behind by this test: {left}"


@pytest.fixture(scope="module")
def shared_home(homes: Path) -> Iterator[Path]:
    """A HOME for the daemon of all tests of a module; no process of it may be left after them."""
    path = new_home(homes)
    yield path
    left = end_leftovers(path)
    remove(path)
    assert not left, f"left behind by this module: {left}"


@pytest.fixture(scope="session", autouse=True)
def nothing_blocks_the_loop(homes: Path) -> Iterator[None]:
    """Make calls from our packages that could block a running event loop raise BlockingError.

    Done once for all tests, because the setup takes as long as a small test.
    """
    packages = [name for name in ("agentwire", "ai_session", "ccswarm") if find_spec(name)]
    guard = BlockBuster(packages)
    functions = [function for name, function in guard.functions.items() if name.startswith(WATCHED)]
    for name in ("os.read", "os.write"):
        guard.functions[name].can_block_predicate = never_waits
    # Reading the kernel's facts about a process does not block.
    guard.functions["os.readlink"].can_block_in(
        "ai_session/system/processes.py", ["program", "directory", "has_open", "<listcomp>"]
    )
    # Once for each new session: the real locations of the directories in PATH.
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


OF_EVERY_CLIENT = {
    "LOGNAME": pwd.getpwuid(os.getuid()).pw_name,
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"]),
    "SHELL": "/bin/bash",
    "TERM": "xterm-256color",
    "USER": pwd.getpwuid(os.getuid()).pw_name,
}


def client_environment(home: Path) -> dict[str, str]:
    """Return the environment that MCP clients pass to a server: these six variables only."""
    return {"HOME": str(home), **OF_EVERY_CLIENT}


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set the process environment to ``values`` (and pytest's own variables) meanwhile."""
    before = dict(os.environ)
    set_environment(values)
    try:
        yield
    finally:
        set_environment(before)


def set_environment(values: Mapping[str, str]) -> None:
    """Change what differs from ``values``, except pytest's own variables."""
    for name in {**os.environ, **values}:
        if not name.startswith("PYTEST_") and os.environ.get(name) != values.get(name):
            if name in values:
                os.environ[name] = values[name]
            else:
                del os.environ[name]


def end_leftovers(root: Path, earlier: Container[int] = ()) -> list[str]:
    """Kill the processes with ``root`` in environment or arguments that outlive the grace, and return what they were.

    Those that ran ``earlier`` are not inspected.
    """
    needle = os.fsencode(root)
    found = {pid: what for pid, what in processes(earlier) if needle in what}
    outlived = [pid for pid in found if not ends_within(pid, time.monotonic() + GRACE_SECONDS)]
    for pid in outlived:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        ends_within(pid, time.monotonic() + GRACE_SECONDS)
    return [f"{pid}: {command_line(found[pid])}" for pid in outlived]


def pids() -> Iterator[int]:
    """Return the ids of all processes but this one."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid())


def processes(but: Container[int] = ()) -> Iterator[tuple[int, bytes]]:
    """Yield id, and arguments and environment in /proc, of all processes but this one and those in ``but``."""
    for pid in pids():
        if pid not in but:
            with suppress(OSError):
                # A process without arguments is the kernel's, or has ended.
                if arguments := contents(f"/proc/{pid}/cmdline"):
                    yield pid, arguments + b"\0\0" + contents(f"/proc/{pid}/environ")


def contents(path: str) -> bytes:
    """Return the contents of a file in /proc, in a fifth of pathlib's time, because a test reads hundreds."""
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
