"""Input is waited for on descriptors of any number."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentwire.system.readable import readable
from ai_session.system import terminal_device
from ccswarm.system.bounded_process import CallerCancelled, Stop, checkpoint, stoppable

ROOT = Path(__file__).parents[3]
HIGH = 1500
"""No longer a descriptor that ``select`` takes."""


@pytest.fixture
def many() -> Iterator[None]:
    """The next descriptors that are opened are numbered above ``HIGH``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * HIGH), hard))
    held = [os.open(os.devnull, os.O_RDONLY)]
    try:
        while held[-1] < HIGH:
            held.append(fcntl.fcntl(held[0], fcntl.F_DUPFD_CLOEXEC, 3))
        yield
    finally:
        for fd in held:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_who_has_many_files_open_waits_as_others_do(many: None) -> None:
    source, sink = os.pipe()
    master, slave = pty.openpty()
    stop = Stop()
    try:
        assert min(source, master, stop.fd) > HIGH
        assert readable([source, master], 0) == set()
        os.write(sink, b"x")
        os.write(master, b"typed\n")
        assert readable([source, slave]) == {source, slave}
        assert terminal_device.unread_bytes(os.ttyname(slave)) == len("typed\n")
        stop.request()
        with pytest.raises(CallerCancelled):
            stoppable(stop, checkpoint)()
    finally:
        stop.close()
        for fd in (source, sink, master, slave):
            os.close(fd)


def test_the_end_is_read_without_waiting() -> None:
    source, sink = os.pipe()
    os.close(sink)
    assert readable([source]) == {source}
    os.close(source)


def test_nothing_that_may_have_many_files_open_uses_select() -> None:
    files = [path for package in ("agentwire", "ai_session", "ccswarm") for path in (ROOT / package).rglob("*.py")]
    using = {path for path in files if re.search(r"\bselect\.select\(", path.read_text())}
    assert {path.parent.relative_to(ROOT).as_posix() for path in using} <= {"ai_session/cli"}
