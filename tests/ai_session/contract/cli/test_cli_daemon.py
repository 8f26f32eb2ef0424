"""Verbs about the daemon, the configuration and the machine; what --help costs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pexpect
import pytest
from typer.testing import CliRunner

from ai_session.cli.main import program
from tests.ai_session.support.command_line import LINE, CommandLine
from tests.support.bounds import BOUND_SECONDS

VERBS = [
    "new",
    "ls",
    "info",
    "exec",
    "send",
    "screen",
    "logs",
    "attach",
    "console",
    "top",
    "notify",
    "interrupt",
    "kill",
    "rename",
    "share",
    "serve",
    "token",
    "replay",
    "approvals",
    "approve",
    "reject",
    "person",
    "record",
    "audit",
    "policy",
    "sandbox",
    "daemon",
    "doctor",
    "docs",
    "config",
    "completion",
    "mcp",
    "mcp-server",
    "http",
]


@pytest.fixture
def cli(home: Path) -> Iterator[CommandLine]:
    with CommandLine(home) as cli:
        yield cli


def alive(pid: str) -> bool:
    """Whether a process runs; one that has ended but is not yet reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def hang_up_on_everybody(listener: socket.socket) -> None:
    with suppress(OSError):
        while True:
            listener.accept()[0].close()


def test_the_daemon_starts_with_the_first_verb_and_is_told_of(cli: CommandLine) -> None:
    assert "for a service manager" in cli.run("daemon", "run", "--help").stdout
    missing = cli.run("daemon", "status", code=4)
    assert missing.stderr == "error: no daemon is running\nhint: start one: ai-session daemon start\n"
    assert json.loads(cli.run("daemon", "status", "--json", code=4).stdout)["error"]["code"] == "daemon_unavailable"
    cli.run("ls")
    facts = dict(line.split("\t", 1) for line in cli.out("daemon", "status").splitlines())
    assert facts["directory"] == str(cli.home / ".local/state/ai-session")
    assert facts["sessions"] == "0"
    assert json.loads(cli.out("daemon", "start", "--json"))["pid"] == int(facts["pid"])
    cli.run("daemon", "stop")
    assert not alive(facts["pid"])
    cli.run("daemon", "status", code=4)
    cli.run("daemon", "stop")


def test_stop_ends_sessions_unless_they_are_kept(cli: CommandLine) -> None:
    cli.run("new", "main")
    cli.run("exec", "main", "X=kept; sleep 300 & echo $! > pid")
    sleeper = (cli.home / "pid").read_text().strip()
    first = cli.daemon_pid()
    cli.run("daemon", "restart")
    assert cli.daemon_pid() != first
    assert cli.out("exec", "main", "echo $X") == "kept\n"
    cli.run("daemon", "stop", "--keep-sessions")
    assert alive(sleeper)
    again = cli.spawn("daemon", "stop", "--keep-sessions")
    again.expect_exact("its sessions keep running")
    again.expect(pexpect.EOF)
    assert json.loads(cli.out("daemon", "stop", "--json")) == {"running": False, "ended": ["main"]}
    assert not alive(sleeper)
    assert cli.out("ls") == ""


def test_restart_ends_nothing_if_the_configuration_is_wrong(cli: CommandLine) -> None:
    cli.run("ls")
    first = cli.daemon_pid()
    (cli.home / "typo.toml").write_text("[session]\nrwos = 31\n")
    (cli.home / "rule.toml").write_text('[[policy.rules]]\nid = "r"\ndecision = "perhaps"\n')
    for wrong in ("/nowhere.toml", "typo.toml", "rule.toml"):
        refused = CommandLine(cli.home, AI_SESSION_CONFIG=wrong).run("daemon", "restart", "--json", code=1)
        assert json.loads(refused.stdout)["error"]["code"] == "config_invalid"
        assert cli.daemon_pid() == first


def test_a_daemon_that_does_not_answer_is_not_said_to_have_stopped(cli: CommandLine) -> None:
    with daemon_that_hangs_up(cli):
        for verb in ("stop", "restart"):
            failed = json.loads(cli.run("daemon", verb, "--json", code=4).stdout)
            assert failed["error"]["message"] == "the daemon ended before it answered"


