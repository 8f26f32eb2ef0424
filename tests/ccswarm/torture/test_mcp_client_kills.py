"""Servers that are killed, stopped and lost again and again while many call: every call ends, and says truly how."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

from ccswarm.clients.mcp.plugin import McpToolClient
from ccswarm.errors import CallTimedOut, ServerLost, ServerUnavailable
from tests.ccswarm.support.mcp_servers import client_of, facts, use
from tests.support.process_ends import ended

pytestmark = [pytest.mark.anyio, pytest.mark.torture]

ROUNDS = 100
CALLERS = 12


async def caller(client: McpToolClient, number: int, stop: asyncio.Event, ends: dict[str, int]) -> None:
    """Calls until it is told to stop; counts how calls ended."""
    turn = 0
    while not stop.is_set():
        turn += 1
        text = f"{number}.{turn}"
        try:
            answer = await use(client, "echo", text=text)
        except (ServerLost, ServerUnavailable) as error:
            ends[type(error).__name__] = ends.get(type(error).__name__, 0) + 1
        else:
            assert answer.text == text
            ends["answer"] = ends.get("answer", 0) + 1


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_server_that_is_killed_over_and_over(era: str) -> None:
    chance, stop, ends = random.Random(7), asyncio.Event(), dict[str, int]()
    async with client_of("plain", era) as client, client_of("plain", era) as clock:
        callers = [asyncio.create_task(caller(client, number, stop, ends)) for number in range(CALLERS)]
        for _ in range(ROUNDS):
            for _ in range(chance.randrange(20)):  # a time that is not always the same
                await use(clock, "echo")
            try:
                pid = (await facts(client))["pid"]
            except ServerLost:
                continue
            os.kill(pid, signal.SIGKILL)
            await ended(pid)
        stop.set()
        await asyncio.gather(*callers)
        assert (await use(client, "echo", text="on")).text == "on"
    assert ends["answer"] > ROUNDS
    assert ends.get("ServerUnavailable", 0) == 0


async def test_a_server_that_is_stopped_and_goes_on() -> None:
    async with client_of("plain") as client:
        pid = (await facts(client))["pid"]
        for number in range(20):
            os.kill(pid, signal.SIGSTOP)
            with pytest.raises(CallTimedOut):
                await client.call("echo", {"text": "unheard"}, meta={}, timeout_seconds=0.05)
            os.kill(pid, signal.SIGCONT)
            assert (await use(client, "echo", text=str(number))).text == str(number)
        os.kill(pid, signal.SIGSTOP)
    await ended(pid)


async def test_nothing_piles_up() -> None:
    async with client_of("plain") as client:
        await client.list_tools()
        before = len(list(Path("/proc/self/fd").iterdir())), len(asyncio.all_tasks())
        for _ in range(ROUNDS):
            with pytest.raises(ServerLost):
                await use(client, "die", code=1)
            await client.list_tools()
        assert len(list(Path("/proc/self/fd").iterdir())) <= before[0] + 6
        assert len(asyncio.all_tasks()) <= before[1] + 6
