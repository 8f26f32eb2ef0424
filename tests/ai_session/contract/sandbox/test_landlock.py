"""The box without namespaces, on pipes and on a terminal: what gets out of it, how it ends, how it feels."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pexpect
import pytest

from ai_session.models import SandboxProfile
from ai_session.sandbox import landlock, landlock_exec, seccomp
from tests.ai_session.support import unprivileged
from tests.support.bounds import BOUND_SECONDS

PROMPT = r"\$ "
FILTER = seccomp.build(network=False, unix_sockets=False, no_namespaces=True)


@dataclass
class Box:
    """A root with a workspace, a home and the words that put a command into the box."""

    root: Path
    workspace: Path
    home: Path
    prefix: tuple[str, ...]
    env: dict[str, str]

    def run(self, script: str, *, shell: str = "/bin/bash", **options: object) -> subprocess.CompletedProcess[str]:
        with self.start(script, shell=shell, **options) as process:
            out, err = process.communicate(timeout=BOUND_SECONDS)
        return subprocess.CompletedProcess((), process.returncode, out, err)

    def out(self, script: str) -> str:
        done = self.run(script)
        assert done.returncode == 0, done
        return done.stdout

    @contextmanager
    def start(self, script: str, *, shell: str = "/bin/bash", **options: object) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(  # type: ignore[call-overload]
            [*self.prefix, shell, "-c", script],
            cwd=self.workspace,
            env=self.env,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **{**unprivileged.identity(), **options},
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
            process.wait(BOUND_SECONDS)
            process.stdout.close()
            process.stderr.close()

    @contextmanager
    def terminal(self, *argv: str) -> Iterator[pexpect.spawn[str]]:
        child = pexpect.spawn(
            argv[0],
            list(argv[1:]),
            cwd=str(self.workspace),
            env=self.env,
            encoding="utf-8",
            timeout=BOUND_SECONDS,  # pyright: ignore[reportArgumentType]
            dimensions=(24, 80),
            preexec_fn=unprivileged.become(),
        )
        child.delaybeforesend = None
        try:
            yield child
        finally:
            child.close(force=True)


def make(root: Path, home: Path, profile: SandboxProfile | None = None) -> Box:
    workspace, real, directory = (unprivileged.folder(root / name) for name in ("work", "home", "box"))
    unprivileged.give(_write(real / ".gitconfig", "[user]\n\tname = Somebody\n"))
    unprivileged.give(_write(real / "canary", "hidden"))
    profile = profile or SandboxProfile("workspace")
    shown = (".gitconfig", "absent", "../box")
    profile = replace(profile, workspace=str(workspace), home=str(real), home_readable=shown)
    env = {"HOME": str(real), "PATH": "/usr/bin:/bin", "TERM": "xterm", "PS1": "$ ", "WORLD": str(home)}
    words = landlock.prefix(profile, directory, (), (), FILTER, env)
    for path in directory.rglob("*"):
        if not path.is_symlink():
            unprivileged.give(path)
    return Box(root, workspace, real, (unprivileged.interpreter(), *words[1:]), env)


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def box(home: Path) -> Iterator[Box]:
    with unprivileged.directory() as root:
        yield make(root, home)


def test_the_kernel_here_is_new_enough() -> None:
    assert landlock_exec.abi() >= landlock.LEAST_ABI


ENDS = (("exit 7", 7), ("kill -TERM $$", -15), ("kill -KILL $$", -9), ("exec /absent", 127))
MORE_ENDS = (
    *(("exit 0", 0), ("exit 255", 255), ("kill -INT $$", -2)),
    *(("kill -SEGV $$", -11), ("kill -40 $$", -40)),
)


@pytest.mark.parametrize("ends", [ENDS, pytest.param(MORE_ENDS, marks=pytest.mark.torture)], ids=["few", "more"])
def test_exit_status_is_passed_on(box: Box, ends: tuple[tuple[str, int], ...]) -> None:
    for script, status in ends:
        assert box.run(script).returncode == status, script


def test_what_cannot_be_run_is_named(box: Box) -> None:
    done = box.run("", shell="/no/such/shell")
    assert (done.returncode, done.stderr) == (127, "ai-session: /no/such/shell: No such file or directory\n")


def test_what_cannot_be_boxed_does_not_run(box: Box) -> None:
    (box.root / "box/filter").write_bytes(b"\0" * 8)
    done = box.run("echo ran")
    assert (done.returncode, done.stdout) == (126, "")
    assert "cannot install the filter" in done.stderr


def test_files(box: Box) -> None:
    out = box.out(
        "echo in >file && cat file; cat ~/.gitconfig; mktemp >/dev/null && echo scratch; head -c4 /etc/passwd; echo;"
        "echo private >~/mine && cat ~/mine; (echo x >/tmp/landlock-canary) 2>&1; ls /tmp 2>&1;"
        f"cat {box.home}/canary 2>&1; (echo x >{box.home}/new) 2>&1; cat {box.root}/box/SPEC.json 2>&1; true"
    )
    assert out.splitlines()[:6] == ["in", "[user]", "\tname = Somebody", "scratch", "root", "private"]
    assert out.count("Permission denied") == 5
    assert not Path("/tmp/landlock-canary").exists()
    assert not (box.home / "new").exists()
    assert not (box.home / "mine").exists()


def test_the_environment_is_what_was_asked_for(box: Box) -> None:
    directory = box.root / "box"
    tools = unprivileged.folder(box.workspace / "tools")
    unprivileged.give(_write(tools / "tool", "#!/bin/sh\nenv | sort")).chmod(0o755)
    asked = {"PATH": f"{tools}:/usr/bin", "EXTRA": "a b", "TERM": "asked", "HOME": "elsewhere"}
    profile = SandboxProfile("workspace", str(box.workspace))
    words = landlock.prefix(profile, directory, (), (), FILTER, asked)
    unprivileged.give(directory / "SPEC.json")
    line, env = [box.prefix[0], *words[1:], "tool"], {"PATH": "/bin", "TERM": "starter"}
    done = subprocess.run(
        line, env=env, capture_output=True, text=True, timeout=BOUND_SECONDS, **unprivileged.identity()
    )
    found = dict(entry.split("=", 1) for entry in done.stdout.splitlines())
    assert found.pop("PWD")
    scratch = directory / "tmp"
    wanted = {"HOME": str(directory / "home"), "TMPDIR": str(scratch), "TERM": "starter"}
    wanted["TMPPREFIX"] = str(scratch / "zsh")
    assert found == {**asked, **wanted}, done


def test_a_workspace_to_read_only(home: Path) -> None:
    with unprivileged.directory() as root:
        box = make(root, home, SandboxProfile("read-only"))
        unprivileged.give(_write(box.workspace / "file", "text"))
        assert "text" in (out := box.out("cat file; (echo x >file) 2>&1; (echo x >new) 2>&1; rm -f file 2>&1; true"))
        assert out.count("Permission denied") == 3


def test_signals_stay_in_the_box(box: Box) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, **unprivileged.identity()) as outside:
        assert "not permitted" in box.out(f"kill {outside.pid} 2>&1; kill $PPID 2>&1; true")
        box.out("kill -9 -1")
        assert outside.poll() is None
        outside.communicate()


def test_descriptors_stay_outside(box: Box) -> None:
    fd = os.open(box.root, os.O_RDONLY)
    try:
        assert box.run("ls /proc/self/fd", pass_fds=(fd,)).stdout.split() == ["0", "1", "2", "3"]
    finally:
        os.close(fd)


FORKS = """
import os, signal
made = 0
try:
    while made < 100:
        if os.fork() == 0:
            signal.pause()
        made += 1
