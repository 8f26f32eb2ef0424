"""Runs one git command with bounded time and memory, and stops it when its caller is cancelled. All functions block.

What git reads may have been made to keep it busy: a pattern that takes forever to compare, an object of zeros that
takes gigabytes to hold.
"""

from __future__ import annotations

import errno
import math
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TypeVar

from agentwire.system.readable import readable

T = TypeVar("T")

PR_SET_PDEATHSIG = 1
NAMES = {resource.RLIMIT_CPU: "cpu", resource.RLIMIT_DATA: "data"}
SECONDS_TO_END = 5
"""The computing time a process gets after the signal that its time is used up."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one command. ``seconds`` is elapsed time and ``output_bytes`` the size of the output.
    ``cpu_seconds`` of computing and ``memory_bytes`` of writable memory apply to each of its processes."""

    seconds: float
    cpu_seconds: int = resource.RLIM_INFINITY
    memory_bytes: int = resource.RLIM_INFINITY
    output_bytes: int = 64 << 20


class OutOfBounds(Exception):
    """The command was ended because it exceeded one of its bounds, which the message names."""


class CallerCancelled(Exception):
    """The command was ended, or not started, because its caller was cancelled."""


class OutOfTime(Exception):
    """The caller's time limit for all commands together has passed."""


class Stop:
    """A signal to a thread that its caller was cancelled."""

    def __init__(self) -> None:
        self.fd, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def request(self) -> None:
        """Request the stop. May be called at any time until ``close``."""
        os.write(self._write, b".")

    def close(self) -> None:
        """Release the pipe. Call it once, after the thread has ended."""
        os.close(self.fd)
        os.close(self._write)


_stop: ContextVar[Stop | None] = ContextVar("_stop", default=None)
_until: ContextVar[float] = ContextVar("_until", default=math.inf)
"""The time limit, by ``time.monotonic``."""


def stoppable(stop: Stop, do: Callable[[], T]) -> Callable[[], T]:
    """Wrap ``do`` so that requesting ``stop`` ends its running command and lets no other one start."""
    context = copy_context()
    context.run(_stop.set, stop)
    return lambda: context.run(do)


@contextmanager
def uninterruptible() -> Generator[None]:
    """Run the block's commands to their end, ignoring cancellation and the time limit."""
    waits, until = _stop.set(None), _until.set(math.inf)
    try:
        yield
    finally:
        _stop.reset(waits)
        _until.reset(until)


@contextmanager
def time_limit(seconds: float | None) -> Generator[None]:
    """Limit the time of all commands in the block together. After that they and ``checkpoint`` raise OutOfTime."""
    token = _until.set(math.inf if seconds is None else time.monotonic() + seconds)
    try:
        yield
    finally:
        _until.reset(token)


def checkpoint() -> None:
    """Raise OutOfTime if the time limit has passed, CallerCancelled if the caller was cancelled. Loops over much data
    made by an agent call this at each step."""
    if time.monotonic() >= _until.get():
        raise OutOfTime
    stop = _stop.get()
    if stop and readable([stop.fd], 0):
        raise CallerCancelled


def pause(seconds: float) -> None:
    """Block for that long. Raises as ``checkpoint`` does, at once if the caller is cancelled."""
    stop = _stop.get()
    readable([stop.fd] if stop else [], seconds)
    checkpoint()


def run(
    argv: Sequence[str],
    directory: Path,
    environ: Mapping[str, str],
    bounds: Bounds,
    *,
    stdin: IO[bytes],
    stderr: IO[bytes],
    stdout: IO[bytes] | None = None,
) -> tuple[int, bytes]:
    """Run a command and return its exit code and output. Output goes to ``stdout`` instead if given, errors to
    ``stderr``. Raises OutOfBounds, OutOfTime, CallerCancelled, and OSError if the command cannot be started."""
    checkpoint()
    read_end, write_end = os.pipe()
    try:
        prefix = _limit_prefix(bounds)
        process = subprocess.Popen(
            [*prefix, *_with_program_path(argv, environ)],
            cwd=directory,
            env=environ,
            stdin=stdin,
            stdout=stdout or subprocess.PIPE,
            stderr=stderr,
            pass_fds=(write_end,),
            start_new_session=True,
            preexec_fn=None if prefix else _child_setup(bounds),
        )
        os.close(write_end)
        write_end = -1
        with process:
            try:
                output = _read_output(process, read_end, bounds)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            raise OutOfBounds(f"takes more than {bounds.cpu_seconds} seconds of computing")
        return process.returncode, output
    finally:
        os.close(read_end)
        if write_end >= 0:
            os.close(write_end)