@pytest.mark.torture  # it waits for 40 s; above it need not
def test_a_stopped_process_of_a_daemon_is_not_said_to_have_ended(cli: CommandLine) -> None:
    cli.run("new", "main")
    pid = int(cli.daemon_pid())
    os.kill(pid, signal.SIGSTOP)
    failed = cli.run("daemon", "stop", "--yes", code=4).stderr
    assert "does not answer" in failed
    assert f"hint: kill -9 {pid} ends it, sessions keep running; " in failed
    os.kill(pid, signal.SIGKILL)
    with mute_program(cli):
        assert "kill" not in cli.run("daemon", "stop", "--yes", code=4).stderr
    assert [row["name"] for row in cli.json("ls")] == ["main"]


def test_several_may_stop_the_daemon_at_once(cli: CommandLine) -> None:
    for _ in range(3):
        cli.run("new", "main")
        with ThreadPoolExecutor(3) as threads:
            for stopped in [threads.submit(cli.run, "daemon", "stop", "--yes", "--json") for _ in range(3)]:
                assert json.loads(stopped.result().stdout)["running"] is False
    assert cli.out("ls") == ""


def test_stop_asks_on_a_terminal(cli: CommandLine) -> None:
    cli.run("new", "main")
    for answer, code in ((b"n", 1), (b"y", 0)):
        person = cli.spawn("daemon", "stop")
        person.expect_exact("End 1 session: main? [y/N]: ")
        person.sendline(answer)
        person.expect(pexpect.EOF)
        assert person.wait() == code
    assert cli.out("ls") == ""


def test_stop_ends_no_session_that_it_did_not_ask_about(cli: CommandLine) -> None:
    cli.run("new", "main")
    person = cli.spawn("daemon", "stop")
    person.expect_exact("End 1 session: main? [y/N]: ")
    cli.run("new", "later")
    person.sendline(b"y")
    person.expect_exact("later: opened meanwhile")
    person.expect_exact("End 2 sessions: main, later? [y/N]: ")
    person.sendline(b"n")
    person.expect_exact("nothing was ended")
    person.expect(pexpect.EOF)
    assert person.wait() == 1
    assert [row["name"] for row in cli.json("ls")] == ["main", "later"]


@pytest.mark.parametrize("verb", [["restart"], ["stop", "--keep-sessions"]])
def test_stop_says_why_it_asks_the_same_again(cli: CommandLine, verb: list[str]) -> None:
    cli.run("new", "main")
    person = cli.spawn("daemon", "stop")
    person.expect_exact("End 1 session: main? [y/N]: ")
    cli.run("daemon", *verb)
    person.sendline(b"y")
    person.expect_exact("another daemon runs meanwhile")
    person.expect_exact("End 1 session: main? [y/N]: ")
    person.sendline(b"y")
    person.expect_exact("ended: main")
    person.expect(pexpect.EOF)
    assert person.wait() == 0


WITHOUT_OVERRIDE = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]


@pytest.mark.parametrize("closed", [".local", ".local/state", ".local/state/ai-session"])
def test_a_daemon_that_cannot_be_looked_for_is_not_said_to_be_missing(cli: CommandLine, closed: str) -> None:
    cli.run("new", "main")
    folder = cli.home / closed
    folder.chmod(0)
    before = list(Path("/tmp").glob(f"ai-session-{os.getuid()}-*"))
    line = [*(WITHOUT_OVERRIDE if os.geteuid() == 0 else []), *LINE, "daemon"]
    try:
        for verb in ("status", "start", "restart", "stop"):
            ran = subprocess.run(
                [*line, verb, "--json"], env=cli.env, capture_output=True, timeout=BOUND_SECONDS, check=False
            )
            error = json.loads(ran.stdout)["error"]
            assert (ran.returncode, error["code"]) == (4, "runtime_directory_unsafe"), (verb, ran)
            assert error["suggestion"] in (f"chmod u+rwx {folder}", f"chmod 700 {folder}")
    finally:
        folder.chmod(0o700)
    assert list(Path("/tmp").glob(f"ai-session-{os.getuid()}-*")) == before
    assert [row["name"] for row in cli.json("ls")] == ["main"]


@pytest.mark.parametrize(("verb", "code"), [("start", 4), ("run", 1)])
def test_a_directory_where_the_socket_belongs_is_named(cli: CommandLine, verb: str, code: int) -> None:
    there = cli.home / ".local/state/ai-session/sock"
    cli.run("daemon", "stop", "--yes")
    there.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    there.unlink(missing_ok=True)
    there.mkdir()
    refused = cli.run("daemon", verb, code=code)
    assert f"{there} is a directory" in refused.stderr
    assert f"check who made {there}, then remove it" in refused.stderr
    there.rmdir()


