"""VisionFlow under a crowd: 200 connections that mean well and ill, 50 swarms, and agents terminated under load."""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.ccswarm.support.runs import RunVerbs
from tests.ccswarm.support.visionflow_server import TEXT, Served, Wire, children, served

BOUND_SECONDS = 600.0
PAUSE_SECONDS = 0.1
KINDS = ("researcher", "coder", "coordinator")
TOPOLOGIES = ("mesh", "ring", "star", "hierarchical")
HOSTILE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    b"[" * 5000 + b"\n",
    b'{"jsonrpc":"2.0","id":1,"method":"swarm_init"',
    b'{"jsonrpc":"2.0","id":' + b"9" * 4000 + b',"method":"ping"}\n',
    b"A" * 1_500_000,
    b'{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"../../etc/passwd"}}\n' * 50,
)


class Client:
    """A connection of one that means well."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.number = 0

    async def ask(self, method: str, /, **params: Any) -> Any:
        self.number += 1
        request = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        self.writer.write(json.dumps(request).encode() + b"\n")
        answer = json.loads(await self.reader.readline())
        assert answer["id"] == self.number
        assert "result" in answer, answer
        return answer["result"]

    async def over(self, task: str) -> str:
        """How it ended: asked again and again, for nothing comes by itself."""
        while (status := (await self.ask("task_status", taskId=task))["status"]) in ("queued", "running"):
            with suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_SECONDS):
                    await self.unasked()
        return status

    async def unasked(self) -> None:
        """Returns when something came that nobody asked for."""
        raise AssertionError(await self.reader.readexactly(1))


async def well(port: int, number: int) -> float:
    """A swarm of its own with three agents, two tasks, and an end; the longest answer."""
    client, longest = Client(*await asyncio.open_connection("127.0.0.1", port)), 0.0
    swarm = (await client.ask("swarm_init", topology=TOPOLOGIES[number % 4], maxAgents=3))["swarmId"]
    agents = [(await client.ask("agent_spawn", swarmId=swarm, type=kind))["agentId"] for kind in KINDS]
    tasks = [(await client.ask("task_orchestrate", swarmId=swarm, task=f"{number}.{n}"))["taskId"] for n in range(2)]
    for task in tasks:
        began = time.monotonic()
        status = await client.ask("swarm_status", swarmId=swarm)
        longest = max(longest, time.monotonic() - began)
        assert status["activeAgents"] == 3
        assert await client.over(task) == "completed"
    status = await client.ask("swarm_status", swarmId=swarm)
    assert (status["pendingTasks"], status["completedTasks"]) == (0, 2)
    for agent in agents:
        assert (await client.ask("agent_terminate", agentId=agent))["status"] == "terminated"
    client.writer.close()
    return longest


async def ill(port: int, number: int, stop: asyncio.Event) -> None:
    """Sends what nobody should, and leaves without a word, until all who mean well are done."""
    draw = random.Random(number)
    while not stop.is_set():
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(draw.choice(HOSTILE))
            if draw.random() < 0.3:
                await writer.drain()
                writer.transport.abort()
                continue
            if draw.random() < 0.5:
                writer.write_eof()
                await reader.read()
            else:
                await asyncio.wait({asyncio.ensure_future(stop.wait())}, timeout=draw.random())
        except ConnectionError:
            pass
        finally:
            writer.close()


async def crowd(port: int, good: int, bad: int) -> list[float]:
    stop = asyncio.Event()
    async with asyncio.timeout(BOUND_SECONDS):
        nasty = [asyncio.create_task(ill(port, number, stop)) for number in range(bad)]
        try:
            return await asyncio.gather(*(well(port, number) for number in range(good)))
        finally:
            stop.set()
            await asyncio.gather(*nasty)


def alive(server: Served) -> None:
    """It is as it was: nobody of the agents' is left, and nothing went wrong inside."""
    with Wire(server.port) as wire:
        assert wire.ask("server_info")["agent_count"] == 0
    assert children(server, ".py") == []
    wrong = [(line, server.said[at + 1 : at + 3]) for at, line in enumerate(server.said) if line.startswith("error")]
    assert not wrong, wrong[:3]


def crowded(home: Path, good: int, bad: int) -> None:
    with served(RunVerbs(home, TEXT), "--connections", "1000") as server:
        longest = asyncio.run(crowd(server.port, good, bad))
        print(f"{good} swarms beside {bad} others: swarm_status answered within {max(longest):.2f} s")
        alive(server)


@pytest.mark.torture
def test_a_few_who_mean_well_among_a_few_who_do_not(home: Path) -> None:
    crowded(home, 2, 4)


@pytest.mark.torture
@pytest.mark.timeout(700)
def test_fifty_swarms_among_two_hundred_connections(home: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    crowded(home, 50, 150)


@pytest.mark.torture
@pytest.mark.timeout(700)
def test_terminated_under_load_nobody_stays(home: Path) -> None:
    """Twenty swarms whose agents all hang in a call, and have more to do; all are terminated at once."""
    verbs = RunVerbs(home, TEXT)

    async def one(port: int) -> None:
        client = Client(*await asyncio.open_connection("127.0.0.1", port))
        swarm = (await client.ask("swarm_init", topology="mesh"))["swarmId"]
        kinds = ("analyst", "analyst", "coder")
        agents = [(await client.ask("agent_spawn", swarmId=swarm, type=kind))["agentId"] for kind in kinds]
        tasks = [(await client.ask("task_orchestrate", swarmId=swarm, task=f"{n}"))["taskId"] for n in range(3)]
        others = [Client(*await asyncio.open_connection("127.0.0.1", port)) for _ in agents]
        pairs = zip(others, agents, strict=True)
        await asyncio.gather(*(other.ask("agent_terminate", agentId=agent) for other, agent in pairs))
        assert {await client.over(task) for task in tasks} <= {"cancelled", "completed"}
        status = await client.ask("swarm_status", swarmId=swarm)
        assert (status["activeAgents"], status["pendingTasks"]) == (0, 0)
        for each in (client, *others):
            each.writer.close()

    async def all_of_them(port: int) -> None:
        async with asyncio.timeout(BOUND_SECONDS):
            await asyncio.gather(*(one(port) for _ in range(20)))

    os.mkfifo(verbs.pipe)  # nobody writes to it
    with served(verbs, "--connections", "1000") as server:
        asyncio.run(all_of_them(server.port))
        alive(server)
