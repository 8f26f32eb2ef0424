"""Every way in, taken from the programs' own tables: each passes the gate once, and does nothing where that is shut.

Passing is one begin and one end record. Doing nothing is a home (sessions, their output, settings, workspace) that is
the same file for file afterwards, under the same daemon.
"""

from __future__ import annotations

import os
import resource
import select
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pexpect
import pytest
from typer.main import get_command

from agentwire import plugins
from ai_session.cli import main
from ai_session.client.connection import connect
from ai_session.daemon import host
from ai_session.servers.control import plugin as control
from ai_session.servers.control import requests, streams
from tests.ai_session.support.command_line import finish
from tests.ai_session.support.entries import Audit, DaemonHome, daemon_home, denial
from tests.ai_session.support.mcp_client import BOUND_SECONDS, daemon_pids
from tests.conftest import new_home
from tests.support import forked

NOBODY = "ap_nobody"


@pytest.fixture
def here(home: Path) -> Iterator[DaemonHome]:
    with daemon_home(home) as made:
        yield made


@pytest.fixture(scope="module")
def quiet_house(homes: Path) -> Iterator[DaemonHome]:
    """For what changes nothing in it; its terminals may be watched, but nobody types."""
    rules = '[[policy.rules]]\nid = "shut"\ndecision = "deny"\ntools = ["attach", "watch"]\neffects = ["execute"]\n'
    with daemon_home(new_home(homes), rules) as made:
        yield made


@dataclass(frozen=True)
class Way:
    """A verb's words; what it asks the gate for, in order, also where all is denied, and its exit code then."""

    words: str
    asks: Sequence[str]
    shut: Sequence[str] = ()
    code: int = 1


VERBS: dict[str, Way | str] = {
    "new": Way("new new --backend pty", ["create_session"]),
    "ls": Way("ls", ["list_sessions"]),
    "info": Way("info s", ["get_session_info"]),
    "exec": Way("exec -n s true", ["execute_command"], code=125),
    "send": Way("send s -k Enter", ["send_input"]),
    "screen": Way("screen s", ["read_screen"]),
    "logs": Way("logs s", ["read_output"]),
    "interrupt": Way("interrupt s", ["interrupt_command"]),
    "rename": Way("rename t u", ["rename"]),
    "share": Way("share u agent:scout", ["share"]),
    "kill": Way("kill u", ["close_session"]),
    "replay": Way("replay s", ["record"]),
    "record export": Way("record export s -o cast", ["record"]),
    "approvals": Way("approvals", ["approvals"]),
    "approve": Way(f"approve {NOBODY}", ["answer"]),
    "reject": Way(f"reject {NOBODY}", ["answer"]),
    "person show": Way("person show", ["person"]),
    "person remove": Way("person remove", ["unenrol"]),
    "person enrol": "is typed in a terminal; what it asks for is tried below",
    "policy show": Way("policy show", ["policy"]),
    "policy mode": Way("policy mode ask-all", ["policy"]),
    "policy explain": Way("policy explain ls", ["policy"]),
    "doctor": Way("doctor", ["list_sessions", "policy"]),
    "daemon start": Way("daemon start", ["list_sessions"]),
    "daemon status": Way("daemon status", ["list_sessions"]),
    "attach": Way("attach s", ["get_session_info", "attach", "watch"], ["get_session_info"]),
    "sandbox": Way("sandbox --profile workspace --workspace w -- touch made", ["sandbox"], code=125),
    "daemon restart": Way("daemon restart", ["stop", "list_sessions"], ["stop"]),
    "daemon stop": Way("daemon stop --yes", ["list_sessions", "stop"]),
    "daemon run": "is the daemon; what reaches it is tried here",
    "mcp-server": "is the way of MCP clients, which is tried below",
    "serve": "is the way of other clients; they come by the front, which is tried below",
    "console": "is the way of a person's browser; what that may ask for has tests of its own",
    "completion": "prints a script of the shell",
    "top": Way("top", ["approvals", "list_sessions"], ["approvals"]),
    "notify test": "sends a notice by the ways of the configuration",
    "docs": "prints the pages of the package",
    "audit tail": "reads the log's files, which only their owner can, and must tell when there is no daemon",
    "audit show": "reads the log's files",
    "audit verify": "reads the log's files",
    "audit export": "reads the log's files",
    "policy check": "reads the configuration",
    "policy protected": "reads the configuration",
    "config show": "reads the configuration",
    "config check": "reads the configuration",
    "config path": "names a file",
    "config init": "writes the configuration, which its owner may",
    "token": "reads or writes a file of its owner",
    "mcp install": "writes the settings of other programs, which their owner may",
    "mcp uninstall": "writes the settings of other programs, which their owner may",
    "mcp status": "reads the settings of other programs",
    "http client add": "writes who may use the front, a file of its owner",
    "http clients list": "reads who may use the front, a file of its owner",
    "http clients revoke": "writes who may use the front, a file of its owner",
    "http tokens list": "reads who may use the front, a file of its owner",
    "http tokens revoke": "writes who may use the front, a file of its owner",
    "http user add": "writes who may use the front, a file of its owner",
    "http users list": "reads who may use the front, a file of its owner",
    "http users revoke": "writes who may use the front, a file of its owner",
}
"""Each verb, in an order in which they can be tried; with a reason where it touches no session."""

