"""pexpect over a session: what scripts for pexpect rely on, against real programs in a real daemon's terminals."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pexpect
import pytest
from pexpect import replwrap
from pexpect.spawnbase import SpawnBase

import ai_session
from ai_session.api import blocking
from tests.ai_session.support.mcp_client import daemon_pids, living_in
from tests.conftest import environment
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS

SECRET = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"
ASKS = "printf 'Name: '; read -r name; echo hello $name; exit 4"


def spawned(session: ai_session.Session, script: str, **more: object) -> ai_session.spawn[str]:
    child: ai_session.spawn[str] = ai_session.spawn(
        "/bin/sh",
        ["-c", script],
        timeout=BOUND_SECONDS,
        encoding="utf-8",
        session=session,
        **more,  # type: ignore[arg-type]
    )
    child.delaybeforesend = None
    return child


def test_what_it_prints_is_expected_and_answered(session: ai_session.Session) -> None:
    read, sent, both = io.StringIO(), io.StringIO(), io.StringIO()
    child = spawned(session, ASKS, logfile=both)
    child.logfile_read = read
    child.logfile_send = sent
    assert isinstance(child, SpawnBase)
    assert child.expect(["never", "Na(me): ", pexpect.EOF]) == 1
    assert (child.before, child.after) == ("", "Name: ")
    assert isinstance(child.match, re.Match)
    assert child.match[1] == "me"
    assert child.isalive()
    assert child.expect_exact(["x", pexpect.TIMEOUT], timeout=0) == 1
    with pytest.raises(pexpect.TIMEOUT, match="Timeout exceeded"):
        child.expect("never", timeout=0)
    assert child.sendline("Ada") == 4
    child.expect(pexpect.EOF)
    assert child.before == "Ada\r\nhello Ada\r\n"
    with pytest.raises(pexpect.EOF):
        child.expect("more")
    assert not child.isalive()
    assert (child.wait(), child.exitstatus, child.signalstatus, child.eof()) == (4, 4, None, True)
    assert (read.getvalue(), sent.getvalue()) == ("Name: Ada\r\nhello Ada\r\n", "Ada\n")
    assert both.getvalue() == "Name: Ada\nAda\r\nhello Ada\r\n"
    child.close()
    with pytest.raises(ValueError, match="closed"):
        child.read_nonblocking()


def test_keys_echo_size_and_bytes_that_are_no_text(session: ai_session.Session) -> None:
    child: ai_session.spawn[bytes] = ai_session.spawn(
        "cat", timeout=BOUND_SECONDS, echo=False, dimensions=(30, 90), session=session
    )
    child.delaybeforesend = None
    assert (child.getwinsize(), child.getecho(), child.isatty()) == ((30, 90), False, True)
    child.send(b"\xff\xfe caf\xc3\xa9\n")
    child.expect_exact(b"\xff\xfe caf\xc3\xa9\r\n")
    assert child.before == b""  # nothing was echoed
    child.setecho(True)
    assert child.getecho()
    child.sendline(b"twice")
    child.expect_exact(b"twice\r\ntwice\r\n")
    child.setwinsize(20, 60)
    assert child.getwinsize() == (20, 60)
    assert session.info().facts["rows"] == 20
    assert child.sendcontrol("ö") == 0
    child.sendeof()
    child.expect(pexpect.EOF)
    with pytest.raises(OSError, match="has ended") as dead:
        child.sendline(b"touch typed-at-the-prompt")
    assert dead.value.errno == errno.EIO
    with pytest.raises(OSError, match="expect, read or interact"):
        child.fileno()
    child.close()
    assert session.run("stty -a | grep -o -- '-echo '").output == ""
    # A shell with a trap could get the signal just before it starts a program, and would wait for that one's end.
    waits = "import signal as s; s.pthread_sigmask(s.SIG_BLOCK, [2]); print('up', flush=True); s.sigwait([2])"
    child = ai_session.spawn(
        sys.executable, ["-c", f"{waits}; print('caught'); exit(3)"], BOUND_SECONDS, session=session
    )
    child.expect(b"up")
    child.sendintr()
    child.expect(b"caught")
    assert child.wait() == 3


def test_a_key_right_after_it_is_the_program_s(session: ai_session.Session) -> None:
    for jobs in ("set -m", "set +m"):
        session.run(jobs)
        child: ai_session.spawn[bytes] = ai_session.spawn("cat", timeout=BOUND_SECONDS, session=session)
        assert child.pid is None or Path(f"/proc/{child.pid}/comm").read_text() == "cat\n"
        assert (child.pid is None) is (jobs == "set +m")
        child.sendintr()
        child.expect(pexpect.EOF)
        assert child.signalstatus == signal.SIGINT
    builtin: ai_session.spawn[bytes] = ai_session.spawn("read", ["x"], timeout=BOUND_SECONDS, session=session)
    builtin.sendline(b"at once")
    assert builtin.wait() == 0


def test_signals_end_it_and_the_session_stays(session: ai_session.Session) -> None:
    child = spawned(session, "echo $$; exec cat")
    child.expect(r"(\d+)\r\n")
    assert isinstance(child.match, re.Match)
    assert child.pid == int(child.match[1])
    child.kill(signal.SIGTERM)
    child.expect(pexpect.EOF)
    assert (child.exitstatus, child.signalstatus) == (None, signal.SIGTERM)
    deaf = spawned(session, "trap '' HUP INT; echo deaf; while :; do read x; done")
    deaf.expect("deaf")
    assert deaf.terminate() is False
    with pytest.raises(pexpect.ExceptionPexpect, match="Could not terminate"):
        deaf.close(force=False)
    deaf.close()
    assert (deaf.signalstatus, deaf.closed) == (signal.SIGKILL, True)
    assert session.run("echo here").output == "here\n"


def test_without_a_session_it_has_one_that_ends_with_it(daemon_home: Path) -> None:
    with environment(living_in(daemon_home)):
        env = {"HOME": "/nowhere", "PATH": os.environ["PATH"], "SHOWN": "it's"}
        child: ai_session.spawn[str] = ai_session.spawn(
            'sh -c "cat; pwd; env; stty size"', cwd=daemon_home, env=env, encoding="utf-8", timeout=BOUND_SECONDS
        )
        child.sendeof()
        child.expect(pexpect.EOF)
        lines = (child.before or "").split("\r\n")
        assert {str(daemon_home.resolve()), "HOME=/nowhere", "SHOWN=it's", "24 80"} <= set(lines)
        assert not [line for line in lines if line.startswith(("SPAWN_", "TERM="))]
        name = child.session.name
        assert name in {info.name for info in ai_session.list_sessions()}
        child.close()
        assert name not in {info.name for info in ai_session.list_sessions()}
        with pytest.raises(pexpect.ExceptionPexpect, match="not found"):
            ai_session.spawn("no-such-program")
        with pytest.raises(TypeError, match="preexec_fn"):
            ai_session.spawn("true", preexec_fn=print)


def test_it_returns_when_the_program_runs_with_the_terminal_and_variables_asked_for(
    daemon_home: Path, tmp_path: Path
) -> None:
    slow = tmp_path / "stty"
    slow.write_text(f'#!/bin/sh\ni=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; exec {shutil.which("stty")} "$@"\n')
    slow.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    with environment(living_in(daemon_home) | {"PATH": path}):
        blocking._connections.close()  # pyright: ignore[reportPrivateUsage]  # it has told the daemon another PATH
        for env in (None, {"PATH": os.defpath, "MORE": "x"}):
            child: ai_session.spawn[str] = ai_session.spawn(
                "cat", env=env, echo=False, ignore_sighup=True, encoding="utf-8"
            )
            process = Path("/proc", str(child.pid))
            assert (child.getecho(), (process / "cmdline").read_text()) == (False, f"{child.command}\0")
            ignored = re.search(r"SigIgn:\s+(\w+)", (process / "status").read_text())
            assert ignored
            assert int(ignored[1], 16) & 1 << signal.SIGHUP - 1
            variables = {line.partition("=")[0] for line in (process / "environ").read_text().split("\0")}
            assert env is None or variables == {*env, "AI_SESSION_ID", ""}
            child.close(force=True)
    blocking._connections.close()  # pyright: ignore[reportPrivateUsage]


def test_a_read_eval_print_loop_and_what_is_forgotten(daemon_home: Path) -> None:
    with environment(living_in(daemon_home)):
        child: ai_session.spawn[str] = ai_session.spawn(
            sys.executable, ["-q"], BOUND_SECONDS, echo=False, encoding="utf-8"
        )
        python = replwrap.REPLWrapper(child, ">>> ", "import sys; sys.ps1={0!r}; sys.ps2={1!r}")
        assert python.run_command("6 * 7") == "42\r\n"
        assert python.run_command("for n in range(2):\n    print(n)\n\n") == "0\r\n1\r\n"
        name = child.session.name
        del python, child
        assert name not in {info.name for info in ai_session.list_sessions()}


def test_secrets_are_masked_wherever_they_are_cut(session: ai_session.Session) -> None:
    script = f"printf 'it is {SECRET[:20]}'; read -r x; printf '{SECRET[20:]} end'; read -r x; printf 'ghp_ab'"
    child = spawned(session, script, echo=False)
    child.expect_exact("it is ")
    child.sendline()
    child.expect_exact(" end")
    assert "REDACTED" in (child.before or "")
    assert SECRET[:20] not in (child.before or "")
    child.sendline()
    child.expect(pexpect.EOF)
    assert child.before == "ghp_ab"


def test_it_goes_on_with_the_next_daemon(session: ai_session.Session, daemon_home: Path) -> None:
    child = spawned(session, ASKS)
    child.expect("Name: ")
    for pid in daemon_pids(daemon_home):
        os.kill(pid, signal.SIGKILL)
    forked.daemon(living_in(daemon_home))
    child.sendline("Ada")
    child.expect("hello Ada")
    assert child.wait() == 4


@pytest.mark.anyio
async def test_awaited_and_given_up_nothing_is_lost(daemon_home: Path) -> None:
    with environment(living_in(daemon_home)):
        session = await asyncio.to_thread(ai_session.open, "awaiting", shell="bash", backend="pty")
        child = await asyncio.to_thread(spawned, session, ASKS)
        assert await child.expect("Name: ", async_=True) == 0
        waiting = asyncio.ensure_future(child.expect_exact("hello", async_=True))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.to_thread(child.sendline, "Ada")
        assert await child.expect_exact(["x", "hello Ada"], async_=True) == 1
        assert await child.expect([pexpect.EOF, "never"], async_=True) == 0
        await asyncio.to_thread(session.close)


INTERACTS = """
import ai_session
with ai_session.open(shell="bash", backend="pty") as session:
    child = ai_session.spawn("/bin/sh", ["-c", "echo up; cat"], session=session, encoding="utf-8")
    child.expect("up")
    print("JOINED", flush=True)
    child.interact()
    print("LEFT", child.isalive(), flush=True)
    child.interact(escape_character=None)
    print("ENDED", child.isalive(), child.exitstatus, flush=True)