def test_what_is_in_the_way_of_the_files_of_a_daemon_is_named(cli: CommandLine) -> None:
    directory = cli.home / ".local/state/ai-session"
    directory.mkdir(mode=0o700, parents=True)
    makers = {
        "is a directory": Path.mkdir,
        "is not a directory": Path.touch,
        "is a link that leads nowhere": lambda path: path.symlink_to("/nowhere/at-all"),
    }
    cases = [(name, "is a directory") for name in ("lock", "daemon.log", "audit.key")]
    cases += [(name, "is not a directory") for name in ("sessions", "audit", "approvals", "person", "calls")]
    cases += [(name, "is a link that leads nowhere") for name in ("lock", "daemon.log", "sessions")]
    for name, what in cases:
        there = directory / name
        if name in ("lock", "daemon.log"):
            there.unlink(missing_ok=True)
        elif there.is_dir():
            shutil.rmtree(there)
        makers[what](there)
        refused = cli.run("daemon", "start", code=4).stderr
        assert refused == f"error: {there} {what}\nhint: check who made {there}, then remove it\n"
        if name in ("lock", "sessions") and "link" not in what:
            doctor = json.loads(cli.run("doctor", "--json", code=1).stdout)
            (failed,) = [check for check in doctor["checks"] if check["state"] == "fail"]
            assert f"{there} {what}" in failed["detail"]
            assert f"check who made {there}, then remove it" in failed["detail"] + failed["advice"]
            assert "Traceback" not in failed["detail"]
        cli.run("daemon", "stop", "--yes")
        if name in ("lock", "calls"):
            refused = cli.run("daemon", "run", code=1).stderr
            assert f"{there} {what}; check who made {there}, then remove it" in refused
        there.rmdir() if what == "is a directory" else there.unlink()
    assert cli.out("ls") == ""


def test_a_relative_path_of_the_configuration_counts_from_where_the_daemon_is_started(cli: CommandLine) -> None:
    (cli.home / "own.toml").write_text('[session]\nrows = 33\n[sandbox]\nprofile = "trusted"\n')
    with CommandLine(cli.home, AI_SESSION_CONFIG="own.toml") as other:
        other.run("new", "main")
        assert other.json("info", "main")["rows"] == 33


def test_only_a_relative_directory_needs_the_current_one(cli: CommandLine) -> None:
    gone, project = cli.home / "gone", cli.home / "project"
    project.mkdir()
    made = ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *LINE]

    def run(*words: str, **variables: str) -> tuple[int, str, str]:
        gone.mkdir()
        env = cli.env | variables
        ran = subprocess.run(
            [*made, *words], cwd=gone, env=env, capture_output=True, timeout=BOUND_SECONDS, check=False, text=True
        )
        return ran.returncode, ran.stdout, ran.stderr

    code, _, problem = run("ls", AI_SESSION_CONFIG="own.toml")
    assert (code, problem.partition(",")[0]) == (1, "error: AI_SESSION_CONFIG is 'own.toml'")
    assert "which no longer exists\nhint: cd, or set it to an absolute path" in problem
    code, facts, problem = run("new", "main", "-C", str(project), "--json")
    assert (code, problem) == (0, "")
    assert json.loads(facts)["working_directory"] == str(project)
    assert run("new", "other", "-C", "project") == (
        1,
        "",
        "error: the directory you are in no longer exists\nhint: cd\n",
    )
    assert run("sandbox", "--profile", "workspace", "--workspace", str(project), "pwd")[:2] == (0, f"{project}\n")


def test_stop_fails_if_it_cannot_end_the_sessions(cli: CommandLine) -> None:
    """A daemon whose configuration is wrong adopts none."""
    cli.run("new", "main")
    cli.run("daemon", "stop", "--keep-sessions")
    settings = cli.home / ".config/ai-session/config.toml"
    before = settings.read_text()
    settings.write_text("[session]\nrwos = 31\n")
    person = cli.spawn("daemon", "stop")
    person.expect_exact("error: the daemon has ended, but not its sessions: session.rwos: is not a setting")
    person.expect_exact("hint: did you mean session.rows?")
    person.expect(pexpect.EOF)
    assert person.wait() == 1
    failed = json.loads(cli.run("daemon", "stop", "--yes", "--json", code=1).stdout)
    assert failed["error"]["code"] == "config_invalid"
    cli.run("daemon", "status", code=4)
    cli.run("daemon", "stop", "--keep-sessions")
    settings.write_text(before)
    assert [row["name"] for row in cli.json("ls")] == ["main"]
    assert json.loads(cli.out("daemon", "stop", "--json"))["ended"] == ["main"]


