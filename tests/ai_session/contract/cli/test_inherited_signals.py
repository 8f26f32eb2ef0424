"""What commands of sessions find of the signals that whoever started ai-session had ignored or blocked: nothing.

A script's background job ignores Ctrl-C and Ctrl-\\, nohup the hangup; what is blocked is passed on as well.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.ai_session.support.command_line import BOUND_SECONDS, LINE, CommandLine
from tests.ai_session.support.mcp_client import SERVER, Client
from tests.conftest import new_home
from tests.support import forked

DEAF = str(Path(__file__).parents[3] / "data/start_deaf.py")
"""Begins a program with every signal ignored and blocked."""

LOOK = "grep -hE '^Sig(Blk|Ign)' /proc/self/status"
USABLE = sum(1 << (number - 1) for number in signal.valid_signals())
"""The C library keeps two signals to itself, which nobody can set and which may come ignored from anywhere."""

BOXES = '[policy]\nmode = "trusted"\n'
Call = Callable[..., dict[str, Any]]
Server = Callable[..., Client]


@pytest.fixture
def boxed(homes: Path) -> Iterator[CommandLine]:
    """A home whose sessions start in boxes, and may start without."""
    with CommandLine(new_home(homes, BOXES)) as line:
        yield line


@pytest.fixture
def server(boxed: CommandLine) -> Iterator[Server]:
    started: list[Client] = []

    def start(*words: str) -> Client:
        started.append(Client([*SERVER, *words], script=DEAF, env=boxed.env, cwd=boxed.home))
        started[-1].initialize()
        return started[-1]

    yield start
    for client in started:
        with client:
            assert client.end()[0] == 0


def masks(text: str) -> list[int]:
    return [int(word, 16) & USABLE for word in text.split()[1::2]]


def seen_in(call: Call, **session: str) -> list[int]:
    """What is blocked and ignored in a command of a new session."""
    name = "-".join(session.values())
    opened = call("create_session", name=name, **session)
    assert not opened["isError"], opened
    done = call("execute_command", session_id=name, command=LOOK)["structuredContent"]
    assert done["exit_code"] == 0, done
    return masks(done["output"])


NO_DAEMON = pytest.param(("--stdio", "--no-daemon"), ("zsh", "fish", "sh"), marks=pytest.mark.torture)


@pytest.mark.parametrize(("way", "shells"), [(("--stdio",), ("fish",)), NO_DAEMON])
def test_a_client_that_ignores_everything(server: Server, way: tuple[str, ...], shells: tuple[str, ...]) -> None:
    call = server(*way[1:]).call
    for backend, profile in (("pty", "workspace"), ("tmux", "trusted")):
        assert seen_in(call, backend=backend, profile=profile) == [0, 0], (backend, profile)
    for shell in shells:
        assert seen_in(call, shell=shell, profile="trusted") == [0, 0], shell


@pytest.mark.torture
def test_a_verb_that_starts_the_daemon(boxed: CommandLine) -> None:
    code, *said = forked.run("ai_session", ["daemon", "start"], cwd=boxed.home, env=boxed.env, script=DEAF)
    assert code == 0, said
    for backend in ("pty", "tmux"):
        boxed.run("new", backend, "--backend", backend)
        assert masks(boxed.out("exec", backend, "--", LOOK)) == [0, 0], backend


def test_a_daemon_in_the_foreground_survives_what_it_was_told_to_ignore(boxed: CommandLine) -> None:
    with ExitStack() as stack:
        daemon = forked.piped("ai_session", ["daemon", "run"], cwd=boxed.home, env=boxed.env, script=DEAF)
        stack.callback(daemon.close)
        assert daemon.stderr
        assert b"serving on" in daemon.stderr.readline()
        for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
            daemon.send_signal(number)
        boxed.run("new", "main", "--backend", "tmux")
        assert masks(boxed.out("exec", "main", "--", LOOK)) == [0, 0]
        assert boxed.daemon_pid() == daemon.pid
        boxed.run("daemon", "stop")
        assert daemon.wait(BOUND_SECONDS) == 0


def test_a_background_jobs_command_is_not_interrupted_by_ctrl_c_in_another(boxed: CommandLine) -> None:
    boxed.run("new", "main", "--profile", "trusted")
    os.mkfifo(boxed.home / "fifo")
    command = [
        "sh",
        "-c",
        'trap "" INT; exec "$@"',
        "sh",
        *LINE,
        "exec",
        "main",
        "--",
        f"read -r line <{boxed.home}/fifo; echo got $line",
    ]
    with subprocess.Popen(command, env=boxed.env, cwd=boxed.home, stdout=subprocess.PIPE) as verb:
        with (boxed.home / "fifo").open("w") as writer:  # opened once the command reads
            verb.send_signal(signal.SIGINT)
            writer.write("it\n")
        assert verb.communicate(timeout=BOUND_SECONDS)[0] == b"got it\n"
        assert verb.returncode == 0