QUIET = {
    "completion bash",
    "audit tail",
    "audit show 1",
    "audit verify",
    "audit export",
    "policy check",
    "config show",
    "config check",
    "config path",
    "mcp status",
}
"""What those that touch no session are run with."""


def verbs(command: Any, *names: str) -> Iterator[str]:
    """Every verb of the command line, with the name of its group."""
    if not hasattr(command, "commands"):
        yield " ".join(names)
        return
    for name, inner in command.commands.items():
        yield from verbs(inner, *names, name)


def test_every_verb_has_its_entry() -> None:
    assert set(verbs(get_command(main.program()))) == set(VERBS)


APART = {"sandbox", "top", "doctor", "daemon restart"}
"""What starts processes of its own, or loads more than this process has."""


def enter(here: DaemonHome, verb: str, way: Way) -> tuple[int, str]:
    """Use a verb as a person does: some need a terminal, or a process apart."""
    words = way.words.split()
    if verb == "attach":
        terminal = here.line.spawn(*words)
        if terminal.expect([rb"\x1b\[2J", b"error: "]) == 0:
            terminal.send(b"\x1d")
        terminal.expect(pexpect.EOF)
        terminal.close()
        return terminal.exitstatus or 0, str(terminal.before)
    if verb in APART:
        with here.line.start(*words) as process:
            out, err = finish(process)
            return process.returncode, out + err
    return here.verb(*words)


def test_every_verb_passes_the_gate_once(here: DaemonHome) -> None:
    audit = Audit(here.runtime)
    for verb, way in VERBS.items():
        if isinstance(way, Way):
            code, printed = enter(here, verb, way)
            here.settle()
            assert audit.tools() == way.asks, (verb, code, printed)
    assert (here.home / "w/made").exists()
    assert (here.home / "cast").exists()


def test_every_verb_does_nothing_where_all_is_denied(shut_house: DaemonHome) -> None:
    here = shut_house
    audit, before = Audit(here.runtime), here.state()
    for verb, way in VERBS.items():
        if isinstance(way, Way):
            code, printed = enter(here, verb, way)
            here.settle()
            assert (code, audit.denied()) == (way.code, [*(way.shut or way.asks)]), (verb, printed)
            assert here.state() == before, verb


def test_verbs_that_touch_no_session_ask_for_nothing(quiet_house: DaemonHome) -> None:
    here = quiet_house
    audit, before = Audit(here.runtime), here.state()
    for words in QUIET:
        code, printed = here.verb(*words.split())
        assert code == 0, (words, printed)
    assert audit.tools() == []
    after = here.state()
    changed = {path for path in after if after[path] != before.get(path) and not Path(path).is_dir()}
    assert {Path(path).name for path in changed} == {"audit-anchor.json"}


