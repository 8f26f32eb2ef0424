"""What a hostile program in a boxed shell can and cannot make its session say: see docs/explanation/sandbox.md."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ai_session.support.command_line import CommandLine
from tests.conftest import client_environment, end_leftovers, environment, new_home

FORGE = r"""
import os, re, sys
directory = os.path.dirname(sys.argv[1])
nonce = re.search(r"7777;([0-9A-F]{16})", open(directory + "/integration").read())[1]
sequence = re.search(r";C;(\d+)", open(sys.argv[1]).read())[1]
with open("/dev/tty", "w") as terminal:
    print("shown", file=terminal)
    terminal.write(f"\x1b]7777;{nonce};D;{sequence};0;;\a")
    print("kept all the same", file=terminal)
sys.exit(7)
"""


@pytest.fixture(scope="module")
def line(homes: Path) -> Iterator[CommandLine]:
    """Two boxed sessions of one user, called here and other."""
    home = new_home(homes, '[policy]\nmode = "trusted"\n')
    (home / "ws").mkdir()
    (home / "ws/forge.py").write_text(FORGE)
    env = client_environment(home) | {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    with environment(env), CommandLine(home, **env) as line:
        for name in ("here", "other"):
            line.run("new", name, "-C", "ws")
        yield line
    left = end_leftovers(home)
    assert not left, f"left behind: {left}"


def test_exit_codes_and_ends_are_the_shells_claim(line: CommandLine) -> None:
    assert line.run("exec", "here", 'python3 forge.py "$__ais_f"').stdout == "shown\n"
    assert "kept all the same" in line.out("logs", "here")
    assert line.run("exec", "here", "echo next; (exit 3)", code=3).stdout == "next\n"
    line.run("exec", "other", "exec sh -c 'exit 137'", code=137)
    end = json.loads(line.out("info", "other", "--json"))
    line.run("new", "other", "-C", "ws")
    assert end["exit"]["signal"] == 9  # what makes the box tells exit codes alone
    assert end["sandbox"] == "workspace (bwrap, network off)"


def test_nothing_of_ours_is_in_reach(line: CommandLine) -> None:
    own, other = (json.loads(line.out("info", name, "--json"))["session_id"] for name in ("here", "other"))
    runtime = line.home / ".local/state/ai-session"
    everywhere = "find / -path /usr -prune -o -path /proc -prune -o -type s -print 2>/dev/null"
    seen = line.out("exec", "here", f"cd {runtime}; ls -A . sessions sessions/{own}; {everywhere}; cd -")
    assert [word for word in seen.split() if not word.endswith(":")][:3] == ["sessions", own, "shell"]
    assert "sock" not in seen
    assert other not in seen
    for name in ("integration", "rc", "c"):
        line.run("exec", "here", f"echo x >> {runtime}/sessions/{own}/shell/{name}", code=1)
    assert (
        line.run("exec", "here", f"cat {runtime}/sessions/{other}/shell/integration", code=1).stdout.count("7777") == 0
    )
    assert os.path.exists(runtime / "sessions" / other / "shell/integration")
