"""A person's terminal attached to a session: driven through a pseudo-terminal and through a real tmux."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import signal
import subprocess
import termios
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pexpect
import pytest

from agentwire import plugins
from tests.ai_session.support.command_line import LINE, CommandLine
from tests.ai_session.support.entries import Audit
from tests.ai_session.support.mcp_client import runtime
from tests.support.bounds import BOUND_SECONDS, pause
from tests.support.forked import Person

DETACHED = "[detached from main; it keeps running: ai-session attach main]"
DETACH = b"\x1d"
WAIT_FOR_RESIZE = (
    'import os, signal; signal.pthread_sigmask(0, [28]); print(*["wait", "ing"], sep="", flush=True); '
    "signal.sigwait([28]); print(*os.get_terminal_size())"
)


@pytest.fixture(scope="module")
def daemon_home(shared_home: Path) -> Iterator[Path]:
    """A daemon for all tests lives there."""
    with CommandLine(shared_home):
        yield shared_home


@contextmanager
def prepared(daemon_home: Path, home: Path, backend: str) -> Iterator[CommandLine]:
    """A session called main, with a prompt that can be waited for."""
    cli = CommandLine(home, HOME=str(daemon_home))
    with cli.client() as client:
        client.call("create_session", name="main", backend=backend, working_directory=str(home))
        client.call("execute_command", session_id="main", command="PS1='ready> '")
    yield cli
    cli.end_sessions()


@pytest.fixture(params=plugins.names("ai_session.backends"))
def main(daemon_home: Path, home: Path, request: pytest.FixtureRequest) -> Iterator[CommandLine]:
    with prepared(daemon_home, home, request.param) as cli:
        yield cli


FIRST, *OTHERS = plugins.names("ai_session.backends")


@pytest.fixture(params=[FIRST, *(pytest.param(name, marks=pytest.mark.torture) for name in OTHERS)])
def anywhere(daemon_home: Path, home: Path, request: pytest.FixtureRequest) -> Iterator[CommandLine]:
    """For what has nothing to do with the backend: every run tries one, make torture all."""
    with prepared(daemon_home, home, request.param) as cli:
        yield cli


@pytest.fixture
def on_pty(daemon_home: Path, home: Path) -> Iterator[CommandLine]:
    with prepared(daemon_home, home, "pty") as cli:
        yield cli


def leave(person: Person, said: str = DETACHED) -> int:
    """The exit code after the line that says why it ended."""
    person.expect_exact(said)
    person.expect(pexpect.EOF)
    return person.wait()


def test_typing_goes_in_output_comes_out_and_the_session_goes_on(main: CommandLine) -> None:
    person = main.spawn("attach", "main")
    person.expect_exact("ready> ")
    person.send(b"X=set; echo $((20+1))\r")
    person.expect_exact("\r21\r\n")
    assert main.json("info", "main")["viewers"] == 1
    person.send(DETACH)
    assert leave(person) == 0
    assert main.out("exec", "main", "echo $X") == "set\n"
    reported = main.json("info", "main")
    assert reported["viewers"] == 0
    left = Audit(runtime(Path(main.env["HOME"]))).newest("session.detach")
    assert (left["session"], left["actor"]["kind"]) == (reported["session_id"], "person")


@pytest.mark.either("main")
def test_what_was_there_before_is_drawn_first(main: CommandLine) -> None:
    main.run("exec", "main", "echo earlier; seq 3")
    person = main.spawn("attach", "main")
    person.expect(rb"Hearlier\x1b.*H1\x1b.*H2\x1b.*H3\x1b")
    person.send(DETACH)
    assert leave(person) == 0


def test_agents_commands_appear_to_the_person(anywhere: CommandLine) -> None:
    person = anywhere.spawn("attach", "main")
    person.expect_exact("ready> ")
    assert anywhere.out("exec", "main", "echo from-$((40+2))-agent") == "from-42-agent\n"
    person.expect_exact("from-42-agent\r\n")
    person.expect_exact("ready> ")
    person.send(DETACH)
    assert leave(person) == 0


@pytest.mark.either("main")
def test_the_session_takes_the_terminals_size_and_follows_it(main: CommandLine) -> None:
    person = main.spawn("attach", "main", size=(31, 97))
    person.expect_exact("ready> ")
    person.send(b"stty size\r")
    person.expect_exact("31 97")
    person.send(f"{LINE[0]} -c '{WAIT_FOR_RESIZE}'\r".encode())
    person.expect_exact("waiting\r\n")
    person.setwinsize(20, 70)
    person.expect_exact("70 20")
    person.send(DETACH)
    leave(person)
    facts = main.json("info", "main")
    assert (facts["rows"], facts["cols"]) == (50, 200)


def test_no_resize_and_read_only_leave_the_size_alone(on_pty: CommandLine) -> None:
    for option in ("--no-resize", "--read-only"):
        person = on_pty.spawn("attach", "main", option, size=(20, 60))
        person.expect_exact("ready> ")
        person.setwinsize(21, 61)
        assert on_pty.out("exec", "main", "stty size") == "50 200\n"
        person.send(DETACH)
        leave(person)


def test_a_read_only_viewer_types_nothing(anywhere: CommandLine) -> None:
    person = anywhere.spawn("attach", "main", "--read-only")
    person.expect_exact("ready> ")
    person.send(b"touch typed\r")
    anywhere.run("exec", "main", "echo seen")
    person.expect_exact("seen\r\n")
    person.send(b"\x03")
    assert leave(person) == 0
    assert not (anywhere.home / "typed").exists()


def test_several_viewers_see_the_same(anywhere: CommandLine) -> None:
    people = [
        anywhere.spawn("attach", "main"),
        anywhere.spawn("attach", "main"),
        anywhere.spawn("attach", "main", "-r"),
    ]
    for person in people:
        person.expect_exact("ready> ")
    people[0].send(b"echo to-$((1+1))-all\r")
    for person in people:
        person.expect_exact("to-2-all\r\n")
    assert anywhere.json("info", "main")["viewers"] == 3
    for person in people:
        person.send(DETACH)
        assert leave(person) == 0


@pytest.mark.corners
@pytest.mark.parametrize(
    ("ending", "said", "code"), [("exit 3", "exit status 3", 3), ("kill -9 $$", "killed by signal 9", 137)]
)
def test_the_shells_end_ends_it_with_its_status(main: CommandLine, ending: str, said: str, code: int) -> None:
    person = main.spawn("attach", "main")
    person.expect_exact("ready> ")
    person.send(ending.encode() + b"\r")
    assert leave(person, f"[main ended: {said}]") == code


def test_a_session_killed_by_somebody_else_ends_it(anywhere: CommandLine) -> None:
    person = anywhere.spawn("attach", "main")
    person.expect_exact("ready> ")
    anywhere.run("kill", "main")
    person.expect_exact("[main ended: ")
    person.expect(pexpect.EOF)
    assert person.wait() != 0


def test_attaching_goes_on_with_the_next_daemon(anywhere: CommandLine) -> None:
    person = anywhere.spawn("attach", "main")
    person.expect_exact("ready> ")
    for end in (lambda: os.kill(anywhere.daemon_pid(), signal.SIGKILL), lambda: anywhere.run("daemon", "restart")):
        end()
        with anywhere.client() as client:
            while not client.call("get_session_info", session_id="main").structured["viewers"]:
                pause()
        person.send(b"echo alive-$((1+1))\r")
        person.expect_exact("alive-2")
    person.send(DETACH)
    assert leave(person) == 0


@pytest.mark.parametrize(
    ("key", "typed"),
    [
        ("ctrl-a", b"\x01"),
        pytest.param("^b", b"\x02", marks=pytest.mark.torture),
        ("C-]", b"\x1b[93;5u"),
        ("ctrl-]", b"\x1b[27;5;93~"),
        pytest.param("ctrl-q", b"ls\x11ls", marks=pytest.mark.torture),
    ],
)
def test_the_detach_key_can_be_chosen_and_comes_in_any_encoding(on_pty: CommandLine, key: str, typed: bytes) -> None:
    person = on_pty.spawn("attach", "main", "--detach-key", key)
    person.expect_exact("ready> ")
    person.send(typed)
    assert leave(person) == 0


def test_without_a_detach_key_every_key_goes_in(on_pty: CommandLine) -> None:
    person = on_pty.spawn("attach", "main", "--detach-key", "none")
    person.expect_exact("ready> ")
    person.send(b"od -An -tx1 -N1\r")
    person.expect_exact("-N1\r\n")
    person.send(DETACH + b"\r")
    person.expect_exact(" 1d")
    person.send(b"exit\r")
    leave(person, "[main ended: exit status 0]")
    wrong = on_pty.run("attach", "main", "--detach-key", "x", code=2)
    assert wrong.stderr.startswith("error: 'x' is not a detach key")


def test_without_a_terminal_it_says_what_to_use(on_pty: CommandLine) -> None:
    result = on_pty.run("attach", "main", code=2)
    assert result.stderr.splitlines() == [
        "error: attach needs a terminal on standard input and output",
        "hint: use: ai-session exec, send, screen or logs -f main",
    ]
    person = on_pty.spawn("attach", "nope")
    person.expect_exact("error: no session 'nope'")
    person.expect(pexpect.EOF)
    assert person.wait() == 3


def test_a_session_is_not_attached_to_itself(anywhere: CommandLine) -> None:
    session_id = anywhere.json("info", "main")["session_id"]
    for name in ("main", session_id):
        result = anywhere.run("exec", "main", "--", *LINE, "attach", name, code=2)
        assert "this terminal is session 'main' itself" in result.stdout


def in_terminal(cli: CommandLine, ending: str, number: int | None) -> tuple[list[object], list[object], str]:
    """Modes of a terminal before and after an attach that ends in some way, and all that was shown."""
    line = " ".join(map(shlex.quote, LINE))
    person = pexpect.spawn("/bin/sh", cwd=str(cli.home), env=cli.env, timeout=BOUND_SECONDS, dimensions=(24, 80))  # type: ignore[arg-type]
    person.send(b"PS1='outer'; PS1=$PS1'> '\r")
    person.expect_exact("outer> ")
    before = termios.tcgetattr(person.child_fd)
    person.send(
        f"{line} attach main & echo $! > viewer.pid; fg\r".encode() if number else f"{line} attach main\r".encode()
    )
    person.expect_exact("ready> ")
    if number is not None:
        os.kill(int((cli.home / "viewer.pid").read_text()), number)
    else:
        person.send(ending.encode())
    person.expect_exact("outer> ")
    after = termios.tcgetattr(person.child_fd)
    shown = person.before.decode(errors="replace") if isinstance(person.before, bytes) else ""
    person.close(force=True)
    return before, after, shown


@pytest.mark.parametrize(
    ("ending", "number"),
    [
        pytest.param("\x1d", None, id="detach"),
        pytest.param("exit 0\r", None, id="shell's end", marks=pytest.mark.torture),
        pytest.param("", signal.SIGTERM, id="SIGTERM"),
        pytest.param("", signal.SIGHUP, id="SIGHUP", marks=pytest.mark.torture),
    ],
)
def test_the_terminal_is_as_it_was_however_it_ends(on_pty: CommandLine, ending: str, number: int | None) -> None:
    before, after, shown = in_terminal(on_pty, ending, number)
    assert after == before
    assert "\x1b[?2004l" in shown
    assert "\x1b[?25h" in shown


def test_a_slow_terminal_gets_the_latest_screen_and_stalls_nobody(on_pty: CommandLine) -> None:
    """2.4 MB are printed while the viewer reads nothing; then it sees the end without all of what lay between."""
    person = on_pty.spawn("attach", "main")
    person.expect_exact("ready> ")
    os.kill(person.pid, signal.SIGSTOP)
    on_pty.run("exec", "main", "yes 0123456789abcde | head -c 2400000")
    on_pty.run("exec", "main", "echo the-$((1+1))-end")
    os.kill(person.pid, signal.SIGCONT)
    seen = 0
    while person.expect_exact([b"the-2-end", b"\n"]) == 1:
        seen += len(person.before or b"")
    assert seen < 1_600_000
    person.send(DETACH)
    assert leave(person) == 0


class PersonsTmux:
    """A tmux of the person's own, unlike the backend's, with one pane that runs a shell."""

    def __init__(self, cli: CommandLine) -> None:
        self._command = ["tmux", "-f", "/dev/null", "-S", str(cli.home / "mine")]
        os.mkfifo(cli.home / "drawn")
        self._drawn = os.open(cli.home / "drawn", os.O_RDWR | os.O_NONBLOCK)
        shell = "env PS1='outer> ' sh"
        subprocess.run(
            [*self._command, "new-session", "-d", "-s", "outer", "-x", "90", "-y", "25", shell],
            env=cli.env,
            cwd=cli.home,
            check=True,
        )
        self.run("pipe-pane", "-O", "-t", "outer", f"exec cat >{cli.home}/drawn")
        self.until("^outer> *$")

    def run(self, *words: str) -> str:
        return subprocess.run(
            [*self._command, *words], check=True, capture_output=True, text=True, timeout=BOUND_SECONDS
        ).stdout

    def press(self, *keys: str) -> None:
        self.run("send-keys", "-t", "outer", *keys)

    def until(self, pattern: str) -> str:
        """The person's screen once it shows ``pattern``; looks again whenever the pane got more bytes."""
        while True:
            shown = self.run("capture-pane", "-p", "-t", "outer")
            if re.search(pattern, shown, re.MULTILINE):
                return shown
            assert select.select([self._drawn], [], [], BOUND_SECONDS)[0], f"{pattern!r} never came:\n{shown}"
            os.read(self._drawn, 1 << 20)

    def close(self) -> None:
        os.close(self._drawn)
        subprocess.run([*self._command, "kill-server"], check=False, capture_output=True)


