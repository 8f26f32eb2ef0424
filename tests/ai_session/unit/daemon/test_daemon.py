"""The daemon: hello, peers, leaving, idling, leaking nothing, and the server that needs no daemon."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ai_session import __version__
from ai_session.client import relay
from ai_session.client.connection import connect
from ai_session.daemon.host import THREADS, parse_hello, peer_credentials
from ai_session.errors import ConfigInvalid, Incompatible, InvalidArguments
from tests.ai_session.support.mcp_client import (
    BOUND_SECONDS,
    DATA,
    SERVER,
    Client,
    daemon_pids,
    double,
    runtime,
)
from tests.ai_session.support.sessions import spin
from tests.support import forked
from tests.support.forked import Forked
from tests.support.process_ends import ending
from tests.support.processor_time import once_within

IN_PROCESS = [*SERVER, "--no-daemon"]
AT_ONCE_SECONDS = 1.0

HELLO = {"ai_session": 1, "role": "control", "version": __version__, "cwd": "/", "env": {"A": "b"}, "pid": 1}


def converse(line: bytes) -> bytes:
    """What the daemon says to a first line, until it closes."""
    with closing(socket.socket(socket.AF_UNIX)) as link:
        link.settimeout(BOUND_SECONDS)
        link.connect(str(runtime() / "sock"))
        link.sendall(line)
        link.shutdown(socket.SHUT_WR)
        said = b""
        while chunk := link.recv(65536):
            said += chunk
        return said


@contextmanager
def foreground() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "ai_session", "daemon", "run"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(BOUND_SECONDS)
        process.stderr.close()


@pytest.fixture(scope="module")
def started(shared_home: Path) -> Iterator[Forked]:
    with double(home=shared_home) as daemon:
        yield daemon


@pytest.fixture
def lasting(started: Forked, shared_home: Path) -> Iterator[Forked]:
    """The one daemon of the tests that leave it as it was; it lives in the HOME of all of them."""
    os.environ["HOME"] = str(shared_home)
    yield started
    assert json.loads(greet())["idle"] is True


def greet(**changed: Any) -> bytes:
    """What the daemon says to a hello; it has forgotten the connection by then."""
    return converse(json.dumps({**HELLO, **changed}).encode() + b"\n")


@contextmanager
def connected() -> Iterator[None]:
    """While somebody is there, whom the daemon has forgotten afterwards."""
    with closing(relay.connect("mcp")) as link:
        yield
        gone(link)


def gone(link: socket.socket) -> None:
    """Nothing more is said to the daemon, and it has forgotten the connection."""
    link.shutdown(socket.SHUT_WR)
    while link.recv(65536):
        pass


def test_hello_is_answered_with_version_pid_and_idleness(lasting: Forked) -> None:
    said = json.loads(greet())
    with connected():
        busy = json.loads(greet())
    facts = {"ai_session": 1, "version": __version__, "pid": lasting.pid, "idle": True}
    assert said == {**facts, "protocol": list(relay.PROTOCOL)}
    assert busy["idle"] is False


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1\n",
        b"{}\n",
        b"[]\n",
        b"null\n",
        b'{"ai_session":2,"role":"mcp"}\n',
        b'{"ai_session":1,"role":5}\n',
        b'{"ai_session":1,"role":"mcp","env":[1]}\n',
        b'{"ai_session":1,"role":"mcp","env":{"A":1}}\n',
        b'{"ai_session":1,"role":"mcp","cwd":null}\n',
        b'{"ai_session":1,"role":"mcp","protocol":1}\n',
        b'{"ai_session":1,"role":"mcp","protocol":["a","b"]}\n',
        b"[" * 5000 + b"\n",
    ],
)
def test_first_line_that_is_no_hello_is_refused_in_words(line: bytes) -> None:
    with pytest.raises(InvalidArguments, match="not a handshake"):
        parse_hello(line)


@pytest.mark.usefixtures("lasting")
def test_refusal_reaches_the_peer_and_the_daemon_lives() -> None:
    assert json.loads(converse(b"GET / HTTP/1.1\n"))["error"]["code"] == "invalid_arguments"
    with suppress(ConnectionError):
        assert b"longer than" in converse(b"x" * (9 << 20))
    assert converse(b"") == b""
    assert json.loads(greet())["ai_session"] == 1


def test_environment_that_is_no_text_arrives_whole() -> None:
    hello = parse_hello(b'{"ai_session":1,"role":"mcp","env":{"A":"\xff\\u00e9"}}\n')
    assert os.fsencode(hello["env"]["A"]) == b"\xff\xc3\xa9"
    assert hello["cwd"] == ""


def test_peer_is_known_by_the_kernel() -> None:
    one, other = socket.socketpair()
    with closing(one), closing(other):
        assert peer_credentials(one) == (os.getuid(), os.getpid())


@pytest.mark.usefixtures("lasting")
def test_another_user_is_not_served() -> None:
    """Root may connect to any socket; the daemon must still look who it is."""
    script = (
        "import os, socket, sys\n"
        "link = socket.socket(socket.AF_UNIX)\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "link.connect(sys.argv[1])\n"
        'link.sendall(b\'{"ai_session":1,"role":"control"}\\n\')\n'
        "sys.stdout.buffer.write(link.recv(100))\n"
    )
    path = runtime()
    for folder in (path, *path.parents[:6]):
        if folder.is_relative_to("/tmp") and folder != Path("/tmp"):
            folder.chmod(0o711)
    (path / "sock").chmod(0o666)
    done = subprocess.run(
        [sys.executable, "-ISc", script, str(path / "sock")], capture_output=True, timeout=BOUND_SECONDS, check=False
    )
    path.chmod(0o700)
    (path / "sock").chmod(0o600)
    assert done.stdout == b""
    assert b"PermissionError" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.either("number")
def test_signal_ends_it_at_once_though_a_call_waits(number: int) -> None:
    with double() as daemon, Client() as client:
        client.request("tools/call", {"name": "wait"})
        client.result("ping")
        client.process.send_signal(signal.SIGSTOP)  # the relay would start another daemon
        daemon.send_signal(number)
        assert daemon.wait(BOUND_SECONDS) == 0
        assert not (runtime() / "sock").exists()
    assert not (Path(os.environ["HOME"]) / "ended-sessions").exists()


def test_a_client_without_a_common_protocol_version_gets_an_error() -> None:
    hello = {**HELLO, "version": "7.0", "protocol": [7, 9]}
    with pytest.raises(Incompatible, match=r"7\.0, speaks another protocol"):
        parse_hello(json.dumps(hello).encode())
    assert parse_hello(json.dumps({**hello, "protocol": [1, 9]}).encode())["role"] == "control"


@pytest.mark.parametrize("sessions", [False, True])
def test_control_stop_leaves_or_ends_sessions(sessions: bool) -> None:
    with double() as daemon, closing(relay.connect("control")) as link:
        lines = link.makefile("rb")
        lines.readline()
        if sessions:
            link.sendall(b'{"id":0,"method":"stop","params":{"sessions":true,"asked":["ses_1"]}}\n')
            refused = json.loads(lines.readline())["error"]
            assert (refused["code"], refused["message"]) == ("session_exists", "two: opened meanwhile")
        link.sendall(b'{"id":1,"method":"stop","params":{"sessions":%b}}\n' % json.dumps(sessions).encode())
        said = json.loads(lines.read())
        assert said == {"id": 1, "result": {"ended": ["one", "two"] if sessions else []}}
        assert daemon.wait(BOUND_SECONDS) == 0
    assert (Path(os.environ["HOME"]) / "ended-sessions").exists() is sessions


def test_idle_daemon_leaves_when_so_configured() -> None:
    with double("--idle=0.05") as daemon:
        with connect() as client, connect() as other:
            client.call("echo")
            other.close()
            with pytest.raises(subprocess.TimeoutExpired):
                daemon.wait(0.2)
        assert daemon.wait(BOUND_SECONDS) == 0


@pytest.mark.parametrize("flags", [["--unexpected"], []], ids=["nobody came", "somebody said hello"])
def test_idle_daemon_that_never_did_anything_leaves_too(flags: list[str]) -> None:
    with double("--idle=0.05", *flags) as daemon:
        if not flags:
            assert json.loads(greet())["pid"] == daemon.pid
        assert daemon.wait(BOUND_SECONDS) == 0


def test_daemon_that_cannot_start_leaves_with_its_last_client() -> None:
    with double("--broken") as daemon:
        with connect() as client, connect() as other:
            with pytest.raises(ConfigInvalid, match="too many"):
                client.call("echo")
            client.close()
            with pytest.raises(ConfigInvalid, match="too many"):
                other.call("echo")
            assert daemon.poll() is None
        assert daemon.wait(BOUND_SECONDS) == 0


def test_foreground_daemon_that_cannot_start_says_why() -> None:
    settings = Path(os.environ["HOME"]) / ".config/ai-session/config.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("[session]\nrows = 1\n")
    process = forked.piped("ai_session", ["daemon", "run"], cwd=settings.parent, env=os.environ)
    try:
        said = process.communicate()[1].decode().splitlines()
    finally:
        process.close()
    assert process.returncode == 1
    assert said[0].startswith("ai-session: serving on")
    assert "session.rows" in said[1]
    assert len(said) == 2


def test_daemon_without_its_directory_leaves() -> None:
    with closing(relay.connect("mcp")) as link:
        pid = json.loads(link.recv(65536))["pid"]
        with ending(pid):
            shutil.rmtree(runtime())
            link.close()


def test_leaving_is_refused_while_somebody_is_there(lasting: Forked) -> None:
    with connected():
        assert json.loads(greet(role="leave"))["idle"] is False
        assert lasting.poll() is None


def test_connections_leave_nothing_behind() -> None:
    """No descriptor, task or thread more after 200 clients, half of them killed in the middle of a call."""
    with double() as daemon:

        def footprint() -> tuple[int, int]:
            folder = Path(f"/proc/{daemon.pid}")
            return len(list((folder / "fd").iterdir())), len(list((folder / "task").iterdir()))

        def visit(count: int) -> None:
            for number in range(count):
                link = relay.connect("mcp")
                link.sendall(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}\n')
                link.sendall(b'{"jsonrpc":"2.0","id":2,"method":"ping"}\n')
                if number % 2:
                    link.shutdown(socket.SHUT_WR)
                    while link.recv(65536):
                        pass
                link.close()

        with Client() as client:
            client.call("echo")
            visit(40)
            client.call("echo")
            before = footprint()
            visit(200)
            # Each end is seen before what this client writes after it.
            cancelled = client.call("seen")["structuredContent"]["cancelled"]
            after = footprint()
    assert after == before
    assert len(cancelled) > 100


def test_foreground_daemon_serves_and_refuses_a_second_one() -> None:
    with foreground() as first:
        assert first.stderr
        assert first.stderr.readline().decode() == f"ai-session: serving on {runtime()}/sock\n"
        with Client() as client:
            assert client.result("ping") == {}
        assert daemon_pids() == []
        with foreground() as second:
            assert second.wait(BOUND_SECONDS) == 1
            assert second.stderr
            assert b"a daemon runs already" in second.stderr.read()
        first.send_signal(signal.SIGTERM)
        assert first.wait(BOUND_SECONDS) == 0


def folder_of(pid: int) -> Path:
    """The folder that a process without a daemon has made for itself."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            if (held := Path(os.readlink(link))).name == "audit-000001.jsonl":
                return held.parent.parent
    raise AssertionError("it holds no audit log")


