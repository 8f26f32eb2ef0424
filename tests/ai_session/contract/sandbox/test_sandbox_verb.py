"""``ai-session sandbox -- COMMAND`` is that command: its codes and signals, its pipes, its terminal."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pexpect
import pytest

from tests.ai_session.support.sandbox_verbs import INSIDE, PROMPT, USERS, Caller, caller, enter, say
from tests.support.bounds import BOUND_SECONDS
from tests.support.forked import Forked

MEMORY, PROCESSES = "[sandbox]\nmemory_bytes = 209715200\n", "processes = 40\n"


@pytest.fixture(scope="module")
def anybody() -> Iterator[Caller]:
    """For what depends on no user."""
    with caller(USERS[-1], MEMORY) as made:
        yield made


@pytest.fixture(scope="module")
def root() -> Iterator[Caller]:
    with caller("root", MEMORY + PROCESSES) as made:
        yield made


BOTH = [pytest.param("root", marks=pytest.mark.torture), USERS[-1]][-len(USERS) :]
"""What a user has another one has as well, but for the bounds."""


@pytest.fixture(scope="module", params=BOTH)
def here(request: pytest.FixtureRequest) -> Caller:
    return request.getfixturevalue("root" if request.param == "root" else "anybody")


@pytest.fixture(scope="module")
def inside(here: Caller) -> Iterator[pexpect.spawn[bytes]]:
    """A shell in a box, at its prompt."""
    with here.shell() as shell:
        enter(shell)
        yield shell


def test_the_commands_end_is_the_verbs(anybody: Caller) -> None:
    assert anybody.box("sh", "-c", "exit 7") == (7, b"", b"")
    assert anybody.box("sh", "-c", "kill -TERM $$")[0] == 128 + signal.SIGTERM
    assert anybody.box("nonesuch")[0] == 127
    assert anybody.box("/etc/passwd")[0] == 126
    assert anybody.run("sandbox", "--workspace", "/nowhere", "--", "true")[0] == 125
    assert anybody.run("sandbox", "--home", "/etc/passwd", "--", "true")[0] == 125


def test_what_the_system_refuses_before_the_command_is_no_code_of_it(anybody: Caller) -> None:
    leaving = ("sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh")
    code, out, err = anybody.run("sandbox", "--", "true", before=leaving)
    assert (code, out) == (125, b"")
    assert b"no longer exists" in err
    with open("/dev/full", "w") as full:
        code, _, err = anybody.run("exec", "--json", "nosuch", "true", stdout=full.fileno())
    assert code == 125
    assert err == b"error: No space left on device\n"


def test_pipes_carry_the_commands_bytes_and_nothing_else(anybody: Caller) -> None:
    data = os.urandom(1 << 20)
    assert anybody.box("cat", given=data) == (0, data, b"")
    script = "cat; echo out; echo err >&2; [ -t 0 ] || [ -t 1 ] || exit 3"
    assert anybody.box("sh", "-c", script) == (3, b"out\n", b"err\n")


def test_a_reader_that_goes_ends_it(anybody: Caller) -> None:
    with anybody.start("sandbox", "--", "yes") as process:
        assert process.stdout
        assert process.stderr
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        assert process.wait(BOUND_SECONDS) in (128 + signal.SIGPIPE, 1)
        assert b"Traceback" not in process.stderr.read()


def test_signals_reach_the_command(anybody: Caller) -> None:
    """As a supervisor sends them: to the verb alone, and to its whole group, from which the command may get one of its
    own besides the one that the verb forwards. The command takes its time to end."""
    for number, send in ((signal.SIGTERM, os.kill), (signal.SIGINT, os.kill), (signal.SIGHUP, os.killpg)):
        script = f"trap 'echo caught; cat; exit 9' {number.name[3:]}; echo ready; read -r line"
        with anybody.start("sandbox", "--", "bash", "-c", script, apart=True) as process:
            assert process.stdout
            assert process.stdout.readline() == b"ready\n"
            send(process.pid, number)
            assert process.stdout.readline() == b"caught\n"
            rest, _ = process.communicate(b"last", timeout=BOUND_SECONDS)
            assert rest.removeprefix(b"caught\n" if send is os.killpg else b"").startswith(b"last"), number
            assert process.returncode == 9


def test_what_the_caller_ignores_is_ignored_inside(anybody: Caller) -> None:
    script = "exec grep -h ^SigIgn /proc/self/status"
    plain = anybody.box("sh", "-c", script)[1]
    outer = 'trap "" INT HUP; exec "$@"'
    with anybody.start("sandbox", "--", "sh", "-c", script, before=("sh", "-c", outer, "sh")) as process:
        ignoring, _ = process.communicate(timeout=BOUND_SECONDS)
    bits = (1 << signal.SIGINT - 1) | (1 << signal.SIGHUP - 1)
    assert int(ignoring.split()[1], 16) == int(plain.split()[1], 16) | bits
    assert int(plain.split()[1], 16) & bits == 0


def test_it_reaches_what_is_allowed_and_nothing_else(anybody: Caller) -> None:
    script = r"""
        exec 3<>/dev/tcp/127.0.0.1/${https_proxy##*:} && printf 'CONNECT evil.org:443 HTTP/1.1\r\nHost: x\r\n\r\n' >&3
        read -r line <&3; echo "${line%$'\r'}"
    """
    words = ("sandbox", "--allow-domain", "allowed.example", "--", "bash", "-c", script)
    code, out, err = anybody.run(*words, anew=True)  # it executes its interpreter again
    assert (code, out) == (0, b"HTTP/1.1 403 evil.org is not on this session's list of allowed domains\n"), err


HOLD = "python3 -c 'held = bytearray(150 << 20); input()' <&3"


def test_what_its_processes_hold_together_is_bounded(here: Caller) -> None:
    """Each alone holds less than it may; and no bomb takes the machine, not root's either."""
    with here.start("sandbox", "--", "bash", "-c", f"exec 3<&0; {HOLD} & {HOLD} & wait -n; echo $?") as process:
        out, err = read_end(process)
    assert (out, b"memory: " in err) == (b"137\n", True), err


@pytest.mark.torture
def test_a_bomb_of_roots_goes_out(request: pytest.FixtureRequest) -> None:
    """For others the kernel counts; for root what it bounds by, and the look: see test_resource_watch.py."""
    if "root" not in USERS:
        return  # nobody here is root
    bomb = 'b() { [ "$1" -gt 0 ] || exec sleep 1000; b $(($1 - 1)) & b $(($1 - 1)) & wait; }; b 9 2>/dev/null'
    root: Caller = request.getfixturevalue("root")
    code, out, err = root.run("sandbox", "--", "bash", "-c", f"({bomb}); echo over")
    assert (code, out) == (0, b"over\n")
    assert b"Killed" in err


def read_end(process: subprocess.Popen[bytes] | Forked) -> tuple[bytes, bytes]:
    """All it prints, its input open until it has printed a line."""
    assert process.stdout
    first = process.stdout.readline()
    out, err = process.communicate(timeout=BOUND_SECONDS)
    return first + out, err


# On a terminal.


def test_interrupt_is_the_commands(here: Caller) -> None:
    with here.shell() as shell:
        shell.sendline("box sh -c 'echo begun; exec sleep 1000'")
        shell.expect_exact("begun\r\n")
        shell.sendintr()
        shell.expect_exact(PROMPT)
        assert say(shell, "echo $?") == b"130\n"
        shell.sendline("""box bash -c 'trap "echo caught" INT; echo begun; read a; read b; echo $a$b; exit 5'""")
        shell.expect_exact("begun\r\n")
        shell.sendintr()
        shell.expect_exact("caught\r\n")
        shell.sendline("goes")
        shell.sendline("on")
        shell.expect_exact("goeson\r\n")
        shell.expect_exact(PROMPT)
        assert say(shell, "echo $?") == b"5\n"


@pytest.mark.parametrize("stop", ["", pytest.param("kill -TSTP 0;", marks=pytest.mark.torture)])
def test_the_verb_is_a_job_of_the_callers_shell(here: Caller, stop: str) -> None:
    """Stopped by the terminal, and by the command itself, which inside sees nobody but its own."""
    with here.shell() as shell:
        shell.sendline(f"box bash -c 'echo begun; {stop} read -r x; echo got $x; exit 6'")
        shell.expect_exact("begun\r\n")
        if not stop:
            shell.sendcontrol("z")
        shell.expect_exact("Stopped")
        shell.expect_exact(PROMPT)
        shell.sendline("bg")
        shell.expect_exact(PROMPT)
        shell.sendline("fg")
        shell.sendline("it")
        shell.expect_exact("got it\r\n")
        shell.expect_exact(PROMPT)
        assert say(shell, "echo $?; jobs") == b"6\n"


@pytest.mark.torture  # by day test_boxed_semantics.py has jobs in boxes
def test_a_shell_inside_controls_its_own_jobs(here: Caller) -> None:
    with here.shell() as shell:
        enter(shell)
        shell.sendline("sleep 1000 & sh -c 'echo begun; exec sleep 2000'")
        shell.expect_exact("begun\r\n")
        shell.sendintr()
        shell.expect_exact(INSIDE)
        assert say(shell, "echo $?; jobs -r", INSIDE).splitlines()[-1].endswith(b"sleep 1000 &")
        shell.sendline("bash -c 'echo begun; read -r x; echo got $x'")
        shell.expect_exact("begun\r\n")
        shell.sendcontrol("z")
        shell.expect_exact("Stopped")
        shell.expect_exact(INSIDE)
        assert say(shell, "kill %1; wait %1; echo $?", INSIDE).split()[-1] == b"143"
        shell.sendline("fg")
        shell.sendline("it")
        shell.expect_exact("got it\r\n")
        shell.expect_exact(INSIDE)
        shell.sendline("exit 4")
        shell.expect_exact(PROMPT)
        assert say(shell, "echo $?; cat /proc/$$/comm") == b"4\nbash\n"


RESIZED = (
    "import os, signal; resized = {signal.SIGWINCH}; signal.pthread_sigmask(signal.SIG_BLOCK, resized);"
    'print("begun", flush=True); signal.sigwait(resized); os.system("stty size")'
)


def test_the_terminal_inside_is_the_callers(inside: pexpect.spawn[bytes]) -> None:
    shell = inside
    assert say(shell, "stty size; tty >/dev/null && echo tty", INSIDE) == b"24 80\ntty\n"
    shell.sendline(f"python3 -c '{RESIZED}'")
    shell.expect_exact("begun\r\n")
    shell.setwinsize(31, 97)
    shell.expect_exact("31 97\r\n")
    shell.expect_exact(INSIDE)
    assert say(shell, "echo straight > /dev/tty | cat > /dev/null", INSIDE) == b"straight\n"
    shell.sendline("true | (read -r x < /dev/tty; echo heard $x)")
    shell.sendline("me")
    shell.expect_exact("heard me\r\n")
    shell.expect_exact(INSIDE)


@pytest.mark.torture
def test_tmux_inside(inside: pexpect.spawn[bytes]) -> None:
    shell = inside
    assert say(shell, "tmux -f /dev/null -L in new -d -s s -x 80 -y 10 'cat'; echo $?", INSIDE) == b"0\n"
    say(shell, "tmux -L in set -g status off; tmux -L in send-keys -l nested; clear", INSIDE)
    shell.sendline("tmux -L in attach")
    shell.expect_exact("nested")
    shell.send("\x02d")
    shell.expect_exact("detached")
    shell.expect_exact(INSIDE)
    assert say(shell, "tmux -L in kill-server; tmux -L in ls 2>&1 | wc -l", INSIDE) == b"1\n"


def test_a_days_work(here: Caller) -> None:
    """What developers do in a workspace, in one box."""
    here.sh("git init -q . && git config user.name a && git config user.email a@b")
    (here.workspace / "work.sh").write_text(WORK)
    code, out, err = here.box("bash", "-e", "work.sh")
    assert (code, out.decode().splitlines()) == (0, ["1 commit", "venv", "node 42", "[1, 4, 9]", "semaphore", "shm"]), (
        err
    )


WORK = r"""
echo one > one; git add one; git commit -qm one; echo $(git log --oneline | wc -l) commit
python3 -m venv --without-pip v; . v/bin/activate
python -c 'import sys; print("venv" if sys.prefix.endswith("/ws/v") else sys.prefix)'
if command -v node >/dev/null; then node -e 'const {Worker} = require("worker_threads");
new Worker("require(\"worker_threads\").parentPort.postMessage(42)", {eval: true})
.on("message", n => console.log("node", n))'; else echo node 42; fi
cat > pool.py <<'END'
import multiprocessing
from multiprocessing import shared_memory
def square(n):
    return n * n
if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        print(pool.map(square, [1, 2, 3]))
    gate = multiprocessing.Semaphore(0)
    process = multiprocessing.Process(target=gate.release)
    process.start()
    print("semaphore" if gate.acquire(timeout=20) else "none")
    process.join()
    memory = shared_memory.SharedMemory(create=True, size=1 << 20)
    memory.buf[:3] = b"shm"
    again = shared_memory.SharedMemory(memory.name)
    print(bytes(again.buf[:3]).decode())
    again.close()
    memory.close()
    memory.unlink()
END
python pool.py
"""