except BlockingIOError:
    print(made)
"""


def test_limits(home: Path) -> None:
    # A user of whom nothing else runs: the kernel counts all of a user's processes.
    user = 30000 + os.getpid() % 10000
    alone = {"user": user, "group": unprivileged.GROUP} if os.geteuid() == 0 else {}
    with unprivileged.directory() as root:
        box = make(root, home, SandboxProfile("workspace", processes=20, file_bytes=1 << 20))
        (box.workspace / "forks.py").write_text(FORKS)
        if alone:
            for path in (root, *root.rglob("*")):
                os.chown(path, user, -1, follow_symlinks=False)
        script = "head -c 2M /dev/zero >big; stat -c %s big; ulimit -n; exec /usr/bin/python3 forks.py"
        written, files, forks = box.run(script, **alone).stdout.split()
        assert (int(written), int(files)) == (1 << 20, 4096)
        assert 0 < int(forks) <= 20


HIDES = "(trap '' TERM HUP; setsid bash -c 'trap \"\" TERM HUP; echo up; while :; do sleep 100; done') & "


def test_the_tree_ends_with_the_shell(box: Box) -> None:
    # Everybody in it holds standard output: its end is theirs.
    done = box.run(f"{HIDES} read -r _ < <(exec tail -f /proc/self/status); exit 3")
    assert done.returncode == 3


def test_the_tree_ends_when_told(box: Box) -> None:
    with box.start(f"trap '' TERM HUP; {HIDES} wait") as process:
        assert process.stdout.readline() == "up\n"
        process.terminate()
        assert process.stdout.read() == ""
        assert process.wait(BOUND_SECONDS) == -signal.SIGTERM
    assert list((box.root / "box").glob("tmp")) == []


def test_what_forks_all_the_time_ends_too(box: Box) -> None:
    program = "import os\nprint('up', flush=True)\nwhile True:\n    if os.fork():\n        os._exit(0)\n"
    with box.start(f"/usr/bin/python3 -c \"{program}\" & wait; trap '' TERM; tail -f /dev/null") as process:
        assert process.stdout.readline() == "up\n"
        process.terminate()
        assert process.wait(BOUND_SECONDS) == -signal.SIGTERM
        assert process.stdout.read() == ""


def test_the_shell_ends_with_its_supervisor(box: Box) -> None:
    with box.start("echo up; exec sleep 100") as process:
        assert process.stdout.readline() == "up\n"
        process.kill()
        assert process.stdout.read() == ""


@pytest.mark.either("shell")
@pytest.mark.parametrize("shell", ["bash --norc -i", "zsh -f -i", "dash -i"])
def test_a_shell_at_a_terminal(box: Box, shell: str) -> None:
    with box.terminal(*box.prefix, *shell.split()) as terminal:
        terminal.expect(PROMPT)
        terminal.sendline("echo g''o; cat")
        terminal.expect("go\r\n")
        answered(terminal, "one")
        terminal.sendintr()
        terminal.expect(PROMPT)
        terminal.sendline("echo status=$?; cat >/dev/tty; echo ba''ck")
        terminal.expect("status=130")
        answered(terminal, "two")
        terminal.sendcontrol("z")
        terminal.expect("(?i)stopped|suspended")
        terminal.expect(PROMPT)
        terminal.sendline("fg")
        terminal.expect("cat")
        answered(terminal, "three")
        terminal.sendeof()
        terminal.expect(PROMPT)
        terminal.setwinsize(33, 77)
        terminal.sendline("stty size <$(tty)")
        terminal.expect("33 77")
        terminal.expect(PROMPT)
        terminal.sendline("exit 5")
        terminal.expect(pexpect.EOF)
        terminal.wait()
        assert terminal.exitstatus == 5


def answered(terminal: pexpect.spawn[str], word: str) -> None:
    """Types a word and waits for the terminal's echo of it and for the program's."""
    terminal.sendline(word)
    terminal.expect(f"{word}\r\n.*{word}\r\n")


def test_a_hang_up_ends_all(box: Box) -> None:
    fifo = box.workspace / "alive"
    os.mkfifo(fifo)
    unprivileged.give(fifo)
    alive = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with box.terminal(*box.prefix, "bash", "--norc", "-i") as terminal:
        terminal.sendline(f"exec 9<>alive; {HIDES.strip()}")
        terminal.expect("up\r\n")
        supervisor = os.pidfd_open(terminal.pid)
        terminal.ptyproc.fileobj.close()
        assert select.select([supervisor], [], [], BOUND_SECONDS)[0]
        os.close(supervisor)
        assert os.read(alive, 1) == b""
        os.close(alive)
        os.waitpid(terminal.pid, 0)
        terminal.ptyproc.terminated = True


def test_a_program_that_stops_itself_stops_its_job(box: Box) -> None:
    """As in an editor: ^Z is its to handle, and the shell outside the box is to get the terminal back."""
    program = "import os, signal; print('runs', flush=True); os.kill(0, signal.SIGTSTP); print('goes on')"
    with box.terminal("/bin/bash", "--norc", "-i") as terminal:
        _write(box.workspace / "program.py", program)
        unprivileged.give(box.workspace / "program.py")
        terminal.sendline(f"{' '.join(box.prefix)} /usr/bin/python3 program.py; echo s''een")
        terminal.expect("runs")
        terminal.expect("Stopped")
        terminal.expect("seen")
        terminal.sendline("fg")
        terminal.expect("goes on")
        terminal.sendline("exit 4")
        terminal.expect(pexpect.EOF)
        terminal.wait()
        assert terminal.exitstatus == 4


@pytest.mark.parametrize("path", ["/etc/shadow", "/etc/gshadow"])
def test_even_root_reads_only_what_everybody_may(home: Path, path: str) -> None:
    assert os.geteuid() == 0, "run as root: this is about root"
    root = home / "root"
    root.mkdir()
    workspace, directory = root / "work", root / "box"
    workspace.mkdir()
    directory.mkdir()
    words = landlock.prefix(SandboxProfile("workspace", workspace=str(workspace)), directory, (), (), FILTER)
    script = f"cat {path}; ls /etc >/dev/null && id -un && grep ^CapEff /proc/self/status; echo x >/etc/canary"
    done = subprocess.run(
        [*words, "/bin/sh", "-c", script], cwd=workspace, capture_output=True, text=True, timeout=BOUND_SECONDS
    )
    assert done.stdout == f"root\nCapEff:\t{0:016x}\n"
    assert done.stderr.count("Permission denied") == 2