def test_without_daemon_one_process_serves_and_leaves_nothing() -> None:
    def attempt() -> float:
        with Client(IN_PROCESS, anew=True) as client:
            assert client.initialize("2025-06-18")["protocolVersion"] == "2025-06-18"
            assert client.result("server/discover", modern=True)["supportedVersions"] == ["2026-07-28"]
            assert client.ask("foo/bar")["error"]["code"] == -32601
            assert client.call("list_sessions")["structuredContent"]["sessions"] == []
            folder = folder_of(client.process.pid)
            assert folder.parent == Path("/tmp")
            status, seconds = client.end()
            assert client.line() == b""
        assert status == 0
        assert list(folder.parent.glob(f"{folder.name}*")) == []
        assert daemon_pids() == []
        assert not runtime().exists()
        return seconds

    once_within(AT_ONCE_SECONDS, attempt)


def test_without_daemon_an_end_while_starting_leaves_nothing() -> None:
    with Client([sys.executable, str(DATA / "double_daemon.py"), "--no-daemon"]) as client:
        client.initialize()
        assert client.process.stderr
        folder = Path(client.process.stderr.readline().decode().strip())
        assert client.end()[0] == 0
    assert list(folder.parent.glob(f"{folder.name}*")) == []


def test_without_daemon_the_next_one_ends_what_a_killed_one_left() -> None:
    unboxed = {**os.environ, "AI_SESSION_SANDBOX_PROFILE": "trusted", "AI_SESSION_POLICY_MODE": "trusted"}
    ends: list[int] = []
    with Client(IN_PROCESS, env=unboxed) as killed:
        for backend in ("pty", "tmux"):
            session = killed.call("create_session", name=backend, backend=backend)["structuredContent"]["session_id"]
            said = killed.call("execute_command", session_id=session, command="sleep 1000 & echo $! $$ $PPID")
            ends += [os.pidfd_open(int(pid)) for pid in said["structuredContent"]["output"].split()[-3:]]
        folder = folder_of(killed.process.pid)
    with Client(IN_PROCESS) as following:
        following.call("list_sessions")
        for end in ends:
            assert select.select([end], [], [], BOUND_SECONDS)[0]
            os.close(end)
        spin(lambda: not folder.exists())  # another process that starts just now may be quicker
        following.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.either("number")