@pytest.mark.parametrize(
    ("words", "asks"), [("ai-session info ", "list_sessions"), ("ai-session approve ", "approvals")]
)
def test_the_shells_completion_passes_the_gate(
    quiet_house: DaemonHome, shut_house: DaemonHome, words: str, asks: str
) -> None:
    def complete(here: DaemonHome) -> str:
        variables = {"_AI_SESSION_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "2"}
        code, found, errors = forked.run("ai_session", [], cwd=here.home, env=here.line.env | variables)
        assert code == 0, errors
        return found.decode()

    audit = Audit(quiet_house.runtime)
    assert ("s\nt" in complete(quiet_house)) == (asks == "list_sessions")
    assert audit.tools() == [asks]
    audit = Audit(shut_house.runtime)
    assert complete(shut_house).strip() == ""
    assert audit.denied() == [asks]


METHODS: dict[str, tuple[dict[str, Any], Sequence[str]]] = {
    "call": ({"name": "list_sessions"}, ["list_sessions"]),
    "rename": ({"session": "t", "name": "u"}, ["rename"]),
    "share": ({"session": "u", "names": ["agent:scout"]}, ["share"]),
    "record": ({"session": "s"}, ["record"]),
    "approvals": ({}, ["approvals"]),
    "approve": ({"question_id": NOBODY}, ["answer"]),
    "reject": ({"question_id": NOBODY}, ["answer"]),
    "person": ({}, ["person"]),
    "enrol": ({"key": f"scrypt-ed25519 {'0' * 32} {'0' * 64}"}, ["enrol"]),
    "unenrol": ({}, ["unenrol"]),
    "policy": ({"mode": "ask-all"}, ["policy"]),
    "explain": ({"command": "ls"}, ["explain"]),
    "status": ({}, []),
    "settings": ({}, []),
    "sandbox": ({"argv": ["true"], "profile": "workspace", "workspace": "/", "domains": []}, ["sandbox"]),
    "attach": ({"session": "s", "rows": 24, "cols": 80}, ["attach"]),
    "stream": ({"session": "s"}, ["attach"]),
    "take_over": ({"session": "s", "who": "console"}, ["attach"]),
    "changes": ({}, ["watch_changes"]),
    "close_stream": ({"stream": 1}, []),
    "acknowledge": ({"stream": 1, "offset": 0}, []),
    "type": ({"session_id": "s"}, []),
    "resize": ({"session_id": "s", "rows": 24, "cols": 80}, []),
    "release": ({"session_id": "s"}, []),
    "stop": ({"sessions": True}, ["stop"]),
}
"""Parameters of each method of the control protocol, and what it asks the gate for. ``status`` tells of the process:
version, pid, uptime and how many are connected."""


def test_every_method_of_the_control_protocol_has_its_entry() -> None:
    assert {*requests.METHODS, *control.HOLDING, *streams.METHODS, *streams.INLINE} == METHODS.keys()


def test_every_method_of_the_control_protocol_passes_the_gate_once(here: DaemonHome) -> None:
    audit = Audit(here.runtime)
    for method, (params, asks) in METHODS.items():
        with connect() as client:
            gone = os.pidfd_open(client.hello["pid"])
            denial(client, method, **params)
        if method == "stop":
            assert select.select([gone], [], [], BOUND_SECONDS)[0]
        os.close(gone)
        here.settle()
        assert audit.tools() == asks, method


def test_every_method_of_the_control_protocol_does_nothing_where_all_is_denied(shut_house: DaemonHome) -> None:
    here = shut_house
    audit, before = Audit(here.runtime), here.state()
    for method, (params, asks) in METHODS.items():
        with here.line.client() as client:
            said = denial(client, method, **params)
            assert ("shut" in said) == bool(asks), said
            assert audit.denied() == asks, method
            if method in ("attach", "sandbox"):  # what was not let in does not hold the connection
                assert "pid" in client.request("status")
    with here.line.client() as client:
        denial(client, "attach", session="s", rows=0, cols=0, read_only=True)
        denial(client, "approvals", wait=True)
    assert audit.denied() == ["attach", "watch"]
    assert here.state() == before


def test_watching_and_typing_are_different_things_to_the_policy(quiet_house: DaemonHome) -> None:
    audit = Audit(quiet_house.runtime)
    with quiet_house.line.client() as client:
        assert "denied by shut" in denial(client, "attach", session="s")
    with quiet_house.line.client() as client:
        client.attach("s", rows=0, cols=0, read_only=True)
    quiet_house.settle()
    (refused, _), (watched, end) = audit.calls()
    assert (refused["args"]["read_only"], watched["args"]["read_only"], end["outcome"]) == (False, True, "ok")


def test_a_daemon_that_cannot_write_its_audit_log_runs_nothing_and_can_be_ended(here: DaemonHome) -> None:
    (pid,) = daemon_pids(here.home)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    for verb, code in (("new", 1), ("exec", 125), ("sandbox", 125)):
        way = VERBS[verb]
        assert isinstance(way, Way)
        found, printed = enter(here, verb, way)
        assert found == code, printed
        assert "the audit log cannot be written" in printed
    assert not (here.home / "w/made").exists()
    assert here.verb("ls")[0] == 0
    code, printed = here.verb("daemon", "stop", "--keep-sessions")
    assert (code, daemon_pids(here.home)) == (0, [])
    assert "may be missing from the audit log" in printed


def test_no_role_and_no_server_is_left_out() -> None:
    """Who says ``leave`` only makes a daemon go that serves nobody and holds no session."""
    assert host.ROLES == ("mcp", "fluxloop", "control", "front", "leave")
    assert [name for name in plugins.names("ai_session.servers") if "_" not in name] == [
        "control",
        "fluxloop",
        "front",
        "mcp",
    ]
