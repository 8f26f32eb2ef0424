"""People and programs share the terminal: what is typed, shown, traced and redirected around a command."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.ai_session.support.shell_cases import INTERRUPTED
from tests.ai_session.support.shells import SH_LIKE, SHELLS, RawSession, kin, start
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.corners

VI = {"bash": "set -o vi", "zsh": "bindkey -v", "fish": "fish_vi_key_bindings"}


def type_half(session: RawSession, text: bytes) -> None:
    """Type ``text`` and wait until its last word is on the screen."""
    assert session.wait_ready()
    before = len(session.log)
    session.send(text)
    word = text.rstrip(b"\x1b").split()[-1]
    session.until(lambda: word in session.log[before:].replace(b"\x1b[K", b""), "the echo")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("mode", ["plain", "vi", "vi command"])
def test_half_typed_line_is_cleared_not_executed(shell: str, mode: str, home: Path) -> None:
    victim = home / "victim"
    victim.touch()
    session = start(shell, home)
    try:
        if mode != "plain" and shell in VI:
            session.run(VI[shell])
        escape = b"\x1b" if mode == "vi command" and shell in VI else b""
        type_half(session, b"rm -f %b" % bytes(victim) + escape)
        assert session.run("echo ok").output == b"ok\n"
        assert session.run("echo again").output == b"again\n"
        assert victim.exists()
    finally:
        session.close()


@pytest.mark.either("shell")
@pytest.mark.parametrize("shell", SHELLS)
def test_line_typed_by_a_person_is_reported(shell: str, home: Path) -> None:
    session = start(shell, home)
    try:
        session.run("true")
        assert session.wait_ready()
        before = len(session.log)
        session.send(b"cd /usr; sh -c 'exit 3'\n")
        session.until(lambda: session.mark("A", before) is not None, "the next prompt")
        mark = session.mark("A", before)
        assert mark is not None
        assert (mark.fields[1], mark.fields[4]) == ("3", "/usr")
        assert session.plugin.line_editor == (session.mark("P", before) is not None)
        session.position = before
        assert session.run("echo $status" if shell == "fish" else "echo $?").output == b"3\n"
    finally:
        session.close()


@pytest.mark.either("shell")
@pytest.mark.parametrize("shell", SHELLS)
def test_no_bell_rings(shell: str, home: Path) -> None:
    session = start(shell, home)
    try:
        for _ in range(3):
            session.run("true")
        assert session.wait_ready()
        unmarked = b"".join(part.partition(b"\a")[2] for part in bytes(session.log).split(b"\x1b]")[1:])
        assert unmarked.count(b"\a") == 0
    finally:
        session.close()


@pytest.mark.parametrize("shell", SHELLS)
def test_streams_from_and_to_files(shell: str, home: Path) -> None:
    session = start(shell, home)
    folder = home / "it's a \\ folder"
    folder.mkdir()
    (folder / "in").write_bytes(b"one\ntwo")
    (folder / "err").write_bytes(b"old and longer than the new text" * 9)
    try:
        if shell != "fish":
            session.run("set -C")
        outcome = session.run(
            "cat; sh -c 'echo E >&2'; cd /usr; false", stdin_path=str(folder / "in"), stderr_path=str(folder / "err")
        )
        assert (outcome.output, outcome.exit_code) == (b"one\ntwo", 1)
        assert (folder / "err").read_bytes() == b"E\n"
        assert session.run("pwd").output == b"/usr\n"
        assert session.run("cat", stdin_path=str(folder / "in")).output == b"one\ntwo"
    finally:
        session.close()


@pytest.mark.either("shell")
@pytest.mark.parametrize("shell", SHELLS)
def test_header_can_be_read_back_and_does_no_harm(shell: str, home: Path) -> None:
    session = start(shell, home)
    try:
        if shell == "zsh":
            session.run("unsetopt interactive_comments")
        session.begin("echo ok", header='ai-session {"command":"it\'s ✓\n$(touch /x)"} \\')
        assert session.finish().output == b"ok\n"
        first = (session.directory / "c").read_text().splitlines()[0]
        assert first == '# ai-session {"command":"it\'s ✓ $(touch /x)"} \\'
    finally:
        session.close()


TWO_LINES = {
    "bash": "PS1='two-lines \\w\\n\\$ '",
    "zsh": "PROMPT=$'two-lines %~\\n%# '",
    "fish": "function fish_prompt; echo two-lines; echo '> '; end",
    "posix": "PS1='two-lines\n$ '",
}


def shown_by_tmux(log: bytes, home: Path) -> list[str]:
    """The lines a person sees who attached to a terminal that printed ``log``."""
    (home / "log").write_bytes(log)
    tmux = [shutil.which("tmux") or "tmux", "-S", str(home / "tmux"), "-f", "/dev/null"]
    show = f"stty raw; cat {home}/log; tmux -S {home}/tmux wait-for -S shown; cat"
    subprocess.run([*tmux, "new-session", "-d", "-x", "200", "-y", "50", show], check=True)
    try:
        subprocess.run([*tmux, "wait-for", "shown"], check=True, timeout=BOUND_SECONDS)
        screen = subprocess.run([*tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True).stdout
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)
    return [line.rstrip() for line in screen.rstrip().splitlines()]


def wait_drawn(session: RawSession) -> None:
    """Wait for the line editor of a shell that reports its prompt before it draws it: what is typed earlier is echoed
    twice."""
    started = session.mark("R", 0)
    assert started is not None
    if not session.plugin.line_editor and not session.plugin.draws_before_ready(started.fields[1]):
        session.until(session.at_prompt, "the line editor")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("lines", [1, 2])
def test_title_stands_in_the_place_of_the_trigger(shell: str, lines: int, home: Path) -> None:
    session = start(shell, home, TWO_LINES[kin(shell)] if lines == 2 else "")
    title = "echo 'first' %s \\n $(x) …"
    try:
        wait_drawn(session)
        assert session.run("echo first", title=title).output == b"first\n"
        wait_drawn(session)
        assert session.run("sh -c 'exit 3'", title="second").exit_code == 3
        session.wait_ready()
        screen = shown_by_tmux(bytes(session.log), home)
        at = screen.index(f"❯ {title}")
        assert screen[at + 1] == "first"
        assert "❯ second" in screen[at + 2 :]
        assert not any("__ais" in line for line in screen)
        if lines == 2:
            assert screen[at - 1].startswith("two-lines")
    finally:
        session.close()


@pytest.mark.either("shell")
@pytest.mark.parametrize("shell", SH_LIKE)
def test_trace_shows_the_command_alone(shell: str, home: Path) -> None:
    session = start(shell, home)
    try:
        assert session.run("set -x").output == b""
        for text, said in (("echo ok", b"ok\n"), ("sh -c 'exit 1'", b""), ("echo $?", b"1\n")):
            output = session.run(text).output
            assert output.endswith(said)
            assert output.count(b"\n") == said.count(b"\n") + 1
            assert b"ais" not in output
        session.run("set +x")
        assert session.run("set -v").output.strip() == b""  # the Korn shells echo a line end
        assert session.run("echo ok").output.strip() == b"ok"
    finally:
        session.close()


@pytest.mark.parametrize("shell", [name for name in SHELLS if kin(name) == "posix"])
def test_trace_on_the_screen_shows_as_many_lines_of_ours_as_is_documented(shell: str, home: Path) -> None:
    session = start(shell, home)
    try:
        session.run("set -x")
        assert session.wait_ready()
        before = len(session.log)
        session.run("echo ok")
        assert session.wait_ready()
        ours = [line for line in bytes(session.log[before:]).split(b"\n") if line.startswith(b"+ ")]
        mark = session.mark("R", 0)
        assert mark is not None
        ksh = bool(mark.fields[1])
        assert len(ours) <= (60 if ksh else 10)
    finally:
        session.close()


@pytest.mark.parametrize("shell", SHELLS)
def test_hooks_and_functions_of_ours_survive_being_replaced(shell: str, home: Path) -> None:
    wreck = {
        "bash": "PROMPT_COMMAND=(true); PS1='x '; PS0=; HISTCONTROL=; trap - EXIT",
        "zsh": "precmd_functions=(); preexec_functions=(); zshexit_functions=(); zle -D zle-line-init; bindkey -d",
        "fish": "function fish_prompt; end; bind -e --all",
        "posix": "PS1='x '; trap - EXIT",
    }[kin(shell)]
    session = start(shell, home)
    try:
        session.run(wreck)
        assert session.run("echo ok").output == b"ok\n"
        assert session.wait_ready()
        session.begin("sleep 20")
        session.wait_when("foreground")
        session.send(b"\x03")
        assert session.finish().exit_code == INTERRUPTED.get(shell, 130)
        session.run("exit 4")
        session.wait_end()
        assert session.status == 4
        assert (session.directory / "out/state").exists()
    finally:
        session.close()


@pytest.mark.either("shell")
@pytest.mark.parametrize("shell", SHELLS)
def test_probe_ends_an_aborted_command_whose_hooks_are_gone(shell: str, home: Path) -> None:
    gone = {
        "bash": "unset PROMPT_COMMAND PS0; PS1='x '",
        "zsh": "precmd_functions=()",
        "fish": "functions -e __ais_po __ais_p",
        "posix": "PS1='x '",
    }[kin(shell)]
    session = start(shell, home)
    try:
        session.begin(f"{gone}; sleep 20")
        session.wait_when("foreground")
        session.send(b"\x03")
        shell_has_it = "the shell to own the terminal"
        session.until(lambda: session.foreground() == session.pid, shell_has_it)
        if kin(shell) == "posix":
            session.send(session.plugin.write_probe(session.directory, session.seq, 130, 1))
        outcome = session.finish()
        assert outcome.exit_code == 130
        assert session.run("echo ok").output == b"ok\n"
    finally:
        session.close()


ANSWERS = (
    ("echo ok", b"ok\n", 0),
    ("false", b"", 1),
    ("printf x", b"x", 0),
    ("sh -c 'exit 9'", b"", 9),
    ("echo a; echo b", b"a\nb\n", 0),
    ("/bin/echo z", b"z\n", 0),
    ("printf '%s\\n' 1 2 3 | tail -n1", b"3\n", 0),
    ("printf 'é世😀\\n'", "é世😀\n".encode(), 0),
    ("seq 1 2000", b"".join(b"%d\n" % n for n in range(1, 2001)), 0),
)
ANSWERS_SH = (
    *ANSWERS,
    ("PS1='evil> '", b"", 0),
    ("(exit 4)", b"", 4),
    ("for i in 1 2; do echo $i; done", b"1\n2\n", 0),
    ("f() { echo F; }; f", b"F\n", 0),
    ("stty raw; stty sane", b"", 0),
)
COMMANDS = [20, pytest.param(1000, marks=pytest.mark.torture)]


@pytest.mark.either("shell")
@pytest.mark.parametrize("count", COMMANDS)
@pytest.mark.parametrize("shell", [name for name in SHELLS if name != "ksh93"])
def test_many_commands_none_wrong(shell: str, count: int, home: Path) -> None:
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    answers = ANSWERS if shell == "fish" else ANSWERS_SH
    session = start(shell, home)
    try:
        for number in range(count):
            text, output, code = chance.choice(answers)
            outcome = session.run(text)
            assert (outcome.output, outcome.exit_code) == (output, code), f"seed {seed}, command {number}: {text}"
            if chance.random() < 0.2:
                session.pump(chance.uniform(0, 0.002))
            del session.log[: session.position]
            session.position = 0
    finally:
        session.close()