"""


@pytest.mark.torture
def test_a_person_interacts(daemon_home: Path) -> None:
    master, slave = pty.openpty()
    person = subprocess.Popen(
        [sys.executable, "-c", INTERACTS],
        stdin=slave,
        stdout=slave,
        env={**os.environ, **living_in(daemon_home)},
        cwd=daemon_home,
    )
    seen = b""

    def until(wanted: bytes) -> None:
        nonlocal seen
        while wanted not in seen:
            assert select.select([master], [], [], BOUND_SECONDS)[0], seen
            seen += os.read(master, 4096)
        seen = seen.partition(wanted)[2]

    def until_joined() -> None:
        """What is typed before the terminal is raw is thrown away."""
        deadline = time.monotonic() + BOUND_SECONDS
        while termios.tcgetattr(slave)[3] & termios.ICANON:
            assert time.monotonic() < deadline
            select.select([], [], [], 0.02)

    try:
        until(b"JOINED")
        until_joined()
        os.write(master, b"typed\r")
        until(b"typed\r\ntyped\r\n")
        os.write(master, b"\x1d")
        until(b"LEFT True")
        until_joined()
        os.write(master, b"again\r")
        until(b"again\r\nagain\r\n")
        os.write(master, b"\x04")
        until(b"ENDED False 0")
        assert person.wait(BOUND_SECONDS) == 0
    finally:
        person.kill()
        person.wait()
        os.close(master)
        os.close(slave)  # until then nothing is lost of what was printed last
