"""``ai-session sandbox`` and the gate: nothing runs unjudged, and what is recorded however a program ends."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ai_session.client.connection import ControlClient, connect
from ai_session.config import config
from ai_session.errors import AiSessionError, DaemonUnavailable
from ai_session.gate.policy import administrator
from ai_session.models import SandboxLevel
from ai_session.sandbox.probe import SandboxStatus
from ai_session.sandbox.sandbox import Machine, Sandbox, ids
from tests.ai_session.support.command_line import BOUND_SECONDS, CommandLine, finish
from tests.ai_session.support.entries import Audit
from tests.ai_session.support.mcp_client import daemon_pids, runtime
from tests.support.bounds import pause

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
WORDS = ("--profile", "workspace", "--workspace", "w", "--")


@pytest.fixture
def own(home: Path) -> Iterator[CommandLine]:
    """With a daemon of the test's own."""
    with started(home) as line:
        yield line


@pytest.fixture(scope="module")
def line(shared_home: Path) -> Iterator[CommandLine]:
    with started(shared_home) as line:
        yield line


@contextmanager
def started(home: Path) -> Iterator[CommandLine]:
    (home / "w").mkdir()
    with CommandLine(home) as line:
        with line.client():
            pass
        yield line


@pytest.fixture
def audit(line: CommandLine) -> Audit:
    return Audit(runtime(line.home))


def test_both_records_tell_all_of_it_but_its_secrets(line: CommandLine, audit: Audit) -> None:
    script = f": {SECRET}; exit 7"
    assert line.run("sandbox", *WORDS, "sh", "-c", script, code=7).stderr == ""
    ((begin, end),) = audit.calls()
    assert begin["actor"]["kind"] == "person"
    assert begin["args"]["profile"] == "workspace"
    assert begin["args"]["working_directory"] == str(line.home / "w")
    text = begin["args"]["command"]["text"]
    assert text.startswith("sh -c ': ")
    assert SECRET not in text
    assert (end["outcome"], end["exit_code"], end["profile"], end["level"]) == ("ok", 7, "workspace", "bwrap")
    assert end["cwd"] == str(line.home / "w")
    assert end["decision"]["verdict"] == "allow"
    shown = json.loads(line.out("audit", "show", begin["call"], "--json"))
    assert [record["event"] for record in shown] == ["tool.start", "tool.end"]


def test_what_its_box_asks_of_the_network_is_recorded_with_its_call(line: CommandLine, audit: Audit) -> None:
    request = r"CONNECT evil.org:443 HTTP/1.1\r\nHost: x\r\n\r\n"
    script = f"exec 3<>/dev/tcp/127.0.0.1/${{https_proxy##*:}} && printf '{request}' >&3; cat <&3"
    line.run("sandbox", "--allow-domain", "allowed.example", *WORDS, "bash", "-c", script)
    ((begin, _),) = audit.calls()
    denied = audit.newest("net.deny")
    assert (denied["call"], denied["actor"]["kind"]) == (begin["call"], "person")
    assert (denied["host"], denied["port"], denied["method"], denied["count"]) == ("evil.org", 443, "CONNECT", 1)
    assert denied["why"] == "evil.org is not on this session's list of allowed domains"


def test_what_a_client_makes_up_of_its_box_is_not_recorded(line: CommandLine, audit: Audit) -> None:
    asked = {"argv": ["true"], "profile": "workspace", "workspace": str(line.home), "domains": []}
    with line.client() as client:
        client.request("sandbox", **asked)
        client.request("reached", event="net.allow", host="h" * 1000, port="443", count=1, session="made up")
        with pytest.raises(AiSessionError, match=r"net\.allow, net\.deny"):
            client.request("reached", event="audit.open")
    reported = audit.newest("net.allow")
    assert (reported["host"], reported["count"]) == ("h" * 253, 1)
    assert "port" not in reported
    assert "session" not in reported


def test_bytes_that_are_no_text_can_be_words_of_it(line: CommandLine, audit: Audit) -> None:
    with line.start("sandbox", *WORDS, "printf", "%s", os.fsdecode(b"a\xffb")) as process:
        assert process.communicate(timeout=BOUND_SECONDS) == (b"a\xffb", b"")
    ((_, end),) = audit.calls()
    assert end["outcome"] == "ok"


def test_what_cannot_get_a_box_is_recorded_with_the_reason(line: CommandLine, audit: Audit) -> None:
    home = str(line.home)
    failed = line.run("sandbox", "--profile", "workspace", "--workspace", home, "--", "touch", "made", code=125)
    assert "error: " in failed.stderr
    ((_, end),) = audit.calls()
    assert (end["outcome"], end["code"]) == ("tool_error", "sandbox_refused")
    assert not (line.home / "made").exists()


def test_nothing_runs_where_no_daemon_can_be_had(home: Path) -> None:
    (home / "w").mkdir()
    runtime(home).mkdir(mode=0o755, parents=True)
    runtime(home).chmod(0o755)
    failed = CommandLine(home).run("sandbox", *WORDS, "touch", "made", code=125)
    assert "is open to others (mode 0755)" in failed.stderr
    assert "hint: " in failed.stderr
    assert not (home / "w/made").exists()


