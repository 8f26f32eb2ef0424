"""pexpect's own tests, of its source distribution, against ``ai_session.spawn`` instead of ``pexpect.spawn``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.ai_session.support.mcp_client import living_in, stop_daemons
from tests.conftest import UNBOXED, new_home

BOUND_SECONDS = 900

ELSEWHERE = re.compile("socket|pxssh|popen|ansi|screen|FSM|filedesc")
"""Files about other classes than ``spawn``."""

OTHERWISE = {
    "test_env.py::TestCaseEnv::test_run_uses_env": "a variable named like a key is masked",
    "test_env.py::TestCaseEnv::test_spawn_uses_env": "a variable named like a key is masked",
    "test_misc.py::TestCaseMisc::test_bad_child_pid": "changes the inside of ptyprocess, which is not used here",
    "test_repr.py::TestCaseMisc::test_str_before_spawn": "a spawn without a command, for subclasses that make it later",
    "test_replwrap.py::REPLWrapTestCase::test_existing_spawn": "waits for a prompt without bracketed paste",
    "test_replwrap.py::REPLWrapTestCase::test_zsh": "waits for $, which is not in root's prompt",
}
"""Those that may fail, and why. Each other one passes."""

INSTEAD = """
import sys
import pexpect, pexpect.replwrap
import ai_session
pexpect.spawn = sys.modules["pexpect.run"].spawn = ai_session.spawn
pexpect.spawnu = lambda *args, **more: ai_session.spawn(*args, **{"encoding": "utf-8", **more})
"""

pytestmark = [pytest.mark.clients, pytest.mark.timeout(2 * BOUND_SECONDS)]


def test_pexpects_own_tests_pass_over_sessions(homes: Path, tmp_path: Path) -> None:
    wanted = f"pexpect=={version('pexpect')}"
    line = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--no-binary",
        ":all:",
        "-d",
        str(tmp_path),
        wanted,
    ]
    subprocess.run(line, check=True, timeout=BOUND_SECONDS)
    (archive,) = tmp_path.glob("pexpect-*.tar.gz")
    subprocess.run(["tar", "-xf", archive, "-C", tmp_path], check=True)
    root = tmp_path / archive.name.removesuffix(".tar.gz")
    (root / "tests/conftest.py").write_text(INSTEAD)
    files = [f"tests/{path.name}" for path in root.glob("tests/test_*.py") if not ELSEWHERE.search(path.name)]
    home = new_home(homes, UNBOXED)
    plain = ["-q", "-ra", "-p", "no:cacheprovider", "-o", "addopts=", "-o", "filterwarnings=default", "--rootdir", "."]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *plain, "--timeout", "120", *files],
            cwd=root,
            env={**os.environ, **living_in(home), "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            timeout=BOUND_SECONDS,
        )
    finally:
        stop_daemons(home)
    failed = set(re.findall(r"^(?:FAILED|ERROR) tests/(\S+)", done.stdout, re.MULTILINE))
    passed = re.search(r"(\d+) passed", done.stdout)
    print(done.stdout)
    assert failed <= OTHERWISE.keys()
    assert passed
    assert int(passed[1]) >= 150
