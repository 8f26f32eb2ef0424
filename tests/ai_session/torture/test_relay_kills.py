"""kill -9 of the daemon, the holder and tmux at random moments under one client that never restarts its server."""

from __future__ import annotations

import random
import select
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ai_session.client import relay
from tests.ai_session.support.mcp_client import Client, Message, daemon_pids, stop_daemons
from tests.ai_session.torture.kills import keepers
from tests.support.process_ends import kill_process

pytestmark = pytest.mark.torture

ROUNDS = 200
KEEPERS = {"holder": r"pty[./]holder", "tmux": r"tmux\.sock"}
LONGEST_SECONDS = 0.06
"""From a call to the kill: the call takes less, so some are killed before it begins and some after it has ended."""


@pytest.fixture(autouse=True)
def nothing_left(home: Path) -> Iterator[None]:
    yield
    relay.connect("control").close()  # it finds the sessions of those that were killed
    stop_daemons()


def victims(who: str) -> list[int]:
    return daemon_pids() if who == "daemon" else keepers(KEEPERS[who])


def kill(who: str) -> None:
    """All of them, at once; returns when they are gone."""
    for pid in victims(who):
        with suppress(ProcessLookupError):
            kill_process(pid)


def answer(client: Client, wanted: int) -> Message:
    while (message := client.read()).get("id") != wanted or "method" in message:
        pass
    assert "result" in message, message
    return message["result"]


class ClientRecord:
    """What one client learned of its commands, each of which notes that it ran."""

    def __init__(self, client: Client, ran: Path) -> None:
        self.client = client
        self.ran = ran
        self.finished: set[int] = set()
        self.interrupted = self.lost = 0

    def open(self, name: str, backend: str = "") -> None:
        made = self.client.call("create_session", name=name, backend=backend or name)
        assert not made.get("isError"), made

    def settle(self, who: str) -> None:
        """Somebody holds each terminal twice again: of those who hold them, only one is killed at a time."""
        if who == "tmux":
            while self.client.call("get_session_info", session_id="tmux")["structuredContent"]["state"] != "lost":
                pass
            self.open("tmux")
        elif who == "holder":
            # Answered by the next holder, which therefore has taken over all terminals.
            self.open("next", "pty")
            self.client.call("close_session", session_id="next")
        else:
            self.client.call("list_sessions")

    def one(self, number: int, backend: str, who: str, *, keyed: bool) -> None:
        """A command in the midst of which somebody is killed."""
        command = f"echo {number} >>{self.ran}; echo out {number}; (exit {number % 100})"
        arguments = {"session_id": backend, "command": command, **({"call_key": f"k{number}"} if keyed else {})}
        asked = self.client.request("tools/call", {"name": "execute_command", "arguments": arguments})
        select.select([self.client.process.stdout], [], [], random.random() * LONGEST_SECONDS)
        kill(who)
        result = answer(self.client, asked)
        if not result.get("isError"):
            self.judge(number, result["structuredContent"], backend, who, keyed=keyed)
        elif result["_meta"]["ai-session/error"]["code"] == "call_interrupted":
            assert not keyed, result
            assert who == "daemon", result
            self.interrupted += 1
        else:
            assert (who, backend) == ("tmux", "tmux"), f"{number} {who} {backend} {keyed=} {result}"
            assert result["_meta"]["ai-session/error"]["code"] == "session_exited", result
            self.lost += 1

    def judge(self, number: int, facts: Message, backend: str, who: str, *, keyed: bool) -> None:
        if facts["status"] == "running":
            read = {"session_id": backend, "command_id": facts["command_id"], "wait_for": "finish"}
            facts = self.client.call("read_output", **read)["structuredContent"]
        if facts["status"] == "finished" and facts.get("exit_code") == number % 100:
            assert facts["output"] == f"out {number}\n", (number, who, facts)
            self.finished.add(number)
        else:
            assert (who, backend) == ("tmux", "tmux"), f"{number} {who} {backend} {keyed=} {facts}"
            self.lost += 1


@pytest.mark.parametrize("seed", [1])
def test_one_client_sees_no_dead_connection_and_no_lost_or_doubled_command(home: Path, seed: int) -> None:
    random.seed(seed)
    kills = Counter[str]()
    with Client(cwd=home) as client:
        client.initialize()
        reported = ClientRecord(client, home / "ran")
        reported.ran.touch()
        for backend in ("pty", "tmux"):
            reported.open(backend)
        for number in range(1, ROUNDS + 1):
            who = random.choice(["daemon", "daemon", "holder", "tmux"])
            kills[who] += 1
            reported.one(number, random.choice(["pty", "tmux"]), who, keyed=random.random() < 0.7)
            reported.settle(who)
        for backend in ("pty", "tmux"):
            facts = client.call("execute_command", session_id=backend, command="echo end")["structuredContent"]
            assert facts["output"] == "end\n", facts
        assert client.end()[0] == 0
    ran = Counter(int(line) for line in reported.ran.read_text().split())
    assert max(ran.values()) == 1, [number for number, times in ran.items() if times > 1]
    assert reported.finished <= set(ran), reported.finished - set(ran)
    assert len(reported.finished) + reported.interrupted + reported.lost == ROUNDS
    print(
        f"{dict(kills)}: {len(reported.finished)} finished, {reported.interrupted} interrupted, {reported.lost} lost"
        " with tmux"
    )
