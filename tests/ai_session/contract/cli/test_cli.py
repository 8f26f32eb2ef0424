"""Verbs as processes against a real daemon and real shells."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.ai_session.support.command_line import LINE, CommandLine, finish
from tests.support.bounds import BOUND_SECONDS
from tests.support.products import first
from tests.support.stopping import stop


@pytest.fixture(scope="module")
def daemon_home(shared_home: Path) -> Iterator[Path]:
    """A daemon for all tests lives there."""
    with CommandLine(shared_home):
        yield shared_home


@pytest.fixture
def cli(daemon_home: Path, home: Path) -> Iterator[CommandLine]:
    cli = CommandLine(home, HOME=str(daemon_home))
    yield cli
    cli.end_sessions()


@pytest.fixture
def main(cli: CommandLine) -> CommandLine:
    """A command line with a session called main."""
    with cli.client() as client:
        client.call("create_session", name="main", working_directory=str(cli.home))
    return cli


def test_a_sessions_life(cli: CommandLine) -> None:
    name, session_id, shell, _, _, directory = cli.out("new", "build", "-C", ".", "-e", "A=1").rstrip("\n").split("\t")
    assert (name, shell, directory) == ("build", "bash", str(cli.home))
    assert cli.out("ls").split("\t")[:3] == ["build", "ready", "bash"]
    assert [row["session_id"] for row in cli.json("ls")] == [session_id]
    facts = dict(line.split("\t", 1) for line in cli.out("info", session_id).splitlines())
    assert (facts["name"], facts["state"], facts["rows"], facts["cols"]) == ("build", "ready", "50", "200")
    assert cli.json("info", "build")["session_id"] == session_id
    assert cli.out("exec", "build", "echo $A") == "1\n"
    assert cli.out("rename", "build", "other") == ""
    assert cli.json("ls")[0]["name"] == "other"
    assert cli.out("kill", "other") == "other\n"
    assert cli.out("ls") == ""


def test_a_name_is_made_from_the_directory(cli: CommandLine) -> None:
    folder = cli.home / "My project"
    folder.mkdir()
    names = [cli.out("new", cwd=folder).split("\t")[0] for _ in range(2)]
    assert names == ["My-project", "My-project-2"]
    assert sorted(json.loads(cli.out("kill", "--all", "--json"))["ended"]) == names


@pytest.mark.either("backend")
@pytest.mark.parametrize("backend", ["pty", "tmux"])
def test_a_name_may_be_in_any_script(cli: CommandLine, backend: str) -> None:
    assert cli.out("new", "日本-bär", "--backend", backend).split("\t")[0] == "日本-bär"
    assert cli.out("exec", "日本-ba\u0308r", "echo $AI_SESSION_NAME") == "日本-bär\n"
    assert cli.out("ls").split("\t")[0] == "日本-bär"
    assert "echo" in cli.out("screen", "日本-bär") or cli.out("logs", "日本-bär")
    cli.run("rename", "日本-bär", "имя")
    assert cli.out("kill", "имя") == "имя\n"
    folder = cli.home / "Über uns"
    folder.mkdir()
    assert cli.out("new", cwd=folder).split("\t")[0] == "Über-uns"


@pytest.mark.parametrize(
    "name", first(("a/b", "", "-", "a b", "a\x1b[31m", "a\u202eb", "a" * 65), "a/b", "", "a\u202eb")
)
def test_what_is_no_name_is_refused_in_a_persons_words(main: CommandLine, name: str) -> None:
    for words in (("new", "--", name), ("rename", "main", "--", name)):
        refused = main.run(*words, code=2)
        assert refused.stderr.startswith("error: NAME: "), refused.stderr
        assert refused.stderr.endswith(f"hint: ai-session {words[0]} --help\n")
        assert "\x1b" not in refused.stderr
        assert "pattern" not in refused.stderr


def test_usage_errors_name_what_was_typed(main: CommandLine) -> None:
    def reported(*words: str) -> str:
        return main.run(*words, code=2).stderr.partition("\n")[0]

    assert reported("new", "x", "--rows", "0") == "error: invalid value for '--rows': 0 is not in the range x>=2."
    assert reported("new", "x", "--rows", "5000") == "error: --rows: should be at most 1000"
    assert reported("new", "x", "-e", "1=2") == "error: --env: has '1', which is not the name of a variable"
    assert reported("info", "") == "error: SESSION: is empty"
    assert main.json("info", "", code=2)["error"]["message"] == "SESSION: is empty"
    assert main.run("exec", "main", "", code=125).stderr.startswith("error: COMMAND: is empty")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        pytest.param("true", 0, marks=pytest.mark.torture),
        ("exit_with() { return 7; }; exit_with", 7),
        ("sh -c 'kill -9 $$'", 137),
        pytest.param("nonesuch", 127, marks=pytest.mark.torture),
    ],
)
def test_exec_returns_the_commands_exit_code(main: CommandLine, command: str, code: int) -> None:
    main.run("exec", "main", command, code=code)


def test_exec_takes_text_or_words(main: CommandLine) -> None:
    assert main.out("exec", "main", "x='a  b'; echo \"$x\"") == "a  b\n"
    assert main.out("exec", "main", "--", "printf", "%s\\n", "a  b", "$x", "it's", "") == "a  b\n$x\nit's\n\n"
    assert main.out("exec", "main", "--", "echo", "--json") == "--json\n"


def test_exec_passes_piped_input_on(main: CommandLine) -> None:
    data = bytes(range(256)) * 40
    result = main.run("exec", "main", "sha256sum", input=data, text=False)
    assert result.stdout.decode().split()[0] == hashlib.sha256(data).hexdigest()
    assert main.out("exec", "main", "-n", "echo unread", input="x") == "unread\n"


def test_exec_gives_all_of_a_long_output(main: CommandLine) -> None:
    assert main.out("exec", "main", "seq 60000") == "".join(f"{n}\n" for n in range(1, 60_001))
    assert main.json("exec", "main", "seq 60000")["output"] == "".join(f"{n}\n" for n in range(1, 60_001))


def test_exec_shows_output_as_it_comes(main: CommandLine) -> None:
    os.mkfifo(main.home / "go")
    with main.start("exec", "main", "echo one; echo -n two; cat go; printf '\\r%s' 'ten\nend'; (exit 5)") as process:
        assert process.stdout
        assert process.stdout.readline() == b"one\n"
        (main.home / "go").write_bytes(b"")
        assert finish(process) == ("ten\nend", "")
        assert process.returncode == 5


def test_exec_keeps_standard_error_apart_when_asked(main: CommandLine) -> None:
    for pause in ("", "sleep 0.3;"):
        result = main.run("exec", "main", "--stderr", f"echo out; {pause} echo err >&2")
        assert (result.stdout, result.stderr) == ("out\n", "err\n")


def test_exec_leaves_a_slow_command_running_after_the_timeout(main: CommandLine) -> None:
    os.mkfifo(main.home / "go")
    result = main.run("exec", "main", "-t", "0.3", "echo begun; cat go", code=124)
    assert result.stdout == "begun\n"
    assert "still running: ai-session logs -f main" in result.stderr
    busy = main.run("exec", "main", "true", code=125)
    assert busy.stderr.startswith("error: session 'main' is still running")
    facts = dict(line.split("\t", 1) for line in main.out("interrupt", "main").splitlines())
    assert (facts["status"], facts["exit_code"]) == ("interrupted", "130")
    main.run("interrupt", "main", code=1)


def test_exec_as_json_is_one_document(main: CommandLine) -> None:
    facts = main.json("exec", "main", "echo hi; cd /; (exit 3)", code=3)
    assert (facts["output"], facts["exit_code"], facts["status"], facts["cwd"]) == ("hi\n", 3, "finished", "/")
    slow = main.json("exec", "main", "echo one; sleep 0.3; echo two")
    assert slow["output"] == "one\ntwo\n"
    late = main.json("exec", "-t", "0.2", "main", "echo hi; sleep 60", code=124)
    assert (late["output"], late["status"], late["exit_code"]) == ("hi\n", "running", None)


def test_exec_opens_a_session_only_when_asked(cli: CommandLine) -> None:
    assert "no session 'fresh'" in cli.run("exec", "fresh", "pwd", code=125).stderr
    assert cli.out("exec", "--new", "fresh", "pwd") == f"{cli.home}\n"
    assert cli.out("exec", "--new", "fresh", "echo again") == "again\n"


def test_exec_tells_of_a_shell_that_ends(main: CommandLine) -> None:
    main.run("exec", "main", "exit 4", code=4)
    error = main.json("exec", "main", "true", code=125)["error"]
    assert error["code"] == "session_exited"
    assert "ai-session new" in error["suggestion"]
    main.run("new", "main")
    main.run("exec", "main", "true")


def test_control_c_interrupts_the_command_and_shows_its_last_words(main: CommandLine) -> None:
    with main.start(
        "exec", "main", "trap 'echo bye; trap - INT; kill -INT $$' INT; bash -c 'echo go; sleep 60'"
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"go\n"
        process.send_signal(signal.SIGINT)
        out, _ = finish(process)
    assert process.returncode == 130
    assert main.json("info", "main")["state"] == "ready"
    assert "^C" in out


def test_a_second_control_c_leaves_the_command_running(main: CommandLine) -> None:
    with main.start("exec", "main", "sh -c 'trap \"echo no\" INT; echo go; while :; do sleep 0.05; done'") as process:
        assert process.stdout
        assert process.stdout.readline() == b"go\n"
        process.send_signal(signal.SIGINT)
        assert b"no" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = finish(process)
    assert process.returncode == 130
    assert "left running: ai-session logs -f main" in err
    assert main.json("info", "main")["state"] == "running"


def test_exec_on_a_terminal_shows_a_line_that_changes(main: CommandLine) -> None:
    os.mkfifo(main.home / "go")
    person = main.spawn("exec", "main", "printf '10%%'; cat go; printf '\\r20%%'; cat go; printf '\\r30%%\\n'")
    person.expect_exact("10%")
    for percent in ("20%", "30%"):
        (main.home / "go").write_bytes(b"")
        person.expect_exact(f"\r\x1b[J{percent}")
    person.expect_exact("\r\n")
    person.expect(pexpect.EOF)
    assert person.wait() == 0


def test_a_command_that_asks_hears_this_keyboard(main: CommandLine) -> None:
    ask = "read -p 'Name? ' name; stty -echo; read -p 'Word? ' word; stty echo; echo; echo \"[$name $word]\"; (exit 5)"
    person = main.spawn("exec", "main", ask)
    person.expect_exact("Name? ")
    person.send("ada\r")
    person.expect_exact("ada")
    person.expect_exact("Word? ")
    person.send("s3cret\r")
    person.expect_exact("[ada s3cret]")
    assert "s3cret" not in str(person.before)
    person.expect(pexpect.EOF)
    assert b"hint" not in person.before
    assert person.wait() == 5
    assert main.out("exec", "main", "echo free") == "free\n"


def test_control_c_interrupts_a_command_that_asks(main: CommandLine) -> None:
    person = main.spawn("exec", "main", "read -p 'Name? '")
    person.expect_exact("Name? ")
    person.send("x")
    person.expect_exact("x")
    person.send("\x03")
    person.expect(pexpect.EOF)
    assert person.wait() == 130


def test_keys_are_passed_on_one_by_one(main: CommandLine) -> None:
    person = main.spawn("exec", "main", "read -rsn1 -p 'Go on? ' key; echo \"<$key>\"; cat; echo end")
    person.expect_exact("Go on? ")
    person.send("y")
    person.expect_exact("<y>")
    person.send("line\r\x04")
    person.expect_exact("end")
    person.expect(pexpect.EOF)
    assert person.wait() == 0


def test_a_program_with_a_screen_of_its_own_is_shown_and_has_the_keys(main: CommandLine) -> None:
    asks = "stty raw -echo; printf 'Key?'; key=$(dd bs=1 count=1 2>/dev/null | od -An -tx1); stty sane"
    person = main.spawn("exec", "main", f"echo before; tput smcup; {asks}; tput rmcup; echo key:$key; (exit 3)")
    person.expect_exact("before")
    person.expect_exact("\x1b[?1049h")
    person.expect_exact("Key?")
    person.send("\x03")
    person.expect_exact("\x1b[?1049l")
    person.expect_exact("key: 03")
    person.expect(pexpect.EOF)
    assert person.wait() == 3
    # The key that leaves it leaves it running.
    person = main.spawn("exec", "main", "seq 101 999 | less")
    person.expect_exact("101")
    person.send("\x1d")
    person.expect_exact("\x1b[?1049l")
    person.expect_exact("left running")
    person.expect(pexpect.EOF)
    assert person.wait() == 130
    assert "less" in main.json("info", "main")["running"]["command"]


def test_where_nobody_can_type_a_command_that_asks_is_left_running(main: CommandLine) -> None:
    left = main.run("exec", "main", "read -p 'Name? ' name; echo \"hello $name\"", code=124)
    assert left.stdout == "Name? "
    hint, way = left.stderr.splitlines()
    assert hint == "hint: it waits for input, which cannot be typed here: pipe it in, or attach"
    assert way == "left running: ai-session attach main, ai-session interrupt main"
    assert main.json("info", "main")["state"] == "waiting_input"
    main.run("send", "main", "ada")
    assert "hello ada" in main.out("logs", "main", "-c", "last", "-f")
    begun = main.run("exec", "main", "-t", "1", "read -p 'Name? ' name", code=124)
    assert "cannot be typed" not in begun.stderr


def test_a_session_is_not_started_again_with_another_box_or_shell(cli: CommandLine) -> None:
    cli.run("new", "ended", "--shell", "dash", "--backend", "pty")
    cli.run("exec", "ended", "exit 0")
    for option, other in (("--profile", "read-only"), ("--shell", "bash"), ("--backend", "tmux")):
        refused = cli.run("new", "ended", option, other, code=1).stderr
        assert refused.startswith("error: session 'ended' has ended (ses_")
        assert f", not {other}\nhint: leave that out to start it again as it was, " in refused
        assert "close it first" in refused
    again = cli.json("new", "ended", "--shell", "dash", "--env", "COLOR=red")
    assert (again["state"], again["note"].partition(":")[0]) == ("ready", "env is ignored")
    assert cli.run("exec", "ended", 'echo "<$COLOR>"; pwd; exit 0').stdout == f"<>\n{again['working_directory']}\n"
    assert "does not exist" in cli.run("new", "ended", "--cwd", "/nowhere", code=1).stderr
    as_it_was = cli.json("new", "ended", "--cwd", again["working_directory"])
    assert (as_it_was["state"], as_it_was.get("note")) == ("ready", None)
    cli.run("exec", "ended", "exit 0")
    assert "not /nowhere/dash" in cli.run("new", "ended", "--shell", "/nowhere/dash", code=1).stderr
    for folder in (cli.home, Path(cli.env["HOME"])):
        (folder / "dash").symlink_to(shutil.which("dash") or "dash")
    assert cli.json("new", "ended", "--shell", "./dash")["state"] == "ready", "its own shell by another path"
    assert cli.json("new", "other", "--shell", "./dash", "--profile", "trusted")["shell"] == "dash"
    assert cli.json("new", "another", "--shell", "~/dash", "--profile", "trusted")["shell"] == "dash"
    cli.run("exec", "ended", "exit 0")
    elsewhere = cli.json("new", "ended", "--cwd", "/usr", "--rows", "7")
    assert elsewhere["note"].partition(":")[0] == "working_directory and rows are ignored"
    assert elsewhere["working_directory"] == again["working_directory"]


@pytest.mark.parametrize("profile", ["trusted", "workspace"])
def test_a_session_whose_directory_is_gone_says_where_it_goes_on(cli: CommandLine, profile: str) -> None:
    """In the home or, in a box, in its workspace."""
    project = cli.home / "project"
    gone = project / "gone"
    gone.mkdir(parents=True)
    cli.run("new", "ended", "--profile", profile, "--cwd", "gone", cwd=project)
    cli.run("exec", "ended", "exit 0")
    gone.rmdir()
    again, goes_on = cli.json("new", "ended"), cli.env["HOME"] if profile == "trusted" else str(project)
    assert again["note"] == f"{gone} no longer exists: the session goes on in {goes_on}"
    assert cli.run("exec", "ended", "pwd").stdout == f"{goes_on}\n"


def test_what_a_new_session_waits_for_is_said_in_a_pipe_too(cli: CommandLine) -> None:
    home = Path(cli.env["HOME"])
    start, hook = "read x\n", "PROMPT_COMMAND='[ \"$x\" ] || read x'\n"
    try:
        for name, text, words in (("start", start, "start files have not ended"), ("hook", hook, "waits for input")):
            (home / ".bashrc").write_text(text)
            made = cli.run("new", name, "--shell", "bash", "--profile", "trusted")
            assert made.stdout.split("\t")[0] == name
            assert words in made.stderr
            cli.run("send", name, "yes")
            assert cli.run("exec", name, "echo $x").stdout == "yes\n"
            again = cli.run("new", f"{name}-2", "--shell", "dash", "--profile", "trusted")
            assert again.stderr == ""
    finally:
        (home / ".bashrc").unlink()


def test_a_relative_path_of_a_shell_needs_a_directory_from_which_it_counts(cli: CommandLine) -> None:
    gone = cli.home / "gone"
    gone.mkdir()
    made = ["sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *LINE, "new", "main", "--profile", "trusted", "--json"]
    for shell, code, words in (("bin/sh", 2, "pass the name of a shell, or an absolute path"), ("/bin/sh", 0, "")):
        gone.mkdir(exist_ok=True)
        ran = subprocess.run(
            [*made, "--shell", shell], cwd=gone, env=cli.env, capture_output=True, timeout=BOUND_SECONDS, check=False
        )
        assert (ran.returncode, json.loads(ran.stdout).get("error", {}).get("suggestion", "")) == (code, words)


def test_what_comes_before_a_command_begins_is_no_output_of_it(cli: CommandLine) -> None:
    """Without a line editor the terminal itself shows what is typed, whatever the shell does."""
    cli.run("new", "d", "--shell", "dash", "--profile", "trusted", "--backend", "pty")
    shell = cli.json("info", "d")["pid"]
    stop(shell)
    try:
        assert cli.json("exec", "d", "echo begun")["output"] == "begun\n"
    finally:
        os.kill(shell, signal.SIGCONT)


def test_a_hint_has_a_line_of_its_own(main: CommandLine) -> None:
    both = main.home / "both"
    with both.open("wb") as file:
        subprocess.run(
            [*LINE, "exec", "main", "read -p 'Name? '"],
            cwd=main.home,
            env=main.env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            timeout=BOUND_SECONDS,
            check=False,
        )
    assert both.read_text().startswith("Name? \nhint: it waits for input")


def test_verbs_that_follow_go_on_with_the_next_daemon(main: CommandLine) -> None:
    os.mkfifo(main.home / "go")
    pid = main.daemon_pid()
    with (
        main.start("exec", "main", "X=kept; echo begun; cat go; echo end; (exit 5)") as process,
        main.start("logs", "main", "-f") as logs,
    ):
        assert process.stdout
        assert logs.stdout
        assert process.stdout.readline() == b"begun\n"
        while logs.stdout.readline() != b"begun\n":
            pass
        os.kill(pid, signal.SIGKILL)
        (main.home / "go").write_bytes(b"")
        out, err = finish(process)
        assert (process.returncode, out, err) == (5, "end\n", "")
        assert logs.stdout.readline() == b"end\n"
        main.run("daemon", "stop", "--yes")
        _, err = finish(logs)
    assert logs.returncode == 4
    assert err.startswith("error: the daemon was stopped, and its sessions ended")


def test_send_and_screen(main: CommandLine) -> None:
    main.run("send", "main", "cat")
    main.run("send", "main", "hello", "there")
    main.run("send", "main", "no enter", "--no-enter")
    main.run("send", "main", "-k", "C-u", "-k", "Enter")
    main.run("send", "main", "last")
    with main.start("logs", "main", "-f") as process:
        assert process.stdout
        lines = iter(process.stdout.readline, b"")
        assert any(line == b"last\n" for line in lines)
        assert any(line == b"last\n" for line in lines)
        main.run("send", "main", "-k", "C-d")
        main.run("exec", "main", "exit")
        finish(process)
        assert process.returncode == 0
    screen = main.json("screen", "main")
    assert "hello there\nhello there\n" in screen["screen"]
    assert main.out("screen", "main").rstrip("\n") == screen["screen"]
    assert main.out("screen", "main", "--ansi").startswith("\x1b")


def test_logs(main: CommandLine) -> None:
    main.run("exec", "main", "seq 5")
    assert main.out("logs", "main", "-c", "last") == "1\n2\n3\n4\n5\n"
    assert main.out("logs", "main", "-c", "last", "-n", "2") == "4\n5\n"
    command_id = main.json("info", "main")["last"]["command_id"]
    assert main.json("logs", "main", "-c", command_id) == {"output": "1\n2\n3\n4\n5\n"}
    assert "1\n2\n3\n4\n5\n" in main.out("logs", "main")
    main.run("logs", "main", "-c", "cmd_none", code=3)
    main.run("logs", "main", "-f", "--json", code=2)


def test_what_is_no_longer_kept_is_counted(home: Path) -> None:
    with CommandLine(home, AI_SESSION_SESSION_RETAIN_BYTES=str(1 << 20)) as cli:
        cli.run("new", "main")
        cli.run("exec", "-t", "20", "main", "seq 350000", "--json")
        shown = cli.out("logs", "main", "-c", "last")
    lost = re.match(r"\n\[(\d+) bytes are no longer stored\]\n", shown)
    assert lost is not None
    assert shown.endswith("\n349999\n350000\n")
    assert 500_000 < len(shown) < 3 << 20
    assert int(lost[1]) > 1_000_000


def test_errors_go_to_standard_error_or_into_the_document(cli: CommandLine) -> None:
    for words in (("info", "nope"), ("kill", "nope"), ("screen", "nope"), ("rename", "nope", "x"), ("logs", "nope")):
        result = cli.run(*words, code=3)
        assert result.stdout == ""
        assert result.stderr.splitlines() == [
            "error: no session 'nope'; open sessions: none",
            "hint: ai-session ls shows them, ai-session new opens one",
        ]
    assert cli.json("info", "nope", code=3)["error"]["code"] == "session_not_found"
    assert cli.run("lss", code=2).stderr == "error: there is no verb 'lss' here\nhint: ai-session ls\n"
    assert cli.run("new", "/tmp", code=2).stderr.endswith("hint: ai-session new -C /tmp\n")
    assert cli.run("mcp-server", "--port", "1", code=2).stderr.endswith("hint: ai-session mcp-server --http\n")
    assert cli.run("create", code=2).stderr == "error: there is no verb 'create' here\nhint: ai-session new NAME\n"
    nested = cli.run("http", "user", "list", code=2).stderr
    assert nested.endswith("hint: ai-session http user --help\n")
    assert cli.json("ls", "--nope", code=2)["error"]["suggestion"] == "ai-session ls --help"
    assert "--env 'x' is not NAME=VALUE" in cli.run("new", "a", "-e", "x", code=2).stderr
    assert cli.run("kill", code=2).stderr.startswith("error: which sessions?")
    cli.run("new", "main")
    assert "already exists" in cli.run("new", "main", code=1).stderr
    assert "leave that out to use it as it is" in cli.run("new", "main", "--shell", "dash", code=1).stderr
    missing = cli.run("new", "other", "--shell", "./nothere", code=1).stderr
    assert "hint: use one of these or their paths: " in missing


def test_a_reader_that_goes_away_is_no_failure_to_tell(main: CommandLine) -> None:
    main.run("exec", "main", "seq 100000")
    line = " ".join(LINE)
    shell = f"{line} logs main -c last | head -1; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(
        ["bash", "-c", shell], env=main.env, capture_output=True, text=True, timeout=BOUND_SECONDS, check=True
    )
    assert result.stdout.splitlines() == ["1", "1"]
    assert result.stderr == ""


def test_session_names_complete_in_bash(main: CommandLine, tmp_path: Path) -> None:
    main.run("new", "other")
    program = tmp_path / "ai-session"
    program.write_text(f'#!/bin/sh\nexec {" ".join(LINE)} "$@"\n')
    program.chmod(0o755)
    script = main.out("completion", "bash")
    words = 'COMP_WORDS=(ai-session info ""); COMP_CWORD=2; _ai_session_completion ai-session; echo "${COMPREPLY[@]}"'
    env = {**main.env, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    result = subprocess.run(["bash"], input=f"{script}\n{words}\n", env=env, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["main", "other"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_valid(cli: CommandLine, shell: str) -> None:
    script = cli.out("completion", shell)
    assert "_AI_SESSION_COMPLETE" in script
    subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=BOUND_SECONDS)
    assert cli.run("completion", "tcsh", code=2).stderr.startswith("error: no completion for 'tcsh'")
