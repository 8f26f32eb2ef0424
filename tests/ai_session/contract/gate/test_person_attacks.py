"""Whatever an agent runs outside of a box, by whatever way, its "ai-session approve" is not a person's."""

from __future__ import annotations

import os
import select
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ai_session.support import asking
from tests.ai_session.support.asking import client, error_of, greet
from tests.ai_session.support.mcp_client import BOUND_SECONDS, Message, stop_daemons
from tests.conftest import new_home
from tests.support.products import first
from tests.support.ssh_host import ROOT, SshHost, ssh_host, verb

CONFIG = """
[sandbox]
profile = "trusted"

[consent]
from_remote = "signed"

[[policy.rules]]
id = "the-agent"
decision = "allow"
tools = ["create_session"]
"""

DISGUISED = """
import ctypes, fcntl, os, pty, sys, termios
ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)
if os.fork():
    os._exit(0)
os.setsid()
child, master = pty.fork()
if child == 0:
    os.execve("/bin/sh", ["sh", "-c", sys.argv[2]], dict(os.environ))
while True:
    try:
        if not os.read(master, 4096):
            break
    except OSError:
        break
"""
"""Cut off from its parents, named as it likes, with a terminal of its own."""


def tmux_socket() -> str:
    """Return the name of the tmux server of this process of tests."""
    return f"ai-session-attacks-{os.getpid()}"


CLEAN = "env -i HOME=$HOME PATH=$PATH TERM=xterm"
WAYS = {
    "as it is": "{verb}",
    "with an empty environment": f"{CLEAN} sh -c {{quoted}}",
    "setsid": f"{CLEAN} setsid sh -c {{quoted}}",
    "nohup": f"{CLEAN} nohup sh -c {{quoted}} &",
    "script": f"{CLEAN} script -qec {{quoted}} /dev/null",
    "an orphan": f"({CLEAN} setsid sh -c {{quoted}} &)",
    "an orphan with a terminal": f"({CLEAN} setsid script -qec {{quoted}} /dev/null </dev/null >/dev/null 2>&1 &)",
    "tmux window": f"{CLEAN} tmux -L {{socket}} -f /dev/null new-session -d {{quoted}}",
    "tmux run-shell": f"{CLEAN} tmux -L {{socket}} -f /dev/null new-session -d cat \\; run-shell {{quoted}}",
    "tmux in a terminal of its own": (
        f"({CLEAN} setsid script -qec 'exec tmux -L {{socket}} -f /dev/null new-session sh\\ {{file}}' /dev/null"
        " </dev/null >/dev/null 2>&1 &)"
    ),
    "named as a way in": f"{CLEAN} {{python}} -c {{disguised}} 'sshd: me@pts/9' {{quoted}}",
    "named as a terminal program": f"{CLEAN} {{python}} -c {{disguised}} gnome-terminal- {{quoted}}",
    "named as a login": f"{CLEAN} {{python}} -c {{disguised}} login {{quoted}}",
    "named as a multiplexer": f"{CLEAN} {{python}} -c {{disguised}} 'tmux: server' {{quoted}}",
    "ssh": "{ssh} {quoted} </dev/null",
    "ssh with a terminal": "{ssh_tt} {quoted} </dev/null",
}


@pytest.fixture(scope="module")
def module_home(homes: Path) -> Iterator[Path]:
    made = new_home(homes, CONFIG)
    yield made
    stop_daemons(made)


@pytest.fixture(scope="module")
def host(module_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHost]:
    with ssh_host(tmp_path_factory.mktemp("ssh"), module_home) as found:
        yield found


@pytest.fixture(scope="module")
def question_id(module_home: Path) -> Iterator[str]:
    """Of the one question, which is asked on behalf of a client; its session is called main."""
    with client(module_home) as peer:
        greet(peer, {}, name="agent")
        assert not peer.call("create_session", name="main", backend="pty")["isError"]
        asked = peer.call("execute_command", session_id="main", command="deploy")
        assert error_of(asked)["code"] == "consent_needed"
        (question,) = asking.approvals(module_home)["questions"]
        yield question["question_id"]
        subprocess.run(["tmux", "-L", tmux_socket(), "kill-server"], check=False, capture_output=True)


KINDS = ("as it is", "setsid", "an orphan with a terminal", "tmux window", "named as a way in", "ssh with a terminal")
"""Without a terminal, detached, with one of its own, in a multiplexer, disguised, over ssh; at night all of each."""


@pytest.mark.parametrize("way", first(WAYS, *KINDS))
def test_an_agents_approval_is_refused(module_home: Path, host: SshHost, question_id: str, way: str) -> None:
    said = attacked(module_home, host, way, question_id)
    assert "answer was not accepted" in said, said
    assert [question["question_id"] for question in asking.approvals(module_home)["questions"]] == [question_id]


def attacked(module_home: Path, host: SshHost, way: str, question_id: str) -> str:
    """What the verb said, run that way from the agent's session, which has no box."""
    pipe = module_home / f"said-{way.replace(' ', '-')}"
    os.mkfifo(pipe)
    line = f"{{ PYTHONPATH={ROOT} {verb('approve', question_id)}; }} >{pipe} 2>&1"
    file = module_home / f"verb-{way.replace(' ', '-')}"
    file.write_text(line + "\n")
    words = WAYS[way].format(
        verb=line,
        quoted=shlex.quote(line),
        python=sys.executable,
        disguised=shlex.quote(DISGUISED),
        ssh=shlex.join(host.words),
        ssh_tt=shlex.join([host.words[0], "-tt", *host.words[1:]]),
        socket=tmux_socket(),
        file=file,
    )
    script = module_home / f"attack-{way.replace(' ', '-')}"
    script.write_text(words + "\n")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        typed = called(module_home, "send_input", text=f"sh {script}\n")
        said = b""
        while select.select([reader], [], [], BOUND_SECONDS)[0] and (part := os.read(reader, 65536)):
            said += part
        # What is typed while a program such as script still has the terminal is lost with it.
        while (
            called(module_home, "read_output", command_id=typed["command_id"], wait_for="finish")["waited"] == "timeout"
        ):
            pass
        return said.decode()
    finally:
        os.close(reader)


def called(module_home: Path, tool: str, **arguments: str) -> Message:
    """A tool used on the agent's session, by no agent."""
    answer = asking.control(module_home, "call", name=tool, arguments={"session_id": "main", **arguments})
    assert not answer["is_error"], answer
    return answer["structured"]
