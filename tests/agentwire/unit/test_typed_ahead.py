"""What was typed before a question is no answer to it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tty

import pytest

from agentwire.system import typed_ahead
from agentwire.system.readable import readable
from tests.support.bounds import BOUND_SECONDS

TIMES = 100
"""A flush alone, right after the keys, leaves them in nine of ten cases."""


@pytest.mark.parametrize("keys", [b"y", b"yes\n", b"yes\nno"])
def test_nothing_typed_before_is_left(keys: bytes) -> None:
    for _ in range(TIMES):
        ours, theirs = pty.openpty()
        os.write(ours, keys)
        typed_ahead.discard(theirs)
        tty.setraw(theirs)
        os.write(ours, b"n")
        assert readable((theirs,), BOUND_SECONDS)
        assert os.read(theirs, 10) == b"n"
        os.close(ours)
        os.close(theirs)


def test_a_question_is_answered_after_it_only() -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"y\n")
    program = "import sys; from agentwire.cli.output import confirm; sys.exit(7 if confirm('really?') else 3)"
    with subprocess.Popen([sys.executable, "-c", program], stdin=theirs, stdout=theirs, stderr=theirs) as asking:
        shown = b""
        while b"[y/N]: " not in shown:
            assert readable((ours,), BOUND_SECONDS)
            shown += os.read(ours, 1000)
        os.write(ours, b"n\n")
        assert asking.wait(BOUND_SECONDS) == 3, shown
    os.close(ours)
    os.close(theirs)
