"""Runs one git and waits for its answer: for a bounded time, with bounded memory, and no longer than somebody waits.

What git reads may have been made to keep it busy: a pattern that takes for ever to compare, an object of zeros that
takes gigabytes to hold. All of it blocks.
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
"""Of computing time, after the first signal that it is used up."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one command: ``seconds`` that pass, ``cpu_seconds`` of computing in each of its processes, ``memory_bytes``
    that each may write to, ``output_bytes`` of answer."""

    seconds: float
    cpu_seconds: int = resource.RLIM_INFINITY
    memory_bytes: int = resource.RLIM_INFINITY
    output_bytes: int = 64 << 20


class OutOfBounds(Exception):
    """The command was ended; which of the bounds it met, as words."""


class NobodyWaits(Exception):
    """The command was ended, or not begun, for its caller was cancelled."""


class OutOfTime(Exception):
    """The time that the caller has for all of it is over."""


class Stop:
    """Says to a thread that nobody waits for it any more."""

    def __init__(self) -> None:
        self.fd, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def request(self) -> None:
        """May be called at any time until ``close``."""
        os.write(self._write, b".")

    def close(self) -> None:
        """Once, when the thread has ended."""
        os.close(self.fd)
        os.close(self._write)


_stop: ContextVar[Stop | None] = ContextVar("_stop", default=None)
_until: ContextVar[float] = ContextVar("_until", default=math.inf)
"""On the clock of ``time.monotonic``."""


def heeding(stop: Stop, do: Callable[[], T]) -> Callable[[], T]:
    """``do``, of which a command that runs is ended, and none begins, once ``stop`` was requested."""
    context = copy_context()
    context.run(_stop.set, stop)
    return lambda: context.run(do)


@contextmanager
def to_the_end() -> Generator[None]:
    """What is begun in it is not ended because nobody waits, or because time is over."""
    waits, until = _stop.set(None), _until.set(math.inf)
    try:
        yield
    finally:
        _stop.reset(waits)
        _until.reset(until)


@contextmanager
def within(seconds: float | None) -> Generator[None]:
    """What is done in it has so much time, all commands together: after that they and ``go_on`` raise OutOfTime."""
    token = _until.set(math.inf if seconds is None else time.monotonic() + seconds)
    try:
        yield
    finally:
        _until.reset(token)


def go_on() -> None:
    """For who reads much that an agent made. Raises OutOfTime, and NobodyWaits where the caller was cancelled."""
    if time.monotonic() >= _until.get():
        raise OutOfTime
    stop = _stop.get()
    if stop and readable([stop.fd], 0):
        raise NobodyWaits


def pause(seconds: float) -> None:
    """Returns so much later. Raises as ``go_on``, at once where nobody waits any longer."""
    stop = _stop.get()
    readable([stop.fd] if stop else [], seconds)
    go_on()


def run(
    words: Sequence[str],
    directory: Path,
    environ: Mapping[str, str],
    bounds: Bounds,
    *,
    stdin: IO[bytes],
    said: IO[bytes],
    output: IO[bytes] | None = None,
) -> tuple[int, bytes]:
    """The exit code and the answer, which goes to ``output`` where that is given; complaints go to ``said``.

    Raises OutOfBounds, OutOfTime, NobodyWaits, OSError where it cannot be started.
    """
    go_on()
    ended_at, ended = os.pipe()
    try:
        bounded = _bounded(bounds)
        process = subprocess.Popen(
            [*bounded, *_found(words, environ)],
            cwd=directory,
            env=environ,
            stdin=stdin,
            stdout=output or subprocess.PIPE,
            stderr=said,
            pass_fds=(ended,),
            start_new_session=True,
            preexec_fn=None if bounded else _prepared(bounds),
        )
        os.close(ended)
        ended = -1
        with process:
            try:
                answer = _answer(process, ended_at, bounds)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            raise OutOfBounds(f"takes more than {bounds.cpu_seconds} seconds of computing")
        return process.returncode, answer
    finally:
        os.close(ended_at)
        if ended >= 0:
            os.close(ended)


def _answer(process: subprocess.Popen[bytes], ended_at: int, bounds: Bounds) -> bytes:
    """Until the process and all that it started have ended."""
    deadline, stop = min(time.monotonic() + bounds.seconds, _until.get()), _stop.get()
    answer = bytearray()
    reading = {ended_at, *([process.stdout.fileno()] if process.stdout else ())}
    poll = select.poll()
    for fd in (*reading, *([stop.fd] if stop else ())):
        poll.register(fd, select.POLLIN)
    while reading:
        ready = {fd for fd, _ in poll.poll(max(0.0, deadline - time.monotonic()) * 1000)}
        if not ready:
            go_on()
            raise OutOfBounds(f"takes longer than {bounds.seconds:g} seconds")
        for fd in ready & reading:
            part = os.read(fd, 1 << 16)
            answer += part
            if not part:
                reading.discard(fd)
                poll.unregister(fd)
        if len(answer) > bounds.output_bytes:
            raise OutOfBounds(f"lists more than {bounds.output_bytes} bytes")
        if stop and stop.fd in ready:
            raise NobodyWaits
    return bytes(answer)


def _found(words: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """With the program's path: what is missing is an OSError here, and no word of the program before it."""
    program = shutil.which(words[0], path=environ.get("PATH", os.defpath))
    if not program:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), words[0])
    return [program, *words[1:]]


