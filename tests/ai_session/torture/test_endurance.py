"""Much of everything over one daemon: gigabytes, clients, sessions, commands; it then holds what it held before."""

from __future__ import annotations

import os
import re
import threading
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from ai_session.client import relay
from ai_session.client.connection import ControlClient, connect
from tests.ai_session.torture.kills import daemon, runtime, spin

BACKENDS = ["pty", "tmux"]
MEGABYTE = 1 << 20
RETAIN_BYTES = 4 * MEGABYTE
SLACK_BYTES = 4 * MEGABYTE
"""Of disk: space is reserved and given back 1 MiB at a time; saved state, marks and history come to some kilobytes."""

GROWTH_BYTES = 16 * MEGABYTE
"""Of memory in all processes together; what is to be found grows with the amount, which is hundreds of times this."""

VISIT = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"visitor","version":"1"}}}\n{"jsonrpc":"2.0","method":"notifications/initialized"}\n'
    b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"list_sessions","arguments":{}}}\n'
)
WAIT = (
    b'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"read_output","arguments":'
    b'{"session_id":"stays-pty","wait_for":"output","timeout_seconds":50}}}\n'
)


@pytest.fixture(autouse=True)
def no_hurry_is_too_much(home: Path) -> None:
    """Clients here do in a minute what others do in a day."""
    del home
    for kind in ("READ", "EFFECT", "SESSIONS"):
        os.environ[f"AI_SESSION_RATES_{kind}_PER_MINUTE"] = "1000000"
    os.environ["AI_SESSION_RATES_OUTPUT_BYTES_PER_MINUTE"] = str(1 << 34)


def amounts(few: object, many: object, seconds: int) -> list[object]:
    """A small amount for every run, and a large one that may take ``seconds``."""
    marks = [pytest.mark.torture, pytest.mark.timeout(seconds)]
    return [pytest.param(few, id="few"), pytest.param(many, id="many", marks=marks)]


@dataclass(frozen=True)
class Footprint:
    """What this HOME's processes hold; ``descriptors`` by process."""

    descriptors: dict[int, int]
    files: frozenset[str]

    def within(self, before: Footprint) -> bool:
        """Nothing more than ``before``, when something that had just ended may still have been held."""
        return self.files <= before.files and all(
            count <= before.descriptors.get(pid, 0) for pid, count in self.descriptors.items()
        )


def pids() -> list[int]:
    """Daemon, keepers and all they started: processes that carry this HOME in arguments or environment."""
    home = os.fsencode(os.environ["HOME"])
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            what = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            if home in what and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


def footprint() -> Footprint:
    descriptors: dict[int, int] = {}
    for pid in pids():
        with suppress(OSError):
            descriptors[pid] = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    files = frozenset(str(path.relative_to(runtime())) for path in runtime().glob("sessions/*"))
    return Footprint(descriptors, files)


