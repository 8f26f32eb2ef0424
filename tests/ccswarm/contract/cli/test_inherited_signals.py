"""What servers find of the signals that whoever started ccswarm had ignored or blocked: nothing; and that what nohup or
a script's background job is not to be disturbed by does not disturb it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.ccswarm.support.runs import BASE, BOUND_SECONDS, HELD, RunVerbs
from tests.ccswarm.support.verbs import LINE, SERVERS
from tests.support import forked

DEAF = [sys.executable, str(SERVERS.parent / "deaf.py")]
NOHUP = ["sh", "-c", 'trap "" HUP INT; exec "$@"', "sh"]
LATER = """
import importlib, signal
for number in {numbers}:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {blocked})
importlib.import_module("ccswarm.__main__").main()
"""
"""What a program finds that is begun so, for one that is forked and not begun anew."""
USABLE = sum(1 << (number - 1) for number in signal.valid_signals())
"""The C library keeps two signals to itself, which nobody can set and which may come ignored from anywhere."""


ANEW = pytest.mark.parametrize("anew", [False, pytest.param(True, marks=pytest.mark.torture)])


def deaf_to(home: Path, numbers: Collection[int], blocked: Collection[int] = ()) -> str:
    script = home / "later.py"
    script.write_text(LATER.format(numbers=list(map(int, numbers)), blocked=list(map(int, blocked))))
    return str(script)


@ANEW
def test_a_server_that_is_started_by_one_who_ignores_everything(home: Path, anew: bool) -> None:
    look = f"grep -E '^Sig(Blk|Ign)' /proc/self/status >{home}/masks; exec {sys.executable} {SERVERS}/plain.py"
    verbs = RunVerbs(home, f'[[mcp.servers]]\nname = "small"\ncommand = "bash"\nargs = {json.dumps(["-c", look])}\n')
    if anew:
        subprocess.run([*DEAF, *LINE, "tools"], env=verbs.env, cwd=home, check=True, capture_output=True)
    else:
        everything = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
        script = deaf_to(home, everything, everything)
        code, _, errors = forked.run("ccswarm", ["tools"], env=verbs.env, cwd=home, script=script)
        assert code == 0, errors
    words = (home / "masks").read_text().split()
    assert [int(mask, 16) & USABLE for mask in words[1::2]] == [0, 0]


@ANEW
def test_a_run_goes_on_when_the_terminal_of_nohup_is_closed(home: Path, anew: bool) -> None:
    verbs, words = RunVerbs(home, BASE + HELD), ["run", "--json"]
    with ExitStack() as stack:
        if anew:
            line = [*NOHUP, *LINE, *words]
            verb = subprocess.Popen(line, env=verbs.env, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            stack.enter_context(verb)
            stack.callback(verb.kill)
        else:
            script = deaf_to(home, (signal.SIGHUP, signal.SIGINT))
            verb = forked.piped("ccswarm", words, env=verbs.env, cwd=home, script=script)
            stack.callback(verb.close)
        with verbs.held() as pipe:
            for number in (signal.SIGHUP, signal.SIGINT):
                verb.send_signal(number)
            pipe.write("at last")
        out, _ = verb.communicate(timeout=BOUND_SECONDS)
    assert verb.returncode == 0
    assert json.loads(out.splitlines()[-1])["tasks"]["hold"]["result"]["steps"]["wait"]["text"] == "at last"
