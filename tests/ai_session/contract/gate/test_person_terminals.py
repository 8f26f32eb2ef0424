"""Where a terminal comes from, as the kernel tells it of real ones."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.ai_session.support.command_line import CommandLine
from tests.ai_session.support.mcp_client import BOUND_SECONDS, living_in, stop_daemons
from tests.conftest import new_home
from tests.support.products import first
from tests.support.ssh_host import ROOT, SshHost, ssh_host, verb


def tmux_socket() -> str:
    """Return the name of the tmux server of this process of tests."""
    return f"ai-session-terminals-{os.getpid()}"


WAYS = {
    "the window itself": ("{line}", "local"),
    "a shell in it": ("sh -c {quoted}", "local"),
    "script, which types whatever it is given": ("script -qec {quoted} /dev/null", "detached"),
    "tmux": ("tmux -L {socket} -f /dev/null new-session {quoted}", "local"),
    "in the background": ("bash -mc {background}", "detached"),
    "without the window": ("setsid -w sh -c {quoted}", "none"),
}


@pytest.fixture(scope="module")
def module_home(homes: Path) -> Iterator[Path]:
    made = new_home(homes)
    yield made
    subprocess.run(["tmux", "-L", tmux_socket(), "kill-server"], check=False, capture_output=True)
    stop_daemons(made)


def shown(module_home: Path, way: str, host: SshHost | None = None) -> tuple[str, str]:
    """Origin and reason, of a verb that runs that way in a window of the test or of its ssh client."""
    found = module_home / "found"
    line = f"{verb('person', 'show', '--json')} >{found} 2>&1"
    words = way.format(
        line=line, quoted=shlex.quote(line), background=shlex.quote(f"{line} & wait"), socket=tmux_socket()
    )
    argv = [host.words[0], "-tt", *host.words[1:], words] if host else ["/bin/sh", "-c", words]
    env = {**living_in(module_home), "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    window = pexpect.spawn(argv[0], argv[1:], env=env, cwd=str(module_home), timeout=BOUND_SECONDS, encoding="utf-8")  # pyright: ignore[reportArgumentType]
    window.expect(pexpect.EOF)
    window.close()
    facts = json.loads(found.read_text())
    return facts["origin"], facts["why"]


DAILY = ("the window itself", "script, which types whatever it is given", "tmux", "without the window")


@pytest.mark.parametrize("way", first(WAYS, *DAILY))
def test_a_window_of_this_machine_is_told_from_what_is_cut_off_from_it(module_home: Path, way: str) -> None:
    words, origin = WAYS[way]
    found, why = shown(module_home, words)
    assert found == origin, why


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.torture)])
def test_a_passphrase_is_chosen_and_changed_in_a_window_as_it_is(module_home: Path, times: int) -> None:
    for _ in range(times):
        window = CommandLine(module_home, TERM="xterm").spawn("person", "enrol")
        for prompt in ("New passphrase, 10 characters or more: ", "Repeat it: "):
            window.expect_exact(prompt)
            window.sendline("correct horse")
        window.expect_exact("counts as your answer")
        window.expect(pexpect.EOF)
        window.close()


@pytest.mark.torture  # by day a multiplexer is shown here
def test_a_multiplexer_is_where_it_is_shown(module_home: Path, tmp_path: Path) -> None:
    with ssh_host(tmp_path, module_home) as host:
        origin, why = shown(module_home, WAYS["tmux"][0], host)
        assert origin == "remote", why
        assert "in another terminal" in why
        origin, why = shown(module_home, "script -qec {quoted} /dev/null", host)
        assert origin == "detached", why
