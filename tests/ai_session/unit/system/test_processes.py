"""Real shells and programs on real terminals: the kernel's evidence is asked again until it says what is expected."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import ptyprocess
import pytest

from ai_session.models import InputMode
from ai_session.system import foreground, processes
from ai_session.system.foreground import Foreground
from tests.support.bounds import BOUND_SECONDS
from tests.support.process_ends import ending

REPOSITORY = Path(__file__).parents[4]
SHELLS = {
    "bash": ["bash", "--norc", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "dash": ["dash", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}


class Console:
    """A shell on a terminal of its own; what it prints is drained while the evidence is awaited."""

    def __init__(self, argv: list[str], home: Path) -> None:
        env = {"PATH": os.environ["PATH"], "TERM": "xterm", "HOME": str(home), "PS1": "$ ", "LC_ALL": "C.UTF-8"}
        self._pty = ptyprocess.PtyProcess.spawn(argv, env=env, cwd=str(home))
        self.pid: int = self._pty.pid
        self.tty = os.readlink(f"/proc/{self.pid}/fd/0")
        self.output = b""

    def type(self, text: str) -> None:
        self._pty.write(text.encode())

    def look(self) -> Foreground:
        if select.select([self._pty.fd], [], [], 0.01)[0]:
            self.output += os.read(self._pty.fd, 65536)
        found = foreground.find(self.pid, self.tty)
        assert found is not None
        return found

    def until(self, wanted: Callable[[Foreground], bool]) -> Foreground:
        deadline = time.monotonic() + BOUND_SECONDS
        while not wanted(found := self.look()):
            assert time.monotonic() < deadline, (found, self.output[-2000:])
        return found

    def at_prompt(self) -> None:
        """The program that answers a typed line is the shell itself, so it is there and reads."""
        self.type("echo 'here''!'\n")
        self.until(lambda found: b"here!" in self.output and found.leads_itself and found.input_mode is not None)

    def never_asks(self) -> None:
        for _ in range(20):
            found = self.look()
            assert found.input_mode is None, found

    def close(self) -> None:
        self._pty.close(force=True)


@contextmanager
def console(shell: str, home: Path) -> Iterator[Console]:
    opened = Console(SHELLS[shell], home)
    try:
        opened.at_prompt()
        yield opened
    finally:
        opened.close()


@pytest.fixture
def bash(tmp_path: Path) -> Iterator[Console]:
    with console("bash", tmp_path) as opened:
        yield opened


PYTHON = f"{sys.executable} -IS"
ASKING: list[tuple[str, str, str, InputMode]] = [
    ("bash", "read -r x", "bash", "line"),
    ("bash", "read -rs x", "bash", "password"),
    ("bash", "read -rn1 x", "bash", "raw"),
    ("bash", "read -rsn1 x", "bash", "raw"),
    ("bash", "read -re x", "bash", "raw"),
    ("bash", "read -rt 600 x", "bash", "line"),
    ("bash", "bash -c 'read -rt 600 x'", "bash", "line"),
    ("bash", "select x in a b; do :; done", "bash", "line"),
    ("bash", "x=$(cat)", "bash", "line"),
    ("bash", "cat", "cat", "line"),
    ("bash", "cat | cat", "cat", "line"),
    ("bash", "busybox cat", "busybox", "line"),
    ("bash", "sleep 600 & cat", "cat", "line"),
    ("bash", f"{PYTHON} -c 'input()'", "python", "line"),
    ("bash", f"{PYTHON} -c 'import getpass; getpass.getpass()'", "python", "password"),
    ("bash", f"{sys.executable} -q", "python", "raw"),
    ("bash", "less /etc/passwd", "less", "raw"),
    ("bash", "vim -u NONE", "vim", "raw"),
    ("bash", "bash --norc -i", "bash", "raw"),
    ("zsh", "read -r x", "zsh", "line"),
    ("zsh", "read -rs x", "zsh", "password"),
    ("zsh", "read -rk1 x", "zsh", "raw"),
    ("zsh", "read -rt 600 x", "zsh", "line"),
    ("dash", "read -r x", "dash", "line"),
    ("dash", "stty -echo; read -r x", "dash", "password"),
    ("fish", "cat", "cat", "line"),
]


DAILY = ("read -r x", "read -rs x", "read -rn1 x", "x=$(cat)", "cat | cat", "sleep 600 & cat", "vim -u NONE")
"""One for each way of waiting; in each shell those that it has."""


@pytest.mark.parametrize(
    ("shell", "command", "name", "mode"),
    [pytest.param(*one, marks=() if one[1] in DAILY else pytest.mark.torture) for one in ASKING],
    ids=[f"{one[0]}: {one[1][-30:]}" for one in ASKING],
)
def test_a_program_that_waits_for_the_terminal_is_seen(
    shell: str, command: str, name: str, mode: InputMode, tmp_path: Path
) -> None:
    with console(shell, tmp_path) as opened:
        # A printed word just before separates the shell's own line editor from what the command waits in.
        opened.type(f"echo 'run''s'; {command}\n")
        found = opened.until(lambda found: b"runs" in opened.output and found.input_mode == mode)
        assert found.name.startswith(name)


GONE = """
import os, signal, termios
mode = termios.tcgetattr(0)
mode[3] &= ~termios.ECHO
termios.tcsetattr(0, termios.TCSADRAIN, mode)
if not (child := os.fork()):
    os.setpgid(0, 0)
    signal.pause()
