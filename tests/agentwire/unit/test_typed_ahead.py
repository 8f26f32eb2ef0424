"""What was typed before a question is no answer to it."""

from __future__ import annotations

import os
import pty
import tty

import pytest

from agentwire.system import typed_ahead
from agentwire.system.readable import readable

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
        assert readable((theirs,), 10)
        assert os.read(theirs, 10) == b"n"
        os.close(ours)
        os.close(theirs)