def memory() -> int:
    """Bytes of their own that all processes of this HOME hold."""
    total = 0
    for pid in pids():
        with suppress(OSError):
            found = re.search(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
            total += int(found[1]) * 1024 if found else 0
    return total


def disk(folder: Path) -> int:
    """Bytes that a folder takes on the disk, holes not counted."""
    total = 0
    for path in [folder, *folder.rglob("*")]:
        with suppress(FileNotFoundError):
            total += path.lstat().st_blocks * 512
    return total


def keep_one_each(client: ControlClient) -> None:
    """Sessions that stay throughout, so that their keepers do."""
    for backend in BACKENDS:
        client.call("create_session", name=f"stays-{backend}", backend=backend)
        client.call("execute_command", session_id=f"stays-{backend}", command="stays=here")


def check_nothing_is_left(client: ControlClient, before: Footprint, held: int) -> None:
    try:
        spin(lambda: footprint().within(before), "more than before")
    except AssertionError:
        assert footprint() == before
        raise
    assert memory() - held < GROWTH_BYTES
    for backend in BACKENDS:
        answer = client.call("execute_command", session_id=f"stays-{backend}", command="echo $stays").structured
        assert answer["output"] == "here\n"


@pytest.mark.parametrize(
    ("backend", "lines"),
    [
        pytest.param(
            "pty", 1_300_000, id="pty-10-MB", marks=pytest.mark.torture
        ),  # test_cli.py counts what is not kept
        pytest.param(
            "tmux", 1_300_000, id="tmux-10-MB", marks=pytest.mark.torture
        ),  # test_tmux_backend.py bounds its log
        pytest.param("pty", 115_000_000, id="pty-1-GB", marks=[pytest.mark.torture, pytest.mark.timeout(900)]),
        pytest.param("tmux", 35_000_000, id="tmux-300-MB", marks=[pytest.mark.torture, pytest.mark.timeout(900)]),
    ],
)
def test_one_command_prints_more_than_is_kept(backend: str, lines: int) -> None:
    os.environ["AI_SESSION_SESSION_RETAIN_BYTES"] = str(RETAIN_BYTES)
    most = 0
    with daemon(), connect() as client:
        session = client.call("create_session", name="flood", backend=backend).structured
        folder = runtime() / "sessions" / session["session_id"]
        client.call("execute_command", session_id="flood", command="seq 1 100000")
        held = memory()
        facts = client.call(
            "execute_command", session_id="flood", command=f"seq 1 {lines}; (exit 7)", timeout_seconds=0
        ).structured
        wait = {"session_id": "flood", "command_id": facts["command_id"], "wait_for": "finish", "tail_lines": 1000}
        while facts["status"] == "running":
            facts = client.call("read_output", **wait, timeout_seconds=1).structured
            most = max(most, disk(folder))
            assert memory() - held < GROWTH_BYTES
        assert (facts["status"], facts["exit_code"]) == ("finished", 7)
        shown = [line.rpartition(":")[2] for line in facts["output"].splitlines()]
        assert shown[-100:] == [str(number) for number in range(lines - 99, lines + 1)]
        assert most <= RETAIN_BYTES + SLACK_BYTES
        assert client.call("execute_command", session_id="flood", command="echo on").structured["output"] == "on\n"


@pytest.mark.torture  # test_daemon.py: connections leave nothing behind
@pytest.mark.parametrize("count", amounts(45, 1000, 300))
def test_clients_come_and_go(count: int) -> None:
    """A third leaves after an answer, a third in the middle of a call, a third without a word."""

    def visit(number: int) -> None:
        with closing(relay.connect("mcp")) as link:
            said = link.recv(65536)
            if number % 3 == 0:
                return
            link.sendall(VISIT + (WAIT if number % 3 == 1 else b""))
            while b'"id":2' not in said.replace(b" ", b""):
                chunk = link.recv(65536)
                assert chunk, said
                said += chunk

    with daemon(), connect() as client:
        keep_one_each(client)
        for number in range(30):
            visit(number)
        before, held = footprint(), memory()
        for number in range(count):
            visit(number)
        check_nothing_is_left(client, before, held)


@pytest.mark.torture  # test_kills.py: stop leaves no orphan; test_pty_child.py: failed starts leak nothing
@pytest.mark.parametrize("count", amounts(4, 500, 900))
def test_sessions_are_created_and_closed(count: int) -> None:
    """``count`` on each backend."""

    def cycle(client: ControlClient) -> None:
        for backend in BACKENDS:
            client.call("create_session", name="brief", backend=backend)
            client.call("execute_command", session_id="brief", command="sleep 1000 & cd /usr")
            client.call("close_session", session_id="brief")

    with daemon(), connect() as client:
        keep_one_each(client)
        cycle(client)
        before, held = footprint(), memory()
        for _ in range(count):
            cycle(client)
        check_nothing_is_left(client, before, held)


@pytest.mark.torture  # test_python_api.py has some in three sessions
@pytest.mark.parametrize("amount", amounts((4, 10), (20, 250), 900))
def test_many_commands_in_many_sessions_at_once(amount: tuple[int, int]) -> None:
    sessions, commands = amount
    failed: list[object] = []

    def work(number: int) -> None:
        name = f"busy{number}"
        with connect() as client:
            client.call("create_session", name=name, backend=BACKENDS[number % 2])
            for turn in range(commands):
                command = f"echo {number} {turn}; (exit {turn % 100})"
                facts = client.call("execute_command", session_id=name, command=command, timeout_seconds=50).structured
                if (facts.get("exit_code"), facts["output"]) != (turn % 100, f"{number} {turn}\n"):
                    failed.append(facts)
            client.call("close_session", session_id=name)

    with daemon(), connect() as client:
        keep_one_each(client)
        work(0)
        work(1)
        before, held = footprint(), memory()
        workers = [threading.Thread(target=work, args=(number,)) for number in range(sessions)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert failed == []
        check_nothing_is_left(client, before, held)