while os.getpgid(child) != child:
    pass
os.tcsetpgrp(0, child)
os.kill(child, signal.SIGKILL)
os.{wait}
os.write(1, b"is go" b"ne")
signal.pause()
"""


@pytest.mark.parametrize("wait", ["waitpid(child, 0)", "waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)"])
def test_who_has_ended_does_not_ask(wait: str, bash: Console, tmp_path: Path) -> None:
    (tmp_path / "gone.py").write_text(GONE.format(wait=wait))
    bash.type(f"{PYTHON} {tmp_path}/gone.py\n")
    found = bash.until(lambda _: b"is gone" in bash.output)
    assert (found.name, found.leads_itself, found.input_mode) == ("", False, None)


@pytest.mark.parametrize(
    ("command", "child"),
    [
        ("sleep 600", "sleep"),
        ("(sleep 600; read -r x)", "sleep"),
        ("stty -icanon; sleep 600", "sleep"),
        pytest.param("yes >/dev/null", "yes", marks=pytest.mark.torture),
        ("wc -l /dev/zero", "wc"),
        ("mkfifo f; cat f", "cat"),
        ("sleep 600 | cat", "cat"),
        ("sleep 600 & wait", "sleep"),
    ],
)
def test_a_program_that_does_anything_else_does_not_ask(command: str, child: str, bash: Console) -> None:
    bash.type(f"{command}\n")
    bash.until(lambda _: child in _names_in_session(bash.pid))
    bash.never_asks()


def test_a_builtin_read_from_elsewhere_does_not_ask(bash: Console) -> None:
    bash.type("mkfifo f; echo 'run''s'; read -r x < f\n")
    bash.until(lambda found: b"runs" in bash.output and found.input_mode is None)
    bash.never_asks()


@pytest.mark.parametrize(
    "program",
    [
        "import time, tty; tty.setraw(0); print('run' + 's', flush=True); time.sleep(600)",
        "import select, socket; s = socket.create_server(('', 0)); print('run' + 's'); select.select([s], [], [])",
        "import socket; a, b = socket.socketpair(); print('run' + 's', flush=True); a.recv(1)",
    ],
    ids=["sleeps in a raw terminal", "serves", "receives"],
)
def test_a_sleeping_program_with_a_terminal_does_not_ask(program: str, bash: Console) -> None:
    bash.type(f'{PYTHON} -c "{program}"\n')
    bash.until(lambda found: b"runs" in bash.output and found.input_mode is None)
    bash.never_asks()


@pytest.mark.parametrize(("shell", "mode"), [("bash", "raw"), ("zsh", "raw"), ("fish", "raw"), ("dash", "line")])
def test_a_shell_at_its_prompt_waits_like_any_program(shell: str, mode: InputMode, tmp_path: Path) -> None:
    with console(shell, tmp_path) as opened:
        found = opened.until(lambda found: found.input_mode == mode)
        assert found == Foreground(opened.pid, True, shell, False, mode)


def test_a_foreground_group_may_be_stopped(bash: Console) -> None:
    bash.type("sleep 600\n")
    group = bash.until(lambda found: found.name == "sleep").group
    assert not bash.look().stopped
    # bash without job control leaves a stopped child in the foreground.
    bash.type("\x03set +m; sleep 601\n")
    bash.until(lambda found: found.leads_itself and "sleep" in _names_in_session(bash.pid) and found.group != group)
    sleeping = [pid for pid in _session(bash.pid) if pid != bash.pid]
    for pid in (*sleeping, bash.pid):
        os.kill(pid, signal.SIGSTOP)
    assert bash.until(lambda found: found.stopped).input_mode is None
    os.kill(bash.pid, signal.SIGCONT)
    bash.until(lambda found: not found.stopped)


OBSERVER = """
import fcntl, json, os, pty, select, subprocess, sys, termios, time
from ai_session.system import foreground, processes
programs = json.loads(sys.argv[2])
if user := int(sys.argv[1]):  # only now: the interpreter may lie where nobody else can reach it
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
for program in programs:
    master, slave = pty.openpty()
    tty = os.ttyname(slave)
    child = subprocess.Popen(program, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                             preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(slave)
    deadline = time.monotonic() + 20
    output = b""
    modes = []
    while time.monotonic() < deadline and len(modes) < 20:
        if select.select([master], [], [], 0.01)[0]:
            output += os.read(master, 65536)
        found = foreground.find(child.pid, tty)
        if output and (modes or found.input_mode or b"runs" in output):
            modes.append(found.input_mode)
    os.close(master)
    child.wait()
    print(json.dumps(sorted(set(modes), key=str)))
"""


def observe(programs: list[list[str]], *, prefix: tuple[str, ...] = (), user: int = 0) -> list[list[InputMode | None]]:
    """What a process of its own (on another machine type, of another user) sees of each program on a terminal."""
    done = subprocess.run(
        [*prefix, sys.executable, "-c", OBSERVER, str(user), json.dumps(programs)],
        cwd=REPOSITORY,
        capture_output=True,
        check=True,
        timeout=BOUND_SECONDS * 2,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_password_prompt_of_a_program_that_may_not_be_looked_into_is_seen() -> None:
    assert observe([["su", "root"]], user=65534 if os.geteuid() == 0 else 0) == [["password"]]


SEEN_BY_WAITS: dict[str, InputMode | None] = {
    "input('name? ')": "line",
    "import getpass; getpass.getpass()": "password",
    "import time; print('runs'); time.sleep(600)": None,
    "import socket; a, b = socket.socketpair(); print('runs', flush=True); a.recv(1)": None,
    "import socket; s = socket.create_server(('127.0.0.1', 0)); print('runs', flush=True); s.accept()": None,
    "import sys, tty, select; tty.setraw(0); print('waits'); select.select([0, 1, 2], [], [])": "raw",
    "import os; r, w = os.pipe(); print('runs', flush=True); os.read(r, 1)": None,
}


def test_without_the_system_call_the_kernel_function_decides() -> None:
    """An unknown machine type has no call numbers, as when Yama hides the call from a process that is no ancestor."""
    programs = [[sys.executable, "-ISuc", program] for program in SEEN_BY_WAITS]
    seen = observe(programs, prefix=("setarch", "linux32"))
    assert dict(zip(SEEN_BY_WAITS, seen, strict=True)) == {program: [mode] for program, mode in SEEN_BY_WAITS.items()}


def test_a_process_that_is_not_there_is_unknown() -> None:
    child = subprocess.Popen(["true"])
    started = processes.start_time(os.getpid())
    child.wait()
    assert foreground.find(child.pid, "/dev/pts/0") is None
    assert processes.start_time(child.pid) is None
    assert started is not None
    assert not processes.alive(child.pid, started)
    assert not processes.alive(child.pid, None)


def test_a_process_without_a_terminal_has_no_foreground() -> None:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True)
    try:
        assert foreground.find(child.pid, "/dev/pts/0") is None
    finally:
        child.communicate()


def test_who_reads_a_terminal_from_elsewhere_is_named(bash: Console) -> None:
    assert foreground.rival(bash.pid, bash.tty) == ""
    with open(bash.tty) as terminal:
        other = subprocess.Popen(["cat"], stdin=terminal, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        bash.until(lambda _: foreground.rival(bash.pid, bash.tty) == f"'cat' (process {other.pid})")
        assert foreground.rival(bash.pid, "/dev/null") == ""
    finally:
        other.kill()
        other.wait()
    assert foreground.rival(bash.pid, bash.tty) == ""


def test_a_shell_at_its_prompt_is_not_busy_and_one_that_computes_or_waits_elsewhere_is(bash: Console) -> None:
    assert not foreground.is_busy(bash.pid, bash.tty)
    bash.type("echo 'comp''utes'; while :; do :; done\n")
    bash.until(lambda _: b"computes" in bash.output and foreground.is_busy(bash.pid, bash.tty))
    bash.type("\x03")
    bash.at_prompt()
    bash.type("mkfifo gate; echo 'wai''ts'; read _ <gate\n")
    bash.until(lambda _: b"waits" in bash.output and foreground.is_busy(bash.pid, bash.tty))


def test_a_process_is_named_by_its_pid_and_start() -> None:
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    started = processes.start_time(child.pid)
    assert started is not None
    assert processes.alive(child.pid, started)
    assert processes.alive(child.pid, None)
    assert not processes.alive(child.pid, started + 1)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not processes.alive(child.pid, started), "a zombie is dead"
    child.communicate()


def test_looking_is_cheap(bash: Console) -> None:
    """Measured 0.2 ms with 100 processes: 1 us for each, and 80 us for the group's own; reading every stat costs 10."""
    best = min(_seconds(lambda: foreground.find(bash.pid, bash.tty)) for _ in range(200))
    assert best < 0.0005 + 0.000003 * len(os.listdir("/proc"))


def _seconds(ask: Callable[[], object]) -> float:
    begun = time.perf_counter()
    ask()
    return time.perf_counter() - begun


def _session(leader: int) -> list[int]:
    found: list[int] = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.getsid(int(name)) == leader:
                found.append(int(name))
        except ProcessLookupError:
            continue
    return found


def _names_in_session(leader: int) -> set[str]:
    return {_command(pid).split(" ")[0] for pid in _session(leader)}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().strip("\0").replace("\0", " ")
    except OSError:
        return ""


def test_a_process_is_allowed_more_files_as_far_as_its_hard_limit_goes() -> None:
    with subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL) as program:
        try:
            resource.prlimit(program.pid, resource.RLIMIT_NOFILE, (3, 32))
            assert processes.files_open(program.pid) == 3
            assert not processes.allow_files(program.pid, 64, least=40)
            assert processes.files_allowed(program.pid) == 3
            assert processes.allow_files(program.pid, 64, least=20)
            assert processes.files_allowed(program.pid) == 32
            assert not processes.allow_files(program.pid, 16)
        finally:
            program.kill()


