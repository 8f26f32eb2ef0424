"""Terminals, descriptors, processes, programs, files: what is missing is said, and nothing else suffers from it."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.ai_session.support.mcp_client import BOUND_SECONDS
from tests.ai_session.torture.faults import PTY_FIRST, ROOT, SERVER, TMUX_FIRST, Caller, Machine, machine, mounted
from tests.ai_session.torture.kills import spin
from tests.support.process_ends import kill_process

FEW_TERMINALS = (
    "mount -t devpts -o newinstance,ptmxmode=0666,max=4 none /dev/pts && mount --bind /dev/pts/ptmx /dev/ptmx"
)
PROCESSES = 120
STRANGER = 61_234


def create_until_refused(client: Caller, backend: str) -> int:
    """How many sessions there could be; the next one is refused for lack of something."""
    for number in range(64):
        result = client.call("create_session", name=f"s{number}", backend=backend)
        if result.get("isError"):
            break
    else:
        raise AssertionError("nothing runs out")
    client.refused("terminals_exhausted", "create_session", name=f"s{number}", backend=backend)
    return number


def unaffected(client: Caller, count: int) -> None:
    """All sessions there are run commands, and there are no others."""
    for number in range(count):
        assert client.run(f"s{number}", "echo $n; pwd") == f"{number}\n/usr\n"
    assert len(client.ok("list_sessions")["sessions"]) == count


def give_state(client: Caller, count: int) -> None:
    for number in range(count):
        client.run(f"s{number}", f"n={number}; cd /usr")


def room_for_one_after_a_close(client: Caller, backend: str, count: int) -> None:
    """What one session gives back is enough for another one."""
    client.ok("close_session", session_id=f"s{count - 1}")
    client.ok("create_session", name=f"s{count - 1}", backend=backend)
    client.run(f"s{count - 1}", f"n={count - 1}; cd /usr")
    unaffected(client, count)


@pytest.mark.torture
def test_a_next_daemon_keeps_all_sessions_where_the_user_has_no_more_watches(home: Path) -> None:
    without_inotify = 'echo 0 >/proc/sys/user/max_inotify_instances && exec "$@"'
    with machine(home) as here:
        with here.caller() as client:
            client.ok("create_session", name="s0", backend="tmux")
            give_state(client, 1)
        kill_process(here.daemon())
        with Machine(home, ["unshare", "-r", "sh", "-c", without_inotify, "sh"]).caller() as client:
            unaffected(client, 1)
            client.ok("create_session", name="next", backend="tmux")
            assert client.run("next", "seq 1 20000").endswith("\n20000\n")


@pytest.mark.parametrize("backend", PTY_FIRST)
def test_no_terminals_are_left(home: Path, backend: str) -> None:
    with mounted(home, FEW_TERMINALS) as here, here.caller() as client:
        count = create_until_refused(client, backend)
        assert count >= 2
        give_state(client, count)
        unaffected(client, count)
        room_for_one_after_a_close(client, backend, count)


@pytest.mark.torture  # above the same of terminals; test_backend.py and test_auto_backend.py have few descriptors
@pytest.mark.parametrize("backend", TMUX_FIRST)
def test_no_descriptors_are_left_in_the_daemon(home: Path, backend: str) -> None:
    with machine(home) as here, here.caller() as client:
        client.ok("create_session", name="s0", backend=backend)
        daemon = here.daemon()
        highest = max(int(name) for name in os.listdir(f"/proc/{daemon}/fd"))
        soft, hard = resource.prlimit(daemon, resource.RLIMIT_NOFILE)
        resource.prlimit(daemon, resource.RLIMIT_NOFILE, (highest + 40, hard))
        client.ok("close_session", session_id="s0")
        count = create_until_refused(client, backend)
        assert count >= 1
        give_state(client, count)
        unaffected(client, count)
        room_for_one_after_a_close(client, backend, count)
        resource.prlimit(daemon, resource.RLIMIT_NOFILE, (soft, hard))
        client.ok("create_session", name=f"s{count}", backend=backend)
        client.run(f"s{count}", f"n={count}; cd /usr")
        unaffected(client, count + 1)


@contextmanager
def few_processes() -> Iterator[Machine]:
    """A machine of a user who is not root and may have no more than PROCESSES; root becomes one nobody knows."""
    home = Path(tempfile.mkdtemp(prefix="ais-", dir="/tmp"))
    limit = ["prlimit", f"--nproc={PROCESSES}"]
    if os.geteuid() == 0:
        # What is in root's folders may be read still, the interpreter may lie there.
        caps = ["--securebits=+no_setuid_fixup", "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
        user = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", *caps]
        os.chown(home, STRANGER, STRANGER)
        prefix = [*limit, *user]
    else:
        # The processes of a user are counted anew in a user namespace.
        prefix = ["unshare", "-r", *limit]
    here = Machine(home, prefix)
    try:
        yield here
    finally:
        here.stop_as_its_user()
        shutil.rmtree(home)


def carrying(token: str) -> list[int]:
    """Processes with this in their environment."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if token.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.mark.torture  # test_resource_watch.py ends one in each kind of box
