"""What servers find of the signals that whoever started ccswarm had ignored or blocked: nothing; and that what nohup or
a script's background job is not to be disturbed by does not disturb it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ccswarm.support.runs import BASE, BOUND_SECONDS, HELD, RunVerbs
from tests.ccswarm.support.verbs import LINE, SERVERS

DEAF = [sys.executable, str(SERVERS.parent / "deaf.py")]
NOHUP = ["sh", "-c", 'trap "" HUP INT; exec "$@"', "sh"]
USABLE = sum(1 << (number - 1) for number in signal.valid_signals())
"""The C library keeps two signals to itself, which nobody can set and which may come ignored from anywhere."""


@pytest.fixture
def verbs(home: Path) -> RunVerbs:
    return RunVerbs(home, BASE + HELD)


def test_a_server_that_is_started_by_one_who_ignores_everything(home: Path) -> None:
    look = f"grep -E '^Sig(Blk|Ign)' /proc/self/status >{home}/masks; exec {sys.executable} {SERVERS}/plain.py"
    verbs = RunVerbs(home, f'[[mcp.servers]]\nname = "small"\ncommand = "bash"\nargs = {json.dumps(["-c", look])}\n')
    subprocess.run([*DEAF, *LINE, "tools"], env=verbs.env, cwd=home, check=True, capture_output=True)
    words = (home / "masks").read_text().split()
    assert [int(mask, 16) & USABLE for mask in words[1::2]] == [0, 0]


def test_a_run_goes_on_when_the_terminal_of_nohup_is_closed(verbs: RunVerbs) -> None:
    with subprocess.Popen(
        [*NOHUP, *LINE, "run", "--json"], env=verbs.env, cwd=verbs.home, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as verb:
        with verbs.held() as pipe:
            for number in (signal.SIGHUP, signal.SIGINT):
                verb.send_signal(number)
            pipe.write("at last")
        out, _ = verb.communicate(timeout=BOUND_SECONDS)
    assert verb.returncode == 0
    assert json.loads(out.splitlines()[-1])["tasks"]["hold"]["result"]["steps"]["wait"]["text"] == "at last"
