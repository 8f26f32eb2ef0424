"""The command says what it is, and no more."""

from __future__ import annotations

import subprocess
import sys

import ccswarm


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "ccswarm", *arguments], capture_output=True, text=True, timeout=20)


def test_version() -> None:
    assert run("--version").stdout == f"ccswarm {ccswarm.__version__}\n"


def test_without_arguments_it_helps() -> None:
    assert run().stdout == run("--help").stdout
    assert "no commands yet" in run().stdout.replace("\n", " ")


def test_an_unknown_argument_is_a_usage_error() -> None:
    ran = run("run")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "unrecognized arguments: run" in ran.stderr