@pytest.mark.parametrize(
    ("name", "shown"),
    [(b"plain", "plain"), (b"a b\n\x7f", "a b??"), (b"caf\xc3\xa9\xff", "café\ufffd"), (b"\xe3\x80\x80", "\u3000")],
)
def test_the_directory_of_a_process_may_be_shown_and_outlives_itself(home: Path, name: bytes, shown: str) -> None:
    location = os.path.join(os.fsencode(home), name)
    os.mkdir(location)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, cwd=location) as process:
        assert processes.directory(process.pid) == f"{home}/{shown}"
        os.rmdir(location)
        assert processes.directory(process.pid) == f"{home}/{shown}"
        process.communicate()
    assert processes.directory(process.pid) == ""


def test_only_what_began_with_the_command_gets_its_signal_wherever_pids_begin_anew() -> None:
    """The highest pid may have been assigned between an older child and the command, or since the command began."""
    script = "sleep 1000 & echo $!; read x; sleep 1000 & echo $!; read x"
    pipe = subprocess.PIPE
    with subprocess.Popen(["bash", "-c", script], stdin=pipe, stdout=pipe, text=True, bufsize=1) as shell:
        assert shell.stdin
        assert shell.stdout
        older = int(shell.stdout.readline())
        since = processes.start_time(older)
        begun = processes.ticks() + 1
        while processes.ticks() < begun:
            os.sched_yield()
        for born_after in (1, older, 1 << 22):
            assert not processes.signal_children(shell.pid, begun, born_after, signal.SIGTERM)
        shell.stdin.write("\n")
        newer = int(shell.stdout.readline())
        with ending(newer):
            assert processes.signal_children(shell.pid, begun - 1, 1 << 22, signal.SIGKILL)
        assert processes.alive(older, since)
        shell.kill()
        os.kill(older, signal.SIGKILL)
