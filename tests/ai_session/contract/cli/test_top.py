"""The verb top: sessions listed, shown and attached to, questions answered, the next daemon followed."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pexpect
import pytest

from tests.ai_session.support.asking import client, error_of, greet
from tests.ai_session.support.command_line import CommandLine
from tests.ai_session.support.top_screens import Shown, top
from tests.conftest import NO_RUNS
from tests.support.bounds import BOUND_SECONDS
from tests.support.ssh_host import ssh_host, verb


@pytest.fixture(autouse=True)
def no_runs(home: Path) -> None:
    """What shows runs has tests of its own, in tests/together."""
    with (home / ".config/ai-session/config.toml").open("a") as settings:
        settings.write(NO_RUNS)


def test_sessions_are_listed_shown_live_and_attached_to(home: Path) -> None:
    with CommandLine(home) as line:
        with top(home) as shown:
            shown.shows("No sessions. Open one: ai-session new", "nothing waits")
            line.run("new", "build", "--backend", "pty")
            shown.shows("build", "1 session, nothing waits")
            # Titles, links, the clipboard and questions of a program are not this terminal's.
            titled = r"\033]0;owned\a\033]52;c;b3duZWQ=\a\033]8;;http://evil\a"
            hostile = rf"printf '{titled}\033[31mred-%s\033[0m\033[6n\n' $((6*7))"
            line.run("exec", "build", "--", f"{hostile}; (exit 3)", code=3)
            shown.shows("red-42", "exit 3")
            line.run("new", "other", "--backend", "pty")
            line.run("exec", "-t", "0", "other", "--", "read answer; echo got-$answer", code=124)
            shown.shows("other", "waits for input")
            shown.person.send(b"\x1b[B")
            shown.shows("read answer")
            shown.lacks("red-42")
            shown.person.send(b"\r")
            shown.lacks("2 sessions")  # the whole terminal is the session's
            shown.shows("read answer")
            shown.person.send(b"one\r")
            shown.shows("got-one")
            shown.person.send(b"\x1d")
            shown.shows("2 sessions", "got-one")
            shown.person.send(b"\x1b[A")
            shown.shows("red-42")
            line.run("exec", "-t", "0", "build", "--", "echo begun; sleep 1000", code=124)
            shown.shows("begun", "running")
            shown.person.send(b"i")
            shown.shows("exit 130")
            assert not any(mark in shown.raw for mark in (b"\x1b]0;", b"\x1b]52;", b"\x1b]8;;http"))
            shown.person.send(b"q")
            assert shown.person.wait() == 0
        assert [row.split("\t")[:2] for row in line.out("top").splitlines()] == [["build", "ready"], ["other", "ready"]]
        reported = json.loads(line.out("top", "--json"))
        assert ([one["name"] for one in reported["sessions"]], reported["questions"]) == (["build", "other"], [])


def test_a_question_is_shown_whole_and_answered_by_one_key(home: Path) -> None:
    settings = home / ".config/ai-session/config.toml"
    settings.write_text(settings.read_text().replace('mode = "trusted"', 'mode = "ask-all"'))
    with CommandLine(home) as line:
        line.run("new", "main", "--backend", "pty")
        with top(home) as shown, client(home) as peer:
            shown.shows("1 session, nothing waits")
            greet(peer, {})
            assert error_of(peer.call("execute_command", session_id="main", command="echo $((6*7))"))
            shown.shows("asks you", "1 waiting for your answer")
            shown.person.send(b"\x1b[A")
            shown.person.send(b"y")  # typed for something else
            shown.shows("echo $((6*7))", "stopped typing")
            shown.shows("y once")
            shown.person.send(b"y")
            shown.shows("1 session, nothing waits")
            assert peer.call("execute_command", session_id="main", command="echo $((6*7))")["structuredContent"]
            shown.shows("42")
            long = "touch forbidden\n" + "\n".join(f"echo {number}" for number in range(60))
            assert error_of(peer.call("execute_command", session_id="main", command=long))
            shown.shows("asks you")
            shown.person.send(b"\x1b[A")
            shown.shows("y once")
            shown.person.send(b"y")
            shown.shows("read it to the end")
            shown.person.send(b"n")
            shown.shows("1 session, nothing waits")
            assert "denied" in error_of(peer.call("execute_command", session_id="main", command=long))["code"]
        assert not (home / "forbidden").exists()


LATE = """
import json, sys
print(json.dumps({"runs": 1, "program": "late"}), flush=True)
opened = open(sys.argv[1])
opened.read()
run = {"run": "run_1", "name": "release", "status": "waiting_approval", "tasks": "1 waits"}
asked = {"id": "ap_1", "run": "run_1", "task": "", "agent": "ada", "question": "Whether to go on"}
asked |= {"merges": False, "answers": ["once"], "arguments": []}
for line in sys.stdin:
    request = json.loads(line)
    result = {"list": {"runs": [run]}, "questions": {"questions": [asked]}}[request["method"]]
    print(json.dumps({"id": request["id"], "result": result}), flush=True)
