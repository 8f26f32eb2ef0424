"""The Tab key in bash, zsh and fish, with the scripts where the documentation says that they go."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest

from tests.support.bounds import BOUND_SECONDS

ROOT = Path(__file__).parent.parent
PROGRAMS = {"ai-session": ("ai_session", "att", "attach"), "ccswarm": ("ccswarm", "wor", "worker")}
PLACES = {
    "bash": ".local/share/bash-completion/completions/{}",
    "zsh": ".zfunc/_{}",
    "fish": ".config/fish/completions/{}.fish",
}


@pytest.fixture(params=list(PROGRAMS))
def program(request: pytest.FixtureRequest, home: Path) -> str:
    """The name of a program that is on the PATH of ``environment``."""
    name: str = request.param
    file = home / "bin" / name
    file.parent.mkdir()
    file.write_text(f'#!/bin/sh\nexec {sys.executable} -m {PROGRAMS[name][0]} "$@"\n')
    file.chmod(0o755)
    return name


def environment(home: Path) -> dict[str, str]:
    path = f"{home / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "HOME": str(home), "PATH": path, "PYTHONPATH": str(ROOT), "TERM": "dumb"}


def installed(shell: str, program: str, home: Path) -> Path:
    """The completion script, put where it belongs by what docs/howto/install.md says."""
    page = (ROOT / "docs/howto/install.md").read_text()
    (block,) = re.findall(r"^```sh\n(mkdir -p .*?)^```$", page, re.MULTILINE | re.DOTALL)
    wanted = [line for line in block.splitlines() if f" completion {shell} " in line or line.startswith("mkdir")]
    assert len(wanted) == 2
    script = "\n".join(wanted).replace("ai-session", program)
    subprocess.run(["sh", "-ec", script], env=environment(home), check=True, timeout=BOUND_SECONDS)
    return home / PLACES[shell].format(program)


@contextmanager
def interactive(home: Path, *command: str) -> Iterator[pexpect.spawn[str]]:
    """A shell at a terminal, without anybody's start files."""
    shell = pexpect.spawn(
        command[0], list(command[1:]), env=environment(home), cwd=str(home), encoding="utf-8", timeout=BOUND_SECONDS
    )
    try:
        yield shell
    finally:
        shell.close(force=True)


def ready(shell: pexpect.spawn[str], *lines: str) -> None:
    for line in lines:
        shell.sendline(line)
    shell.sendline("echo rea''dy")
    shell.expect("ready\r")


@pytest.mark.either("program")
def test_bash(program: str, home: Path) -> None:
    file = installed("bash", program, home)
    _, begun, verb = PROGRAMS[program]
    with interactive(home, "bash", "--norc", "--noprofile", "-i") as shell:
        ready(shell, f"source {file}")
        shell.send(f"{program} {begun}\t")
        shell.expect_exact(f"{program} {verb} ")


@pytest.mark.torture  # test_bash has the same words completed
@pytest.mark.either("program")
def test_zsh(program: str, home: Path) -> None:
    file = installed("zsh", program, home)
    _, begun, verb = PROGRAMS[program]
    with interactive(home, "zsh", "-f", "-i") as shell:
        ready(shell, "unsetopt PROMPT_SP", f"fpath+={file.parent}; autoload -U compinit; compinit -u")
        shell.send(f"{program} {begun}\t")
        shell.expect(verb)


@pytest.mark.torture  # test_bash has the same words completed
@pytest.mark.either("program")
def test_fish(program: str, home: Path) -> None:
    installed("fish", program, home)
    _, begun, verb = PROGRAMS[program]
    ask = ["fish", "-c", f"complete -C '{program} {begun}'"]
    reported = subprocess.run(
        ask, env=environment(home), capture_output=True, text=True, check=True, timeout=BOUND_SECONDS
    )
    assert [re.split(r"\t", line)[0] for line in reported.stdout.splitlines()] == [verb]
    assert len(reported.stdout) > len(verb) + 5, "with what the verb does"