def test_tables_for_people_have_headings_and_no_control_characters_of_others(cli: CommandLine) -> None:
    cli.run("new", "main")
    cli.run("exec", "-t", "0.2", "main", "sleep 60 # \x1b]0;evil\x07", code=124)
    person = cli.spawn("ls", size=(24, 120))
    person.expect(pexpect.EOF)
    shown = person.before
    assert isinstance(shown, bytes)
    assert b"NAME" in shown
    assert b"main" in shown
    assert b"]0;evil" in shown
    assert b"\x1b]0;evil" not in shown
    assert b"\x07" not in shown
    assert "\x1b" not in cli.out("ls")


def test_configuration_verbs(cli: CommandLine) -> None:
    path = cli.home / ".config/ai-session/config.toml"
    path.unlink()
    assert cli.out("config", "path") == f"{path}\n"
    assert cli.out("config", "init") == f"{path}\n"
    assert cli.run("config", "init", code=1).stderr.startswith(f"error: {path} exists already")
    assert cli.run("config", "init", "--file", f"{path}/x", code=1).stderr.startswith(
        f"error: {path}/x cannot be written: "
    )
    path.write_text('[session]\nrows = 31\n[sandbox]\nprofile = "trusted"\n')
    assert tomllib.loads(cli.out("config", "show"))["session"]["rows"] == 31
    shown = json.loads(cli.out("config", "show", "--json"))
    assert shown["origins"] == {"session.rows": str(path), "sandbox.profile": str(path)}
    assert json.loads(cli.out("config", "check", "--json"))["valid"] is True
    cli.run("new", "main")
    assert cli.json("info", "main")["rows"] == 31
    path.write_text("[session]\nrwos = 31\n")
    wrong = cli.run("config", "check", code=1)
    assert "session.rwos: is not a setting" in wrong.stderr
    assert "did you mean session.rows?" in wrong.stderr
    assert "ai-session config show --defaults lists every setting" in wrong.stderr
    assert tomllib.loads(cli.out("config", "show", "--defaults"))["session"]["rows"] not in (None, 31)


def test_doctor_finds_a_healthy_machine(cli: CommandLine) -> None:
    report = json.loads(cli.out("doctor", "--json"))
    states = {check["check"]: check["state"] for check in report["checks"]}
    assert report["healthy"] is True
    for check in ("python", "runtime directory", "configuration", "shells", "backend pty", "backend tmux"):
        assert states[check] == "ok", report
    assert states["mcp"] in ("ok", "warn"), "it says how fast this machine is"
    assert states["clients"] == "warn"


def test_doctor_says_what_is_not_healthy(cli: CommandLine) -> None:
    directory = cli.home / ".local/state/ai-session"
    directory.mkdir(parents=True)
    directory.chmod(0o755)
    cli.run("mcp", "install", "--client", "cursor")
    settings = cli.home / ".config/ai-session/config.toml"
    before = settings.read_text()
    settings.write_text("nonsense")
    lines = cli.run("doctor", code=1).stdout.splitlines()
    found = {line.split("\t")[1]: line.split("\t") for line in lines}
    assert (found["directory"][0], found["directory"][3]) == ("fail", f"chmod 700 {directory}")
    assert (found["configuration"][0], found["configuration"][3]) == ("fail", "fix the file, or move it away")
    assert found["clients"][:3] == ["ok", "clients", "cursor"]
    settings.write_text(before)
    cli.run("ls", code=4)
    directory.chmod(0o700)


@contextmanager
def mute_program(cli: CommandLine) -> Iterator[None]:
    """In place of a daemon that was killed."""
    path = cli.home / ".local/state/ai-session/sock"
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield


@contextmanager
def daemon_that_hangs_up(cli: CommandLine) -> Iterator[None]:
    directory = cli.home / ".local/state/ai-session"
    directory.mkdir(parents=True, mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / "sock"))
        listener.listen()
        closer = threading.Thread(target=hang_up_on_everybody, args=(listener,))
        closer.start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
        closer.join(BOUND_SECONDS)


def test_doctor_finds_a_daemon_that_does_not_answer(cli: CommandLine) -> None:
    with daemon_that_hangs_up(cli):
        report = json.loads(cli.run("doctor", "--json", code=1).stdout)
    states = {check["check"]: check["state"] for check in report["checks"]}
    assert (states["daemon"], states["handshake"]) == ("fail", "fail")
    assert states["python"] == "ok"


