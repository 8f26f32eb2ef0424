"""A terminal that edits lines itself, and what is dropped from it before a line of the session's own is typed."""

from __future__ import annotations

import os
import termios
from collections.abc import Iterator

import pytest

from ai_session.system.terminal_device import line_killer


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = os.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def set_kill(terminal: int, key: bytes) -> None:
    modes = termios.tcgetattr(terminal)
    modes[6][termios.VKILL] = key
    termios.tcsetattr(terminal, termios.TCSANOW, modes)


@pytest.mark.parametrize(("key", "typed"), [(b"\x15", b"\x15"), (b"@", b"@"), (b"\0", b"")])
def test_an_incomplete_line_is_dropped_with_or_without_a_key_for_it(
    terminal: tuple[int, int], key: bytes, typed: bytes
) -> None:
    ours, theirs = terminal
    set_kill(theirs, key)
    os.write(ours, b"half")
    assert os.read(ours, 100) == b"half", "the terminal has echoed it, and so has it"
    found = line_killer(os.ttyname(theirs))
    assert found == typed
    os.write(ours, found + b"whole\n")
    assert os.read(theirs, 100) == b"whole\n"


def test_a_line_that_a_program_edits_is_the_programs(terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    modes = termios.tcgetattr(theirs)
    modes[3] &= ~termios.ICANON
    termios.tcsetattr(theirs, termios.TCSANOW, modes)
    os.write(ours, b"half")
    assert os.read(ours, 100) == b"half"
    assert line_killer(os.ttyname(theirs)) is None
    assert os.read(theirs, 100) == b"half"
