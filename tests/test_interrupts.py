"""Ctrl-C at any moment of a verb: whoever typed it sees nothing of Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bounds import BOUND_SECONDS

ENDED, LEFT = -signal.SIGINT, 130
AT_EXIT = ""
RUN = """if True:
    import atexit, os, runpy, signal, sys

    def press():
        os.kill(os.getpid(), signal.SIGINT)

    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == at:
                press()

    package, at, *words = sys.argv[1:]
    if at:
        sys.meta_path.insert(0, Finder())
    else:
        atexit.register(press)
    sys.argv[1:] = words
    runpy.run_module(package, run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("package", "words", "at", "code"),
    [
        ("ccswarm", "status", "agentwire.system.inherited_signals", ENDED),
        pytest.param("ccswarm", "status", "agentwire.cli.lines", ENDED, marks=pytest.mark.torture),
        pytest.param("ccswarm", "status", "ccswarm.cli.runs", ENDED, marks=pytest.mark.torture),
        pytest.param("ccswarm", "--help", "typer", ENDED, marks=pytest.mark.torture),
        ("ccswarm", "--help", AT_EXIT, ENDED),
        ("ccswarm", "tools", "ccswarm.plan.check", LEFT),
        pytest.param("ccswarm", "serve --tcp", "ccswarm.cli.serve", LEFT, marks=pytest.mark.torture),
        pytest.param("ai_session", "ls", "agentwire.system.inherited_signals", ENDED, marks=pytest.mark.torture),
        pytest.param("ai_session", "ls", "ai_session.cli.sessions", ENDED, marks=pytest.mark.torture),
        ("ai_session", "--help", "typer", ENDED),
        pytest.param("ai_session", "--version", AT_EXIT, ENDED, marks=pytest.mark.torture),
        ("ai_session", "mcp-server --stdio", "ai_session.client.relay", ENDED),
        ("ai_session", "config show", "ai_session.config.config", LEFT),
    ],
)
def test_ctrl_c_leaves_nothing_behind_on_the_screen(
    tmp_path: Path, package: str, words: str, at: str, code: int
) -> None:
    """Pressed where a module is about to be loaded, or when the verb has ended."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, package, at, *words.split()],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, "")