@pytest.mark.parametrize("backend", PTY_FIRST)
def test_a_fork_bomb(backend: str) -> None:
    with few_processes() as here, here.caller() as client:
        token = f"bomb-{backend}-{os.getpid()}"
        for name, env in (("bomb", {"CARRIED": token}), ("other", {})):
            client.ok("create_session", name=name, backend=backend, env=env)
        client.run("other", "kept=yes")
        assert client.run("bomb", "ulimit -Hu") == f"{PROCESSES}\n"
        if os.geteuid() == 0:
            assert int(client.run("bomb", "sed -n 's/^CapEff:\\t//p' /proc/self/status"), 16) in (0, 1 << 2)
        client.begin("bomb", "bomb() { bomb | bomb & }; bomb; wait")
        spin(lambda: len(carrying(token)) > PROCESSES // 2, "no bomb")
        assert client.state("bomb") in ("running", "ready")
        client.ok("list_sessions")
        client.ok("read_screen", session_id="bomb")
        assert client.run("other", "echo $kept") == "yes\n"
        client.ok("close_session", session_id="bomb")
        assert carrying(token) == []
        # What was killed is gone from the process table a moment later, when its parent has looked.
        spin(lambda: client.run("other", "ls -d /usr") == "/usr\n", "no room")
        spin(lambda: not client.call("create_session", name="next", backend=backend).get("isError"), "no room")
        assert client.run("next", "ls -d /usr") == "/usr\n"


def test_there_is_no_tmux(home: Path) -> None:
    empty = home / "bin"
    empty.mkdir()
    with machine(home, PATH=str(empty)) as here, here.caller() as client:
        error = client.refused("backend_unavailable", "create_session", name="s", backend="tmux")
        assert "tmux" in error["message"]
        assert "pty" in error["suggestion"]
        for name, backend in (("s", "auto"), ("t", "")):
            assert client.ok("create_session", name=name, backend=backend)["backend"] == "pty"
            assert client.run(name, "echo ok") == "ok\n"


@pytest.mark.parametrize("backend", TMUX_FIRST)
def test_the_working_directory_is_removed(home: Path, backend: str) -> None:
    gone = home / "work/deeper"
    gone.mkdir(parents=True)
    with machine(home) as here, here.caller() as client:
        client.ok("create_session", name="s", backend=backend, working_directory=str(gone))
        client.run("s", "kept=yes")
        shutil.rmtree(home / "work")
        assert client.run("s", "echo $kept") == "yes\n"
        client.run("s", "ls -d /usr; (exit 3)", 3)
        client.refused("directory_unusable", "create_session", name="t", backend=backend, working_directory=str(gone))
        kill_process(client.ok("get_session_info", session_id="s")["pid"])
        spin(lambda: client.state("s") == "exited", "it has not ended")
        facts = client.ok("create_session", name="s")
        assert os.path.isdir(facts["working_directory"]), facts
        assert client.run("s", "pwd") == facts["working_directory"] + "\n"


@pytest.mark.parametrize("backend", PTY_FIRST)
def test_files_of_a_session_are_removed(home: Path, backend: str) -> None:
    with machine(home) as here, here.caller() as client:
        session_id = client.ok("create_session", name="s", backend=backend)["session_id"]
        client.run("s", "kept=yes")
        for name in ("history.jsonl", "log"):
            (here.runtime / "sessions" / session_id / name).unlink()
            assert client.run("s", "seq 1 20000; echo $kept").endswith("\n20000\nyes\n")
            client.refused("command_not_found", "read_output", session_id="s", command_id="cmd_none")


def test_a_daemon_finds_no_log(home: Path) -> None:
    with machine(home) as here:
        with here.caller() as client:
            session_id = client.ok("create_session", name="s", backend="pty")["session_id"]
            client.run("s", "n=0")
            client.ok("execute_command", session_id="s", command="n=$((n + 1)); (exit 7)")
            for name in ("history.jsonl", "log"):
                (here.runtime / "sessions" / session_id / name).unlink()
            kill_process(here.daemon())
        with here.caller() as client:
            # How the last command ended only its shell still knows, which is asked. It is not run again.
            ended = client.finish("s", "")
            assert (ended["status"], ended["exit_code"]) == ("finished", 7)
            assert client.run("s", "echo $n") == "1\n"


def refusal_of_start(here: Machine) -> str:
    """What a client is told on standard error that cannot reach the daemon."""
    env = {**os.environ, "HOME": str(here.home), "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        SERVER, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BOUND_SECONDS, check=False
    )
    assert ended.returncode == 1, ended
    assert not ended.stdout
    return ended.stderr


def test_the_runtime_directory_is_not_ours_alone(home: Path) -> None:
    with machine(home) as here:
        with here.caller() as client:
            client.ok("create_session", name="s", backend="pty")
            client.run("s", "kept=yes")
        there, owner = here.runtime, os.geteuid()
        there.chmod(0o755)
        assert f"chmod 700 {there}" in refusal_of_start(here)
        there.chmod(0o700)
        away = there.rename(there.with_name("away"))
        there.symlink_to(away)
        assert "is not a directory" in refusal_of_start(here)
        there.unlink()
        away.rename(there)
        if owner == 0:
            os.chown(there, STRANGER, -1)
            assert f"uid {STRANGER}" in refusal_of_start(here)
            os.chown(there, owner, -1)
        with here.caller() as client:
            assert client.run("s", "echo $kept") == "yes\n"
