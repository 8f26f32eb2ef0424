"""What a box of bubblewrap keeps in and out, as root and as an ordinary user."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ai_session.models import SandboxLevel
from ai_session.sandbox.sandbox import Sandbox
from tests.ai_session.support.box_users import MOSTLY_ORDINARY, MOSTLY_ROOT, USERS
from tests.ai_session.support.boxes import BoxUser, as_user, box_user, python_inside


@pytest.fixture(params=MOSTLY_ORDINARY)
def here(request: pytest.FixtureRequest) -> Iterator[BoxUser]:
    with box_user(request.param) as made:
        yield made


@pytest.fixture
def repository(here: BoxUser) -> BoxUser:
    return with_repository(here)


def with_repository(here: BoxUser) -> BoxUser:
    here.sh(
        "git init -q . && printf '[user]\\n\\tname = a\\n\\temail = a@b\\n' >> .git/config;"
        "echo one > one && git add one && git commit -qm one && echo TOKEN=x > .env && echo k > tls.key"
    )
    return here


def refused(done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode != 0 and any(
        word in done.stderr for word in ("Read-only", "busy", "denied", "not permitted", "File exists", "not empty")
    )


@pytest.mark.parametrize("uid", USERS)
def test_the_probe_takes_the_strongest(uid: int, home: Path) -> None:
    status = as_user(uid, lambda: asyncio.run(Sandbox(runtime_directory=home).probe()))
    assert status.level is SandboxLevel.BWRAP
    assert status.bubblewrap
    assert status.reasons == ()


@pytest.mark.torture  # test_sandbox_verb.py has a day's work
def test_work_goes_on_inside(repository: BoxUser) -> None:
    done = repository.run("echo two > two && git add two && git commit -qm two && git log --oneline | wc -l")
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr
    assert (repository.workspace / "two").read_text() == "two\n"
    assert "two" in repository.sh("git log --oneline")
    assert repository.sh("git fsck 2>&1; git status --porcelain").split() == ["??", ".env", "??", "tls.key"]


@pytest.mark.torture  # by day test_sandbox_verb.py
def test_the_exit_code_and_the_directory_are_passed_on(here: BoxUser) -> None:
    done = here.run("pwd; exit 7")
    assert (done.returncode, done.stdout.strip()) == (7, str(here.workspace))
    assert here.run("kill -9 $$").returncode == 137


def protected(here: BoxUser) -> dict[str, bytes]:
    """Content of all that must be what and where it is; a move across mounts may copy, and delete other things."""
    names = (
        "config",
        "hooks",
        "info/",
        "commondir",
        "gitdir",
        ".claude",
        ".mcp",
        ".envrc",
        "gitinclude",
        "linked/.git",
    )
    kept = [here.workspace / name for name in here.files() if name.startswith((".", "deep", "bare.git", "hooks.d"))]
    return {
        str(path): path.read_bytes() for path in kept if path.is_file() and any(name in str(path) for name in names)
    }


ATTACKS = [
    "echo x >> .git/config",
    "mv .git/config c && cp c .git/config",
    "rm .git/config",
    "mv .git g",
    "echo x > .git/hooks/pre-commit",
    "mv .git/hooks h",
    "echo x > .git/info/attributes",
    "echo /tmp/x > .git/commondir",
    "rm .git/commondir",
    "ln -s /tmp .git/modules/x",
    "echo x > .claude/settings.json",
    "mkdir .cursor/rules",
    "mv .vscode v",
    "rmdir .gemini",
    "echo x > .mcp.json",
    "echo x > .envrc",
    "echo x > deep/er/repo/.git/config",
    "mv deep d",
    "mv deep/er e",
    "mv deep/er/repo/.git g",
    "echo x > deep/er/repo/.claude/settings.json",
    "echo x > deep/er/linked/.git",
    "echo x > bare.git/config",
    "mv bare.git/hooks h",
    "echo x > hooks.d/pre-push",
    "echo x > .gitinclude",
    "echo x > .git/worktrees/tree/commondir",
    "echo x > .git/config.worktree",
    "echo x > .git/worktrees/tree/config.worktree",
]
Attacked = tuple[dict[str, subprocess.CompletedProcess[str]], dict[str, bytes], dict[str, bytes]]


@pytest.fixture(scope="module", params=MOSTLY_ORDINARY)
def attacked(request: pytest.FixtureRequest) -> Iterator[Attacked]:
    """What came of the attacks in one box, and what is protected, before them and afterwards."""
    with box_user(request.param) as here:
        with_repository(here).sh(
            "mkdir -p deep/er/repo/.claude deep/er/linked hooks.d .git/modules; touch .mcp.json .envrc .gitinclude;"
            "git init -q deep/er/repo; echo 'gitdir: x' > deep/er/linked/.git; git init -q --bare bare.git;"
            "git config core.hooksPath hooks.d; git config include.path ../.gitinclude;"
            "git worktree add -q ../tree; git config extensions.worktreeConfig true"
        )
        before = protected(here)
        done = here.run_each(ATTACKS)
        yield done, before, protected(here)


@pytest.mark.parametrize("attack", ATTACKS)
def test_protected_paths(attacked: Attacked, attack: str) -> None:
    done, before, after = attacked
    assert refused(done[attack]), (done[attack].returncode, done[attack].stderr)
    assert after == before


def test_secrets_of_the_workspace_are_found_empty(repository: BoxUser) -> None:
    (repository.workspace / "linked.key").symlink_to("one")
    done = repository.run("cat .env tls.key one linked.key; echo x > .env; mv .env e; cat .env; ls e")
    assert done.stdout == ""
    assert (repository.workspace / ".env").read_text() == "TOKEN=x\n"


@pytest.mark.torture  # as by day test_workspace_protection.py sees of a session's
def test_the_workspace_is_left_as_it_was(repository: BoxUser) -> None:
    before = repository.files()
    during = repository.run("ls -A").stdout.split()
    assert {".claude", ".vscode"} <= set(during)
    assert repository.files() == before


def test_the_last_box_takes_the_placeholders_away(repository: BoxUser) -> None:
    before = repository.files()

    async def work() -> list[bool]:
        first, second = await repository.prepare("one"), await repository.prepare("two")
        seen = [(repository.workspace / ".claude").is_dir()]
        first.release()
        seen.append((repository.workspace / ".claude").is_dir())
        (repository.workspace / ".cursor" / "mine").write_text("data")
        second.release()
        second.release()
        return [*seen, (repository.workspace / ".claude").exists()]

    assert as_user(repository.uid, lambda: asyncio.run(work())) == [True, True, False]
    assert repository.files() == sorted([*before, ".cursor", ".cursor/mine"])


@pytest.mark.torture  # by day test_workspace_protection.py has the next daemon do it
def test_a_later_process_takes_the_placeholders_of_a_gone_box_away(repository: BoxUser) -> None:
    before = repository.files()

    async def abandon() -> None:
        await repository.prepare("gone")

    as_user(repository.uid, lambda: asyncio.run(abandon()))
    assert repository.files() != before
    for file in (repository.runtime / "gone").iterdir():
        file.unlink()
    (repository.runtime / "gone").rmdir()
    assert repository.run("true").returncode == 0
    assert repository.files() == before


def test_only_what_is_named_is_visible(here: BoxUser) -> None:
    (here.home / ".ssh").mkdir(mode=0o755)
    (here.home / ".ssh/id").write_text("KEY")
    (here.home / ".local/bin").mkdir(parents=True)
    (here.home / ".local/bin/tool").write_text("#!/bin/sh\necho tool\n")
    (here.home / ".local/bin/tool").chmod(0o755)
    shown, other = here.root / "shown", here.root / "other"
    shown.mkdir()
    other.mkdir()
    done = here.run(
        f"ls -A {here.home}; ls {here.root}; {here.home}/.local/bin/tool; cat {here.home}/.ssh/id; "
        f"echo x > {here.home}/.local/bin/tool; echo x > {shown}/x; echo mine > {here.home}/scratch",
        home_readable=(str(here.home / ".local/bin"), str(here.home / ".absent")),
        readable=(str(shown),),
    )
    assert done.stdout.split() == [".local", "home", "shown", "ws", "tool"]
    assert done.stderr.count("Read-only") == 2
    assert not (here.home / "scratch").exists()


PLACES = ["/", "/usr", "/etc", "/opt", "/bin", "/var", "/proc/sys/kernel", "/nowhere"]
TRIES = {where: f"mkdir -p {where}/x || echo x > {where}/x" for where in PLACES}
WRITABLE = (
    "find /proc -maxdepth 1 -type f -perm /222 -writable;"
    "find /proc/sys /proc/fs /proc/irq /proc/bus -type f -writable; find /proc/self/oom_score_adj -writable; echo end"
)
SHOWN = "find /proc -maxdepth 1 -type f ! -perm -o=r -readable -exec head -c 1 {} +"
CLOSED = (
    "find /etc /opt -type f ! -perm -o=r -size +0 -readable; cat /etc/shadow;"
    "find /etc /opt -mindepth 1 -type d ! -perm -o=rx -readable ! -empty"
)
STARTER = "tr '\\0' '\\n' < /proc/1/environ; echo; echo end; env"
Looked = tuple[BoxUser, dict[str, subprocess.CompletedProcess[str]]]


@pytest.fixture(scope="module", params=MOSTLY_ROOT)
def looked(request: pytest.FixtureRequest) -> Iterator[Looked]:
    """What was found in one box; most of it matters to root alone."""
    with box_user(request.param) as here:
        yield here, here.run_each([*TRIES.values(), WRITABLE, SHOWN, CLOSED, "cat /etc/passwd", STARTER])


@pytest.mark.parametrize("where", PLACES)
def test_nothing_else_can_be_written(looked: Looked, where: str) -> None:
    assert looked[1][TRIES[where]].returncode != 0
    assert not Path(where, "x").exists()


def test_no_setting_of_the_kernel_can_be_changed(looked: Looked) -> None:
    """Asked of the kernel, never tried: through a box that leaks, a try would change the machine. What nobody has leave
    to write to takes nothing from root either, who may open it."""
    assert looked[1][WRITABLE].stdout.split() == ["/proc/self/oom_score_adj", "end"]


def test_what_the_kernel_shows_to_root_alone_is_empty(looked: Looked) -> None:
    assert looked[1][SHOWN].stdout == ""


def test_files_closed_to_others_are_found_empty(looked: Looked) -> None:
    assert looked[1][CLOSED].stdout == ""
    assert looked[1]["cat /etc/passwd"].stdout.startswith("root:")


def test_what_starts_the_box_is_not_led_by_the_environment_inside(looked: Looked) -> None:
    here, done = looked
    starter, _, inside = done[STARTER].stdout.partition("end")
    assert str(here.home) not in starter
    assert f"HOME={here.home}" in inside
    assert "TMPDIR=/tmp" in inside


def test_nothing_inherited_is_open_inside(here: BoxUser) -> None:
    descriptor = os.open("/", os.O_RDONLY)
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD, 200)
    try:
        done = here.run("ls /proc/self/fd", pass_fds=(descriptor, high))
    finally:
        os.close(high)
        os.close(descriptor)
    assert done.stdout.split() == ["0", "1", "2", "3"]


def test_no_process_outside_is_seen_or_reached(here: BoxUser) -> None:
    outside = subprocess.Popen(["/bin/sleep", "1000"], user=here.uid)
    try:
        done = here.run(f"ls /proc | grep -c '^[0-9]'; kill -9 {outside.pid}; cat /proc/{outside.pid}/environ")
        assert int(done.stdout) < 10
        assert outside.poll() is None
    finally:
        outside.kill()
        outside.wait()


def test_there_is_no_network_but_its_own(here: BoxUser) -> None:
    python, readable = python_inside()
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"s.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)"
        program = f"""