def _read_output(process: subprocess.Popen[bytes], read_end: int, bounds: Bounds) -> bytes:
    """Read the output until the process and all its descendants have ended."""
    deadline, stop = min(time.monotonic() + bounds.seconds, _until.get()), _stop.get()
    output = bytearray()
    reading = {read_end, *([process.stdout.fileno()] if process.stdout else ())}
    poll = select.poll()
    for fd in (*reading, *([stop.fd] if stop else ())):
        poll.register(fd, select.POLLIN)
    while reading:
        ready = {fd for fd, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000)}
        if not ready:
            checkpoint()
            raise OutOfBounds(f"takes longer than {bounds.seconds:g} seconds")
        for fd in ready & reading:
            part = os.read(fd, 1 << 16)
            output += part
            if not part:
                reading.discard(fd)
                poll.unregister(fd)
        if len(output) > bounds.output_bytes:
            raise OutOfBounds(f"lists more than {bounds.output_bytes} bytes")
        if stop and stop.fd in ready:
            raise CallerCancelled
    return bytes(output)


def _with_program_path(argv: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Replace the program's name by its path. Raises OSError if it is missing; ``setpriv`` would only print that."""
    program = shutil.which(argv[0], path=environ.get("PATH", os.defpath))
    if not program:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    return [program, *argv[1:]]


def _limit_prefix(bounds: Bounds) -> list[str]:
    """Return the command prefix that sets the limits and ends the program with the thread that started it. It is empty
    where the system lacks the tools. Then both are set between fork and exec, and a fork of a large process costs four
    times what git does."""
    if not (tools := _tools()):
        return []
    setpriv, prlimit = tools
    limits = [f"--{NAMES[kind]}={soft}:{hard}" for kind, (soft, hard) in _limits(bounds)]
    return [setpriv, "--pdeathsig", "KILL", "--", *([prlimit, *limits, "--"] if limits else [])]


@cache
def _tools() -> tuple[str, str] | None:
    """Return the paths of util-linux's setpriv and prlimit, or None; busybox has other programs of these names."""
    setpriv, prlimit = (shutil.which(name, path=os.defpath) for name in ("setpriv", "prlimit"))
    if not (sys.platform == "linux" and setpriv and prlimit):
        return None
    trial = (setpriv, "--pdeathsig", "KILL", "--", prlimit, "--cpu=1:1", "--", prlimit, "--version")
    return None if subprocess.run(trial, capture_output=True, check=False).returncode else (setpriv, prlimit)


def _limits(bounds: Bounds) -> list[tuple[int, tuple[int, int]]]:
    """Return the limits as ``setrlimit`` accepts them, none above those of this process."""
    limits: list[tuple[int, int, int]] = []
    if bounds.cpu_seconds != resource.RLIM_INFINITY:
        limits.append((resource.RLIMIT_CPU, bounds.cpu_seconds, bounds.cpu_seconds + SECONDS_TO_END))
    if bounds.memory_bytes != resource.RLIM_INFINITY:
        # Not the whole address space: packs of any size are mapped into it.
        limits.append((resource.RLIMIT_DATA, bounds.memory_bytes, bounds.memory_bytes))
    limits_to_set: list[tuple[int, tuple[int, int]]] = []
    for kind, soft, hard in limits:
        _, most = resource.getrlimit(kind)
        free = most == resource.RLIM_INFINITY
        limits_to_set.append((kind, (soft, hard) if free else (min(soft, most), min(hard, most))))
    return limits_to_set


def _child_setup(bounds: Bounds) -> Callable[[], None]:
    """Return what the child process does before exec. Everything possible is prepared before the fork."""
    limits_to_set = _limits(bounds)
    parent, prctl = os.getpid(), _prctl()

    def prepare() -> None:
        for kind, pair in limits_to_set:
            resource.setrlimit(kind, pair)
        if prctl:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

    return prepare


@cache
def _prctl() -> Callable[..., int] | None:
    import ctypes  # rarely needed

    return ctypes.CDLL(None).prctl if sys.platform == "linux" else None
