"""The holder as a process: what it answers, what it survives, when it ends. Driven over its socket by hand."""

from __future__ import annotations

import json
import os
import resource
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from ai_session.backends.pty.channel import HEADER
from ai_session.system.log_tail import WINDOW, LogTail
from ai_session.terminal.log import MappedLog
from tests.ai_session.support.holder_client import BOUND_SECONDS, PATHS, Keeper, read_until
from tests.support.process_ends import wait_ended

LINES = b"".join(b"%07d\n" % number for number in range(1 << 17))


@pytest.fixture
def fresh(home: Path) -> Iterator[Keeper]:
    """A runtime directory without a holder; one that a test starts is stopped."""
    made = Keeper(home / "run")
    made.runtime.mkdir(mode=0o700)
    yield made
    made.stop()


@pytest.fixture
def keeper(fresh: Keeper) -> Keeper:
    fresh.start()
    return fresh


def test_it_runs_apart_from_its_starter(keeper: Keeper) -> None:
    process = psutil.Process(keeper.pid())
    assert process.cwd() == "/"
    assert (os.getsid(process.pid), os.getpgid(process.pid)) != (os.getsid(0), os.getpgid(0))
    assert process.terminal() is None
    assert process.environ() == {}
    targets = {os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in (0, 1, 2)}
    assert targets == {"/dev/null"}
    assert (keeper.runtime / "holder.sock").stat().st_mode & 0o777 == 0o600


def test_it_stays_small(keeper: Keeper) -> None:
    assert psutil.Process(keeper.pid()).memory_info().rss < 16 << 20
    code = f"import sys; sys.path += {PATHS!r}; import ai_session.backends.pty.holder; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert not {"asyncio", "dataclasses", "pathlib", "subprocess", "pexpect", "logging"} & set(run.stdout.split())


def test_two_started_at_once_end_with_one(fresh: Keeper) -> None:
    started = [subprocess.Popen(fresh.command(), env={}, start_new_session=True) for _ in range(6)]
    assert [process.wait(BOUND_SECONDS) for process in started] == [0] * 6
    assert running(fresh) == [fresh.pid()]


def running(keeper: Keeper) -> list[int]:
    found: list[int] = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            found += [process.pid] * (process.cmdline() == keeper.command())
    return found


def test_a_dead_socket_is_replaced(fresh: Keeper) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(fresh.runtime / "holder.sock"))
    fresh.start()
    assert fresh.pid()


def test_a_failed_start_says_why(home: Path) -> None:
    run = subprocess.run(Keeper(home / "absent").command(), env={}, capture_output=True, check=False)
    assert run.returncode
    assert b"No such file or directory" in run.stderr


def test_it_ends_when_the_last_owner_leaves_nothing(keeper: Keeper) -> None:
    pid = keeper.pid()
    client = keeper.own()
    client.spawn("a", "read x")
    client.ask("free", id="a")
    client.close()
    wait_ended(pid)
    assert not (keeper.runtime / "holder.sock").exists()


def test_it_leaves_a_successors_socket_alone(keeper: Keeper) -> None:
    pid = keeper.pid()
    client = keeper.own()
    (keeper.runtime / "holder.sock").unlink()
    keeper.start()
    assert keeper.pid() != pid
    client.close()
    wait_ended(pid)
    assert keeper.pid() != pid


@pytest.mark.parametrize(
    "nonsense",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        HEADER.pack(1 << 31, 0),
        HEADER.pack(2, 0) + b"[]",
        HEADER.pack(4, 0) + b"null",
        HEADER.pack(2, 0) + b"{}",
        HEADER.pack(3, 0) + b"{{{",
        HEADER.pack(4, 9) + b"\xff\xfe\x00\x00",
        HEADER.pack(20, 0) + b'{"n":1,"op":["own"]}',
        HEADER.pack(100, 0) + b"cut",
        b"\0",
    ],
)
def test_nonsense_hurts_only_its_sender(keeper: Keeper, nonsense: bytes) -> None:
    owner = keeper.own()
    owner.spawn("a", "read x")
    other = keeper.connect()
    other.sock.send(nonsense)
    other.close()
    assert owner.ask("version")["sessions"] == 1
    owner.close()


def test_bad_requests_are_answered(keeper: Keeper) -> None:
    owner = keeper.own()
    wanted = {"jump": "unknown_op", "take": "no_session", "free": "no_session", "release": "no_session"}
    for op, kind in wanted.items():
        assert owner.ask(op, id="absent")["error"]["kind"] == kind
    assert owner.ask("take")["error"]["kind"] == "internal"
    assert owner.ask("spawn", id="a")["error"]["kind"] == "internal"
    assert owner.ask("adopt", id="a", pid=1, tty="x", directory="/")["error"]["kind"] == "internal"
    owner.spawn("a", "read x")
    assert owner.spawn("a", "read x")["error"]["kind"] == "exists"
    assert keeper.connect().ask("list")["error"]["kind"] == "not_owner"
    owner.close()