"""
"""A program that reports runs once somebody has opened and closed its FIFO."""


@pytest.mark.parametrize(
    ("keys", "chosen"),
    [(b"\x1b[B", " web  /"), pytest.param(b"", " ada in run_1", marks=pytest.mark.torture)],
)
def test_the_first_row_is_chosen_until_all_were_heard_or_a_key_is_pressed(home: Path, keys: bytes, chosen: str) -> None:
    """Sessions are known before runs; what waits for an answer stands above both."""
    (home / "late.py").write_text(LATE)
    settings = home / ".config/ai-session/config.toml"
    reported = settings.read_text().replace(NO_RUNS, "")
    with CommandLine(home) as line:
        for name in ("api", "web"):
            line.run("new", name, "--backend", "pty")
        gate = home / "gate"
        os.mkfifo(gate)
        words = json.dumps([sys.executable, str(home / "late.py"), str(gate)])
        settings.write_text(f"{reported}\n[console]\nruns = {words}\n")
        with top(home) as shown:
            shown.shows("api", "web", " api  /")
            if keys:
                shown.person.send(keys)
                shown.shows(chosen)
            gate.open("w").close()
            shown.shows("release", "1 waiting for your answer", chosen)
            shown.person.send(b"q")
            assert shown.person.wait() == 0


def test_the_next_daemon_is_followed_and_a_stop_ends_it(home: Path) -> None:
    with CommandLine(home) as line:
        line.run("new", "build", "--backend", "pty")
        with top(home) as shown:
            shown.shows("build", "ready")
            os.kill(line.daemon_pid(), signal.SIGKILL)
            line.run("exec", "build", "--", "echo again-$((40+2))")
            shown.shows("again-42")
            line.run("daemon", "stop")
            assert shown.person.wait() == 4
            shown.person.expect_exact("the daemon was stopped")


COLOUR = re.compile(rb"\x1b\[(?:[\d;:]*;)?(?:3[0-79]|4[0-79]|9[0-7]|10[0-7]|[34]8;5;(\d+))[;m]")
GREYS = {b"%d" % number for number in (0, 15, 16, 59, 102, 145, 188, 231, *range(232, 256))}


def test_a_small_window_without_colours_shows_how_each_stands(home: Path) -> None:
    with CommandLine(home) as line:
        for name in ("api", "n" * 60):
            line.run("new", name, "--backend", "pty")
        line.run("exec", "api", "--", r"printf '\033[31mred\033[0m\n'; (exit 3)", code=3)
        with top(home, size=(10, 40), NO_COLOR="1", TERM="xterm-256color", COLORTERM="") as shown:
            shown.shows("api", "exit 3  printf '\\03…", "nnnn…", "ready", "red")
            assert set(COLOUR.findall(shown.raw)) <= GREYS
            shown.person.send(b"q")
            assert shown.person.wait() == 0


@pytest.mark.torture  # the tests above have it on a terminal
def test_it_works_over_ssh_inside_tmux(home: Path, tmp_path: Path) -> None:
    with CommandLine(home) as line, ssh_host(tmp_path, home) as host:
        line.run("new", "build", "--backend", "pty")
        inside = ["env", f"TMUX_TMPDIR={tmp_path}", "tmux", "-u", "-f", "/dev/null", "new", verb("top")]
        words = ["-tt", *host.words[1:], shlex.join(inside)]
        env = {**os.environ, "TERM": "xterm-256color"}
        person = pexpect.spawn(host.words[0], words, timeout=BOUND_SECONDS, dimensions=(24, 80), env=env)
        try:
            shown = Shown(person, (24, 80))
            shown.shows("build", "ready", "1 session, nothing waits")
            line.run("exec", "build", "--", "echo again-$((40+2)); (exit 3)", code=3)
            shown.shows("again-42", "exit 3")
            person.send(b"q")
            person.expect(pexpect.EOF)
        finally:
            person.close(force=True)