def test_help_lists_every_verb_and_imports_nothing_heavy(cli: CommandLine) -> None:
    line = [LINE[0], "-X", "importtime", *LINE[1:], "--help"]
    result = subprocess.run(line, env=cli.env, capture_output=True, text=True, timeout=BOUND_SECONDS, check=True)
    sections = re.findall(r"^([A-Z][a-z]+):\n((?:  .*\n)+)", result.stdout, re.MULTILINE)
    listed = {head: re.findall(r"^  ([a-z-]+)  ", text, re.MULTILINE) for head, text in sections if head != "Options"}
    assert sorted(verb for verbs in listed.values() for verb in verbs) == sorted(VERBS)
    assert 4 <= len(listed) <= 8
    assert all(2 <= len(verbs) <= 8 for verbs in listed.values()), listed
    assert "..." not in result.stdout.partition("\n")[2]
    assert "Exit codes: 0 done, 1 error, 2 wrong usage" in result.stdout
    imported = {row.rpartition("|")[2].strip().partition(".")[0] for row in result.stderr.splitlines()}
    assert not imported & {"rich", "pydantic", "asyncio", "mcp", "libtmux", "pexpect", "re2", "tomllib"}


def test_every_verb_has_help_and_a_way_to_speak_json(cli: CommandLine) -> None:
    groups = {"daemon": ["start", "stop", "restart", "status"], "config": ["show", "check", "path", "init"]}
    groups["mcp"] = ["install", "uninstall", "status"]
    groups |= {
        "audit": ["tail", "show", "verify"],
        "policy": ["check", "explain", "protected"],
        "record": [],
        "http": [],
    }
    groups["person"] = ["show", "enrol", "remove"]
    groups["notify"] = ["test"]
    single = [
        (verb,) for verb in VERBS if verb not in (*groups, "attach", "completion", "mcp-server", "replay", "sandbox")
    ]
    for words in (*single, *((group, verb) for group, verbs in groups.items() for verb in verbs)):
        reported = CliRunner().invoke(program(words[0]), [*words, "--help"])
        assert (reported.exit_code, "--json" in reported.stdout) == (0, True), words
    assert cli.out("--version").strip() == json.loads(cli.out("daemon", "start", "--json"))["version"]


SEVERAL = """
import sys
from ai_session.__main__ import main
for words in sys.argv[1].split(','):
    sys.argv = ['ai-session', *words.split()]
    try:
        main()
    except SystemExit:
        pass
"""
"""Verbs one after the other in one process."""


def test_what_starts_often_imports_nothing_heavy(cli: CommandLine) -> None:
    cli.out("new", "main", "-C", ".")
    lines = "ls,info main,screen main,logs main,send main -k Enter,exec main true,interrupt main,kill main,--version"
    line = [LINE[0], "-X", "importtime", "-c", SEVERAL, lines]
    result = subprocess.run(line, env=cli.env, capture_output=True, text=True, timeout=BOUND_SECONDS, check=True)
    imported = {row.rpartition("|")[2].strip().partition(".")[0] for row in result.stderr.splitlines()}
    assert not imported & {"typer", "rich", "pydantic", "inspect", "dataclasses", "asyncio", "tomllib", "subprocess"}
    assert "ai_session.client.connection" in result.stderr
    assert re.search(r"main\n[\d.]+\n\Z", result.stdout), "the last two were run: kill and --version"


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("http", "user"),
        *(pytest.param((name,), marks=pytest.mark.torture) for name in ("audit", "policy", "mcp", "http")),
    ],
)
def test_a_group_without_a_verb_shows_its_help(cli: CommandLine, words: tuple[str, ...]) -> None:
    bare, asked = cli.run(*words), cli.run(*words, "--help")
    assert (bare.stdout, bare.stderr) == (asked.stdout, "")


def test_help_for_one_verb_equals_its_part_of_the_whole_help(cli: CommandLine) -> None:
    """In a process of its own the program is made of that verb only."""
    for words in (["exec", "--help"], ["audit", "--help"], ["daemon", "stop", "-h"]):
        among = CliRunner().invoke(program(), words, prog_name="ai-session").stdout
        assert "".join(cli.out(*words).split()) == "".join(among.split()), "but for where lines are broken"


def test_mcp_server_serves_however_it_is_spelled(cli: CommandLine) -> None:
    ask = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    answer = cli.run("mcp-server", input=ask).stdout
    assert json.loads(answer) == {"jsonrpc": "2.0", "id": 1, "result": {}}
