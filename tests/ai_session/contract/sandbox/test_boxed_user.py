"""Sessions in boxes of somebody who is not root: the whole of test_boxed_session.py, run by that user."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.ai_session.support import unprivileged

pytestmark = (
    pytest.mark.torture
)  # tests/ai_session/planting has commands in boxes of an ordinary user, escape typed lines

HERE = Path(__file__).parents[1]
USER = 65534
"""The user that every system has and that owns nothing."""


@pytest.mark.parametrize("marked", ["not torture", "torture"])
def test_an_ordinary_user_has_the_same(marked: str) -> None:
    if os.geteuid() != 0:
        return  # the tests themselves are run by one
    line = [unprivileged.interpreter(), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", marked]
    done = subprocess.run(
        [*line, str(HERE / "sessions/test_boxed_session.py")],
        cwd=unprivileged.ROOT,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": unprivileged.library_path(),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TERM": "xterm-256color",
        },
        user=USER,
        group=USER,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
