"""The relay as a process: how it finds and starts the daemon, what it copies, and how it ends."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import pytest

from ai_session.client import relay
from ai_session.config import config
from tests.ai_session.support.mcp_client import (
    BOUND_SECONDS,
    SERVER,
    Client,
    daemon_pids,
    double,
    living_in,
    runtime,
)
from tests.support.process_ends import kill_process
from tests.support.processor_time import once_within

AT_ONCE_SECONDS = 0.1
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
PONG = b'{"jsonrpc":"2.0","id":1,"result":{}}'


@pytest.fixture(scope="module")
def started(shared_home: Path) -> Iterator[None]:
    with double(home=shared_home):
        yield


@pytest.fixture
def lasting(started: None, shared_home: Path) -> None:
    """The one daemon of the tests that leave it as it was; it lives in the HOME of all of them."""
    os.environ["HOME"] = str(shared_home)


def dismiss() -> None:
    """End the daemon, which has no sessions, and wait until it is gone."""
    (pid,) = daemon_pids()
    kill_process(pid, signal.SIGTERM)


def held_by(pid: int) -> set[str]:
    """What the descriptors of a process are; a daemon that is starting opens and closes some meanwhile."""
    found: set[str] = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found.add(os.readlink(link))
    return found


@pytest.mark.usefixtures("lasting")
@pytest.mark.either("how")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, "end of input"])
def test_it_ends_at_once_though_a_call_waits(how: int | str) -> None:
    def attempt() -> float:
        with Client() as client:
            client.request("tools/call", {"name": "wait"})
            client.result("ping")
            status, seconds = client.end() if isinstance(how, str) else client.signalled(how)
            assert client.line() == b""
        assert status == 0
        return seconds

    once_within(AT_ONCE_SECONDS, attempt)


@pytest.mark.usefixtures("lasting")
def test_answers_to_what_was_asked_before_the_end_of_input_arrive() -> None:
    with Client() as warm:
        warm.call("echo")
    asked = PING + b'{"jsonrpc":"2.0","id":2,"method":"tools/list"}\n'
    done = subprocess.run(SERVER, input=asked, capture_output=True, timeout=BOUND_SECONDS, check=True)
    assert [b'"id":1,' in line or b'"id":2,' in line for line in done.stdout.splitlines()] == [True, True]


@pytest.mark.usefixtures("lasting")
def test_client_that_closes_the_output_ends_it() -> None:
    with Client() as client:
        client.result("ping")
        assert client.process.stdout
        client.process.stdout.close()
        assert client.process.wait(BOUND_SECONDS) == 0


def test_closed_or_full_standard_error_stops_nothing() -> None:
    reader, writer = os.pipe()
    os.write(writer, b"x" * fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ))
    with (
        double() as daemon,
        Client(stderr=writer) as full,
        Client(["sh", "-c", 'exec "$@" 2>&-', "sh", *SERVER]) as shut,
    ):
        for client in (full, shut):
            client.result("ping")
        daemon.kill()
        for client in (full, shut):
            assert client.result("ping") == {}
    dismiss()
    os.close(reader)
    os.close(writer)


@pytest.mark.usefixtures("lasting")
def test_standard_input_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(PING * 3)
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as target:
        assert subprocess.run(SERVER, stdin=source, stdout=target, timeout=BOUND_SECONDS, check=False).returncode == 0
    assert (tmp_path / "out").read_bytes().splitlines() == [PONG] * 3


@pytest.mark.usefixtures("lasting")
def test_standard_streams_may_be_missing() -> None:
    shut = subprocess.run(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *SERVER], timeout=BOUND_SECONDS, check=False)
    assert shut.returncode == 0


@pytest.mark.usefixtures("lasting")
def test_standard_streams_may_be_non_blocking_socketpairs() -> None:
    """What Node gives its children; both directions carry more than any buffer holds."""
    ours_in, theirs_in = socket.socketpair()
    ours_out, theirs_out = socket.socketpair()
    theirs_in.setblocking(False)
    theirs_out.setblocking(False)
    with ours_in, ours_out:
        process = subprocess.Popen(SERVER, stdin=theirs_in, stdout=theirs_out)
        theirs_in.close()
        theirs_out.close()
        lines = ours_out.makefile("rb")
        sent = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"%b"}}}\n'
        writer = threading.Thread(target=ours_in.sendall, args=(sent % (b"a" * 4_000_000) + PING,))
        writer.start()
        assert {len(lines.readline()) > 4_000_000 for _ in range(2)} == {True, False}
        writer.join()
        ours_in.shutdown(socket.SHUT_WR)
        assert process.wait(BOUND_SECONDS) == 0


def test_daemon_is_started_in_a_session_of_its_own_with_nothing_inherited_and_no_secrets() -> None:
    reader, writer = os.pipe()
    env = {**os.environ, "ANTHROPIC_API_KEY": "secret", "LC_ALL": "C.UTF-8", "AI_SESSION_ID": "x"}
    with Client(pass_fds=(writer,), start_new_session=True, env=env) as client:
        client.initialize()
        (pid,) = daemon_pids()
        facts = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        parent, group, session = (int(word) for word in facts[1:4])
        assert client.process.pid not in (parent, group, session)
        assert session == group != os.getsid(0)
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        held, ours = held_by(pid), held_by(os.getpid()) | held_by(client.process.pid)
        assert not {name for name in held & ours if name.startswith("pipe:")}
        assert {"/dev/null", str(runtime() / "daemon.log"), str(runtime() / "lock")} <= held
        names = {word.partition(b"=")[0] for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")}
        assert not names & {b"ANTHROPIC_API_KEY", b"AI_SESSION_ID"}
        assert {b"HOME", b"PATH", b"LC_ALL", b"PYDANTIC_DISABLE_PLUGINS"} <= names
        os.killpg(client.process.pid, signal.SIGKILL)
    assert daemon_pids() == [pid]
    os.close(reader)
    os.close(writer)
    dismiss()


def test_folder_of_the_client_decides_no_import(tmp_path: Path) -> None:
    (tmp_path / "asyncio.py").write_text("raise SystemExit('imported from the client')\n")
    script = "import sys; sys.path.pop(0); from ai_session.__main__ import main; main()"
    with Client([sys.executable, "-c", script, "mcp-server", "--stdio"], cwd=tmp_path) as client:
        assert client.initialize()["serverInfo"]["name"] == "ai-session"
    dismiss()


@pytest.mark.parametrize(
    "round_number", [pytest.param(number, marks=[pytest.mark.torture] if number else []) for number in range(10)]
)
def test_two_starting_at_once_end_with_one_daemon(round_number: int) -> None:
    with Client() as one, Client() as two, Client() as three:
        for client in (one, two, three):
            client.request("ping")
        assert [client.answered() for client in (one, two, three)] == [{}, {}, {}]
        assert len(daemon_pids()) == 1
    dismiss()
    assert not (runtime() / "sock").exists()


def test_directories_agree_with_the_settings(home: Path) -> None:
    for name in ("short", "long" * 20):
        os.environ["HOME"] = str(home / name)
        wanted = [str(path) for path in config.runtime_directories(home / name, os.getuid())]
        assert list(relay.directories()) == wanted
    digest = sha256(os.fsencode(home / ("long" * 20))).hexdigest()[:8]
    assert wanted == [f"/tmp/ai-session-{os.getuid()}-{digest}"]


@pytest.mark.either("location")
@pytest.mark.parametrize("location", ["/proc/none/home", "/dev/null"])
def test_home_that_cannot_be_written_uses_a_private_folder_in_tmp(location: str) -> None:
    folder = Path(f"/tmp/ai-session-{os.getuid()}-{sha256(location.encode()).hexdigest()[:8]}")
    with Client(env=living_in(Path(location))) as client:
        assert client.initialize()["serverInfo"]["name"] == "ai-session"
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (folder / "sock").stat().st_mode & 0o777 == 0o600
    os.environ["HOME"] = location
    with relay.connect("leave") as link:
        while link.recv(4096):
            pass
    subprocess.run(["rm", "-r", str(folder)], check=True)


@pytest.mark.parametrize("spoil", ["open", "closed", "file", "link"])
def test_runtime_directory_that_is_not_private_is_refused(home: Path, spoil: str) -> None:
    runtime().parent.mkdir(parents=True)
    if spoil in ("open", "closed"):
        runtime().mkdir()
        runtime().chmod(0o755 if spoil == "open" else 0o500)
    elif spoil == "file":
        runtime().touch()
    else:
        (home / "elsewhere").mkdir(mode=0o700)
        runtime().symlink_to(home / "elsewhere")
    done = subprocess.run(SERVER, input=b"", capture_output=True, timeout=BOUND_SECONDS, check=False)
    assert done.returncode == 1
    reasons = {"open": b"is open to others (mode 0755)", "closed": b"cannot be used (mode 0500)"}
    assert reasons.get(spoil, b"is not a directory; check who made") in done.stderr
    assert daemon_pids() == []


def test_older_version_that_is_idle_is_replaced() -> None:
    with double("--version=0.0.9") as old, Client() as client:
        assert client.initialize()["serverInfo"]["name"] == "ai-session"
        assert old.wait(BOUND_SECONDS) == 0
        assert len(daemon_pids()) == 1
    dismiss()


@pytest.mark.either("version")
@pytest.mark.parametrize("version", ["0.1.1", "0.10.0", "1.0", "0.1.0+local"])
def test_newer_or_merely_different_version_is_used_as_it_is_without_a_word(version: str) -> None:
    with double(f"--version={version}") as other, Client() as client:
        assert client.result("ping") == {}
        assert daemon_pids() == []
        client.end()
        assert client.process.stderr
        assert client.process.stderr.read() == b""
        assert other.poll() is None


def test_older_version_in_use_stays() -> None:
    with double("--version=0.0.1") as old:
        user = relay.connect("mcp", start=False)
        with Client() as client:
            assert client.result("ping") == {}
            assert daemon_pids() == []
        assert old.poll() is None
        user.close()


@pytest.mark.parametrize(("protocol", "works"), [("1-1", True), ("1-2", True), ("0-1", True), ("8-9", False)])
def test_any_two_versions_that_know_a_common_way_to_talk_work_together(protocol: str, works: bool) -> None:
    with double("--version=9.9", f"--protocol={protocol}"), Client() as client:
        if works:
            assert client.result("ping") == {}
            return
        assert client.line() == b""
        assert client.process.wait(BOUND_SECONDS) == 1
        assert client.process.stderr
        assert b"speaks another protocol than" in client.process.stderr.read()
    with double("--version=9.9", f"--protocol={protocol}"):
        with pytest.raises(relay.Unreachable) as caught:
            relay.connect("control", start=False)
        assert caught.value.code == "incompatible"


@pytest.mark.usefixtures("home")
@pytest.mark.either("ended")
@pytest.mark.parametrize("ended", [1, 2, 4])
def test_daemons_that_end_before_they_answer_are_followed_by_another(ended: int) -> None:
    runtime().mkdir(parents=True, mode=0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(runtime() / "sock"))
        listener.listen()

        def serve() -> None:
            for _ in range(ended):
                listener.accept()[0].close()
            far, _ = listener.accept()
            with far:
                far.recv(relay.READ_BYTES)
                far.sendall(b'{"ai_session":1,"version":"%b","protocol":[1,2]}\n' % relay.__version__.encode())

        daemons = threading.Thread(target=serve)
        daemons.start()
        with relay.connect("control", start=False) as link:
            assert link.recv(relay.READ_BYTES).startswith(b'{"ai_session":1,')
        daemons.join(BOUND_SECONDS)


def test_nothing_is_started_when_not_wanted() -> None:
    with pytest.raises(relay.Unreachable) as caught:
        relay.connect("control", start=False)
    assert caught.value.code == "daemon_unavailable"
    assert daemon_pids() == []


def test_daemon_that_dies_while_starting_is_reported_with_its_last_words() -> None:
    broken = Path(os.environ["HOME"]) / "broken"
    broken.mkdir()
    (broken / "asyncio.py").write_text("raise SystemExit('no asyncio here')\n")
    done = subprocess.run(
        SERVER,
        input=PING,
        capture_output=True,
        timeout=BOUND_SECONDS,
        check=False,
        env=living_in(broken.parent) | {"PYTHONPATH": "broken"},
        cwd=broken.parent,
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"no asyncio here" in done.stderr