def test_nothing_runs_where_the_daemons_gate_cannot_come_up(home: Path) -> None:
    """Here the audit log is written by somebody else, as another daemon's would be."""
    (home / "w").mkdir()
    (runtime(home) / "audit").mkdir(mode=0o700, parents=True)
    runtime(home).chmod(0o700)
    held = os.open(runtime(home) / "audit", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    line = CommandLine(home)
    failed = line.run("sandbox", *WORDS, "touch", "made", code=125)
    assert "another process writes the audit log" in failed.stderr
    assert not (home / "w/made").exists()
    problem = ""
    while not problem:
        # A daemon without a gate leaves by itself once nobody is connected, and may be doing so.
        with suppress(DaemonUnavailable), connect() as client:
            problem = client.request("stop", sessions=True)["problem"]
            client.wait_closed()
    assert "another process writes the audit log" in problem
    os.close(held)


def test_a_program_outlives_its_daemon_and_its_end_is_lost(home: Path, own: CommandLine) -> None:
    os.mkfifo(home / "w/go")
    with own.start("sandbox", *WORDS, "sh", "-c", "echo ready; read -r word < go; exit $word") as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        (pid,) = daemon_pids(home)
        os.kill(pid, signal.SIGKILL)
        (home / "w/go").write_text("5\n")
        _, err = finish(process)
        assert (process.returncode, "the audit log does not record" in err) == (5, True), err
    own.run("daemon", "start")
    verified = json.loads(own.out("audit", "verify", "--json"))
    assert (verified["sound"], verified["open_calls"]) == (True, 0)
    ended = [json.loads(row) for row in own.out("audit", "export").splitlines()]
    (lost,) = (record for record in ended if record["event"] == "tool.end" and record["tool"] == "sandbox")
    assert lost["outcome"] == "lost"


def test_of_a_verb_that_is_killed_the_end_is_lost_and_its_program_gone(line: CommandLine, audit: Audit) -> None:
    with line.start("sandbox", *WORDS, "sh", "-c", "echo ready; exec tail -f /dev/null") as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        assert process.stdout.read() == b"", "its output is closed when the last of it has gone"
        process.wait(BOUND_SECONDS)
    with line.client() as client:
        while client.request("status")["connections"] > 1:
            pause()
    ((_, end),) = audit.calls()
    assert (end["outcome"], end["level"], end.get("exit_code")) == ("lost", "bwrap", None)


@pytest.mark.torture  # by day a daemon that is killed
def test_a_daemon_that_is_stopped_ends_the_record_not_the_program(home: Path, own: CommandLine) -> None:
    audit = Audit(runtime(home))
    with own.start("sandbox", *WORDS, "sh", "-c", "echo ready; exec tail -f /dev/null") as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        own.run("daemon", "stop")
        assert [(begin["tool"], end["outcome"]) for begin, end in audit.calls()] == [
            ("sandbox", "lost"),
            ("list_sessions", "ok"),
            ("stop", "ok"),
        ]
        assert process.poll() is None
        process.terminate()
        assert "the audit log does not record" in finish(process)[1]


ASKED: dict[str, Any] = {"argv": ["true"], "profile": "workspace", "workspace": "/w", "domains": []}


@pytest.fixture
def client(line: CommandLine) -> Iterator[ControlClient]:
    with line.client() as client:
        yield client


def test_what_is_no_program_is_refused(audit: Audit, client: ControlClient) -> None:
    for wrong in (
        {"argv": []},
        {"argv": "true"},
        {"argv": [1]},
        {"profile": "none"},
        {"workspace": None},
        {"domains": "pypi.org"},
    ):
        with pytest.raises(AiSessionError):
            client.request("sandbox", **(ASKED | wrong))
        assert "pid" in client.request("status")
    assert audit.calls() == []


def test_who_tells_what_is_no_end_is_refused_and_recorded_so(audit: Audit, client: ControlClient) -> None:
    for word, reported in (
        ("started", {"level": "steel"}),
        ("started", {}),
        ("call", {"name": "list_sessions"}),
        ("ended", {}),
        ("ended", {"exit_code": 256}),
        ("ended", {"exit_code": "0"}),
    ):
        client.request("sandbox", **ASKED)
        with pytest.raises(AiSessionError):
            client.request(word, **reported)
        assert "pid" in client.request("status")
        assert [end["outcome"] for _, end in audit.calls()] == ["invalid"]


def test_the_end_is_recorded_when_it_is_answered(audit: Audit, client: ControlClient) -> None:
    client.request("sandbox", **ASKED)
    client.request("started", level="landlock")
    client.request("ended", exit_code=0)
    client.request("sandbox", **ASKED)
    client.request("ended", code="sandbox_unavailable" * 9)
    (_, first), (_, second) = audit.calls()
    assert (first["outcome"], first["exit_code"], first["level"]) == ("ok", 0, "landlock")
    assert (second["outcome"], second["code"], "level" in second) == (
        "tool_error",
        ("sandbox_unavailable" * 9)[:64],
        False,
    )


def test_settings_are_read_again_only_if_they_may_have_changed(own: CommandLine) -> None:
    """A file that was changed, or a variable of the client's, counts at once, as if there were no daemon before."""
    own.run("sandbox", *WORDS, "true")
    with own.client() as client:
        known = client.request("settings")["read_from"]
    path = own.home / ".config/ai-session/config.toml"
    assert known == {str(path): config.stamp(path), str(administrator.FILE): config.stamp(administrator.FILE)}
    show = (*WORDS, "sh", "-c", "echo $SHOWN")
    assert own.out("sandbox", *show) == "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text() if path.exists() else ""
    path.write_text(before + '\n[session]\nenv = {SHOWN = "yes"}\n')
    assert own.out("sandbox", *show) == "yes\n"


def test_no_machine_of_another_is_taken_for_this_ones() -> None:
    found = SandboxStatus(SandboxLevel.BWRAP)
    mine = Machine(found, None, ([], []), ids())
    assert Machine.of(json.loads(json.dumps(mine.facts()))) == mine
    assert Sandbox(runtime_directory=Path("/x"), machine=mine)._status == found
    other = replace(mine, ids=(*ids(), 4321))
    assert Sandbox(runtime_directory=Path("/x"), machine=other)._status is None