def test_in_a_persons_tmux_a_full_screen_program_shows_and_leaves_nothing_behind(anywhere: CommandLine) -> None:
    attach = " ".join(map(shlex.quote, LINE)) + " attach main"
    with closing(PersonsTmux(anywhere)) as tmux:
        tmux.press("echo be''fore", "Enter")
        tmux.until("^before$")
        tmux.press(attach, "Enter")
        tmux.until("^ready> *$")
        tmux.press("seq 300 | less", "Enter")
        assert tmux.until("^:$").splitlines()[0] == "1"
        tmux.press("G")
        tmux.until("^300$")
        assert json.loads(anywhere.out("screen", "main", "--json"))["alternate_screen"] is True
        tmux.press("C-]")
        tmux.until(r"^\[detached from main.*\n+outer> *$")
        modes = tmux.run("display-message", "-p", "-t", "outer", "#{alternate_on} #{cursor_flag} #{mouse_any_flag}")
        assert modes == "0 1 0\n"
        assert "before" in tmux.run("capture-pane", "-p", "-S", "-", "-t", "outer")
        tmux.press(attach, "Enter")
        tmux.until("^300$")
        tmux.press("q")
        tmux.until("^ready> *$")
        tmux.press("C-]")
        tmux.until(r"^\[detached from main.*\n+outer> *$")