def test_large_requests_in_small_pieces(keeper: Keeper) -> None:
    owner = keeper.own()
    (keeper.runtime / "a").mkdir()
    value = "v" * 90_000
    body = json.dumps(
        {
            "n": 77,
            "op": "spawn",
            "id": "a",
            "argv": ["/bin/sh", "-c", "echo ${#ONE} ${#TWO}"],
            "env": {"ONE": value, "TWO": value},
            "cwd": "/",
            "rows": 24,
            "cols": 80,
            "directory": str(keeper.runtime / "a"),
        }
    ).encode()
    frame = HEADER.pack(len(body), 0) + body
    owner.sock.setblocking(True)
    for piece in (frame[:1], frame[1:7], frame[7:9], frame[9:50000], frame[50000:]):
        owner.sock.sendall(piece)
        probe = keeper.connect()
        assert probe.ask("version")["protocol"] == 1
        probe.close()
    owner.sock.setblocking(False)
    message, fds = owner.receive()
    assert message["n"] == 77
    assert b"90000 90000" in read_until(fds[0], b"\n")
    owner.close()


def test_a_peer_that_does_not_read_stops_nobody(keeper: Keeper) -> None:
    deaf = keeper.connect()
    with suppress(BlockingIOError):
        while True:
            body = b'{"n": 1, "op": "version"}'
            deaf.sock.send(HEADER.pack(len(body), 0) + body)
    assert keeper.own().ask("version")["protocol"] == 1
    deaf.close()


def test_the_lease_passes_on_in_turn(keeper: Keeper) -> None:
    first = keeper.own()
    first.spawn("a", "read x; exit 3")
    leaver, second, third = (keeper.connect() for _ in range(3))
    for client in (leaver, second, third):
        client.send("own")
        assert client.ask("version")["sessions"] == 1
    leaver.close()
    first.close()
    assert second.receive()[0]["protocol"] == 1
    assert not select.select([third.channel], [], [], 0)[0]
    assert [one["id"] for one in second.ask("list")["sessions"]] == ["a"]
    second.close()
    assert third.receive()[0]["protocol"] == 1
    third.close()


def test_an_unowned_terminal_is_read_into_its_log(keeper: Keeper) -> None:
    owner = keeper.own()
    (keeper.runtime / "a").mkdir()
    (keeper.runtime / "a" / "log").write_bytes(b"kept" + b"uncommitted" + bytes(100_000))
    (keeper.runtime / "a" / "log.end").write_bytes((4).to_bytes(8, "little"))
    owner.spawn("a", "stty -opost -echo; echo ready; read x; echo after; exit 3")
    read_until(owner.fds[0], b"ready\n")
    os.write(owner.fds[0], b"\n")
    owner.close()
    assert keeper.log("a", lambda data: data.endswith(b"after\n")) == b"keptuncommittedafter\n"
    later = keeper.own()
    assert later.exit_of("a") == (3, None)
    later.close()


def test_what_a_full_disk_cannot_take_waits_in_the_terminal(keeper: Keeper) -> None:
    (keeper.runtime / "lines").write_bytes(LINES)
    owner = keeper.own()
    owner.spawn("a", f"stty -opost -echo; echo ready; read x; cat '{keeper.runtime}/lines'; exit 3")
    read_until(owner.fds[0], b"ready\n")
    holder, room = keeper.pid(), 600 * 1024
    resource.prlimit(holder, resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    os.write(owner.fds[0], b"\n")
    owner.close()
    keeper.log("a", lambda data: len(data) > room - 2 * WINDOW)
    later = keeper.own()
    (held,) = later.ask("list")["sessions"]
    assert held["exit"] is None
    resource.prlimit(holder, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    later.ask("take", id="a")
    later.close()
    assert keeper.log("a", lambda data: len(data) >= len(LINES)) == LINES


def used_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_what_an_owner_has_not_read_stays_and_the_rest_makes_room_for_it(tmp_path: Path) -> None:
    """An owner has read 3 MiB of which 2 are to be kept; then nobody reads."""
    retain, path = 2 << 20, tmp_path / "log"
    log = MappedLog(path, retain_bytes=retain)
    for _ in range(3 << 4):
        log.fill(lambda room: len(room))
    read = log.end
    log.close()
    tail = LogTail(str(tmp_path), retain)
    written, most = bytearray(), 0
    while tail.room():
        piece = LINES[len(written) % 1000 :][:50_000]
        tail.append(piece)
        written += piece
        most = max(most, used_bytes(path))
    tail.close()
    assert retain - WINDOW <= len(written) <= retain
    assert most <= retain + (3 << 20)
    log = MappedLog(path, retain_bytes=retain)
    assert log.first <= read
    assert log.read(read, log.end) == written
    log.close()