import socket as s
a = s.create_server(('127.0.0.1', 0)); s.create_connection(a.getsockname()); print('own', flush=True)
{connect}
"""
        done = here.enter([python, "-I", "-S", "-c", program], readable=readable)
        assert done.stdout == "own\n"
        assert "refused" in done.stderr
        program = f"import socket as s; {connect}; print('in')"
        done = here.enter([python, "-I", "-S", "-c", program], readable=readable, network="host")
        assert done.stdout == "in\n"


FILTERED = {
    "import os; os.unshare(0x10000000)" if hasattr(os, "unshare") else "c.unshare(0x10000000) and fail()": "1",
    "import fcntl, os; m, s = os.openpty(); os.setsid(); fcntl.ioctl(s, 0x5412, b'x')": "1",
    "import socket; socket.socket(40, 1)": "97",
    "import os; os.chmod('f', 0o4755)": "1",
    "import os; os.mknod('dev', 0o020666, 0x103)": "1",
    "c.syscall(425, 8, 0) < 0 and fail()": "38",
    "c.mount(b'none', b'/tmp', b'tmpfs', 0, 0) and fail()": "1",
}
"""What the filter refuses, and with which error."""
CALLS = f"""
import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
def fail(): raise OSError(ctypes.get_errno(), 'no')
open('f', 'w')
for code in {list(FILTERED)!r}:
    if pid := os.fork():
        os.waitpid(pid, 0)
        continue
    try:
        exec(code)
        print('done', flush=True)
    except OSError as e: print(e.errno, flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module", params=MOSTLY_ORDINARY)
def called(request: pytest.FixtureRequest) -> Iterator[subprocess.CompletedProcess[str]]:
    python, readable = python_inside()
    with box_user(request.param) as here:
        yield here.enter([python, "-c", CALLS], readable=readable)


@pytest.mark.parametrize("code", FILTERED)
def test_the_filter_is_in_force(called: subprocess.CompletedProcess[str], code: str) -> None:
    answers = called.stdout.split()
    assert len(answers) == len(FILTERED), called
    assert dict(zip(FILTERED, answers, strict=True))[code] == FILTERED[code], called.stderr


@pytest.mark.torture  # test_sandbox_verb.py has a day's work
def test_python_works_inside(here: BoxUser) -> None:
    python, readable = python_inside()
    program = (
        "import multiprocessing, subprocess, sys\n"
        "def main():\n"
        "    with multiprocessing.Manager() as m: d = m.dict(a=1)\n"
        "    with multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, -2]))\n"
        "    subprocess.run([sys.executable, '-m', 'venv', '--without-pip', 'v'], check=True)\n"
        "    print(subprocess.run(['v/bin/python', '-c', 'print(3)'], capture_output=True, text=True).stdout)\n"
        "main()\n"
    )
    done = here.enter([python, "-c", program], readable=readable)
    assert done.stdout.split() == ["[1,", "2]", "3"], done.stderr