def _bounded(bounds: Bounds) -> list[str]:
    """Before a program's words: it ends with the thread that started it, and has those limits from its first
    instruction on; empty where the system lacks the tools. Without them both are set between fork and exec, and a fork
    of a large process costs four times what git does."""
    if not (tools := _tools()):
        return []
    setpriv, prlimit = tools
    limits = [f"--{NAMES[kind]}={soft}:{hard}" for kind, (soft, hard) in _limits(bounds)]
    return [setpriv, "--pdeathsig", "KILL", "--", *([prlimit, *limits, "--"] if limits else [])]


@cache
def _tools() -> tuple[str, str] | None:
    """Those of util-linux; busybox has others of these names."""
    setpriv, prlimit = (shutil.which(name, path=os.defpath) for name in ("setpriv", "prlimit"))
    if not (sys.platform == "linux" and setpriv and prlimit):
        return None
    trial = (setpriv, "--pdeathsig", "KILL", "--", prlimit, "--cpu=1:1", "--", prlimit, "--version")
    return None if subprocess.run(trial, capture_output=True, check=False).returncode else (setpriv, prlimit)


def _limits(bounds: Bounds) -> list[tuple[int, tuple[int, int]]]:
    """As ``setrlimit`` takes them, none above what holds for this process."""
    limits: list[tuple[int, int, int]] = []
    if bounds.cpu_seconds != resource.RLIM_INFINITY:
        limits.append((resource.RLIMIT_CPU, bounds.cpu_seconds, bounds.cpu_seconds + SECONDS_TO_END))
    if bounds.memory_bytes != resource.RLIM_INFINITY:
        # Not the whole address space: packs of any size are mapped into it to be read.
        limits.append((resource.RLIMIT_DATA, bounds.memory_bytes, bounds.memory_bytes))
    given: list[tuple[int, tuple[int, int]]] = []
    for kind, soft, hard in limits:
        _, most = resource.getrlimit(kind)
        free = most == resource.RLIM_INFINITY
        given.append((kind, (soft, hard) if free else (min(soft, most), min(hard, most))))
    return given


def _prepared(bounds: Bounds) -> Callable[[], None]:
    """What the child does before it becomes git. All that can be is made before it is born."""
    given = _limits(bounds)
    parent, prctl = os.getpid(), _prctl()

    def prepare() -> None:
        for kind, pair in given:
            resource.setrlimit(kind, pair)
        if prctl:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

    return prepare


@cache
def _prctl() -> Callable[..., int] | None:
    import ctypes  # which few need

    return ctypes.CDLL(None).prctl if sys.platform == "linux" else None
