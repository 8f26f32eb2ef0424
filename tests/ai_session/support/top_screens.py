"""The verb top as a person sees it on a terminal, of 24 lines and 80 columns by default."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect

from ai_session.terminal.screen import Screen
from tests.ai_session.support.mcp_client import living_in
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS
from tests.support.forked import Person

SLICE_SECONDS = 0.1


class Shown:
    """The screen of a running verb."""

    def __init__(self, person: Person | pexpect.spawn[bytes], size: tuple[int, int]) -> None:
        self.person = person
        self.raw = b""
        self.screen = Screen(*size)

    @property
    def lines(self) -> tuple[str, ...]:
        return self.screen.snapshot().lines

    def until(self, holds: Callable[[tuple[str, ...]], bool]) -> None:
        """Wait until ``holds`` returns true for the lines of the screen."""
        deadline = time.monotonic() + BOUND_SECONDS
        while not holds(self.lines):
            assert time.monotonic() < deadline, "\n".join(self.lines)
            try:
                data = self.person.read_nonblocking(1 << 16, SLICE_SECONDS)
            except pexpect.TIMEOUT:
                continue
            except pexpect.EOF:
                raise AssertionError("\n".join(self.lines)) from None
            self.raw += data
            self.screen.feed(data)
            if reply := self.screen.replies():
                self.person.send(reply)

    def shows(self, *texts: str) -> None:
        """Wait until each text is somewhere on the screen."""
        self.until(lambda lines: all(any(text in line for line in lines) for text in texts))

    def lacks(self, text: str) -> None:
        """Wait until the text is nowhere on the screen."""
        self.until(lambda lines: not any(text in line for line in lines))


@contextmanager
def top(
    home: Path, *words: str, package: str = "ai_session", size: tuple[int, int] = (24, 80), **more: str
) -> Iterator[Shown]:
    """Yield the screen of the verb in a window of this size, with ``more`` in its environment."""
    env = {**living_in(home), "PYTHONPATH": str(forked.ROOT), **more}
    person = Person(package, ["top", *words], cwd=home, env=env, size=size)
    try:
        yield Shown(person, size)
    finally:
        person.close()