def test_without_daemon_a_signal_ends_it_at_once(number: int) -> None:
    def attempt() -> float:
        with Client(IN_PROCESS) as client:
            client.initialize()
            client.ask("foo/bar")
            status, seconds = client.signalled(number)
        assert status == 0
        return seconds

    once_within(AT_ONCE_SECONDS, attempt)


def test_without_daemon_files_do_as_streams(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as target:
        done = subprocess.run(IN_PROCESS, stdin=source, stdout=target, timeout=BOUND_SECONDS, check=False)
    assert done.returncode == 0
    assert json.loads((tmp_path / "out").read_bytes()) == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_status_of_the_daemon(lasting: Forked) -> None:
    with closing(relay.connect("control")) as link:
        link.sendall(b'{"id":1,"method":"status"}\n')
        said = b""
        while said.count(b"\n") < 2:
            said += link.recv(65536)
        gone(link)
    facts: dict[str, Any] = json.loads(said.splitlines()[1])["result"]
    assert facts.pop("uptime_seconds") >= 0
    assert facts == {
        "version": __version__,
        "pid": lasting.pid,
        "directory": str(runtime()),
        "connections": 1,
        "idle": False,
    }


def test_its_threads_run_before_a_session_can_leave_no_room_for_one(lasting: Forked) -> None:
    with connect() as client:
        client.call("echo")
    assert len(list(Path(f"/proc/{lasting.pid}/task").iterdir())) == 1 + THREADS
