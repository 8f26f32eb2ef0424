"""What the engines under test execute: a durable function that does what its payload lists, and the referee.

Its steps connect to the referee, so that a test knows what runs, can hold it, and counts effects.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from ccswarm.engines.base import Limits
from ccswarm.models import RunStatus
from tests.support.bounds import BOUND_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from pathlib import Path

    from ccswarm.engines.base import Engine, Flow
    from ccswarm.models import Execution, Json


async def play(flow: Flow, payload: Json) -> Json:
    """Do each of ``payload["do"]`` in turn and return the list of their results."""
    return [await act(flow, payload["door"], *op) for op in payload["do"]]


async def act(flow: Flow, door: str, what: str, *given: Any) -> Json:
    if what == "step":
        name, *timeout = given

        async def knock(key: str) -> Json:
            return await visit(door, name, key)

        return await flow.step(name, knock, timeout_seconds=timeout[0] if timeout else None)
    if what == "tried":
        try:
            return await act(flow, door, "step", *given)
        except Exception as error:  # the type depends on the engine
            return [type(error).__name__, str(error), getattr(error, "suggestion", "")]
    if what == "beside":
        return await beside(flow, door, given)
    if what == "start":
        kind, execution_id, do, agent, priority = given
        return await flow.start(kind, execution_id, {"door": door, "do": do}, agent=agent, priority=priority)
    if what == "outcome":
        outcome = await flow.outcome(given[0])
        return [outcome.status.value, outcome.result, outcome.error]
    if what == "raise":
        raise ValueError(given[0])
    return await getattr(flow, what)(*given)


async def beside(flow: Flow, door: str, lanes: Sequence[Any]) -> Json:
    """Do lists of acts concurrently; return the order in which they ended, and their results."""
    running = {asyncio.create_task(lane(flow, door, ops)): number for number, ops in enumerate(lanes)}
    tasks, ended = list(running), list[int]()
    while tasks:
        done = await flow.first(tasks)
        ended += sorted(running[task] for task in done)
        tasks = [task for task in tasks if task not in done]
        await flow.emit({"ended": ended[-1]})
    return [ended, [task.result() for task in running]]


async def lane(flow: Flow, door: str, ops: Sequence[Any]) -> Json:
    return [await act(flow, door, *op) for op in ops]


async def visit(door: str, name: str, key: str) -> Json:
    """Connect to the referee, send name and key, and return or raise its answer."""
    reader, writer = await asyncio.open_unix_connection(door)
    try:
        writer.write(json.dumps([name, key]).encode() + b"\n")
        answer = json.loads(await reader.readline())
    finally:
        writer.close()
    if "raise" in answer:
        from ccswarm import errors

        kind, *words = answer["raise"]
        known = getattr(errors, kind, None)
        raise known(words[0], suggestion=words[1]) if known else {"ValueError": ValueError}.get(kind, Odd)(words[0])
    return answer["value"]


class Odd(Exception):
    """An exception that the engine cannot know."""


@dataclass(eq=False)
class Visit:
    """A running step. ``left`` is set when it does not wait for an answer any more."""

    name: str
    key: str
    writer: asyncio.StreamWriter
    left: asyncio.Event = field(default_factory=asyncio.Event)
    at: float = field(default_factory=time.monotonic)

    def answer(self, value: Json = None) -> None:
        self.writer.write(json.dumps({"value": value}).encode() + b"\n")

    def refuse(self, kind: str, *words: str) -> None:
        self.writer.write(json.dumps({"raise": [kind, *words]}).encode() + b"\n")


class Referee:
    """The server for steps. Those named in ``held`` wait until the test answers; others are answered at once."""

    def __init__(self, door: Path, held: Sequence[str] = ()) -> None:
        self.door = str(door)
        self.held = set(held)
        self.visits: list[Visit] = []
        self._arrived = asyncio.Condition()
        self._open: set[asyncio.Task[Any]] = set()

    @property
    def keys(self) -> dict[str, str]:
        """The names of the steps that had an effect, by key."""
        return {visit.key: visit.name for visit in self.visits}

    @property
    def names(self) -> list[str]:
        return [visit.name for visit in self.visits]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._meet, self.door)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for visit in self.visits:
            visit.writer.close()
        await asyncio.wait_for(asyncio.gather(*self._open), BOUND_SECONDS)

    async def arrival(self, name: str, number: int = 1) -> Visit:
        """Wait for the ``number``-th visit with that name and return it."""
        async with asyncio.timeout(BOUND_SECONDS), self._arrived:
            await self._arrived.wait_for(lambda: self.names.count(name) >= number)
        return [visit for visit in self.visits if visit.name == name][number - 1]

    async def visited(self, prefix: str, number: int) -> None:
        """Wait until so many different steps with that prefix have begun."""
        async with asyncio.timeout(BOUND_SECONDS), self._arrived:
            await self._arrived.wait_for(lambda: len({n for n in self.names if n.startswith(prefix)}) >= number)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._open.add(task)
        if not (line := await reader.readline()):  # killed before it sent its name
            writer.close()
            return
        name, key = json.loads(line)
        visit = Visit(name, key, writer)
        async with self._arrived:
            self.visits.append(visit)
            self._arrived.notify_all()
        if visit.name not in self.held:
            visit.answer(visit.name)
        with suppress(ConnectionError):
            await reader.read()
        visit.left.set()
        writer.close()


class Stage:
    """An engine and a referee, with functions for tests."""

    def __init__(self, engine: Engine, referee: Referee) -> None:
        self.engine = engine
        self.referee = referee

    @asynccontextmanager
    async def worker(self, **limits: Any) -> AsyncGenerator[None]:
        stop, known = asyncio.Event(), asyncio.Event()
        working = asyncio.create_task(self.engine.run_worker("w1", stop, limits=Limits(**limits), known=known))
        try:
            await asyncio.wait_for(known.wait(), BOUND_SECONDS)
            yield
        finally:
            stop.set()
            await asyncio.wait_for(working, BOUND_SECONDS)

    async def submit(self, execution_id: str, *do: Any, kind: str = "play", **given: Any) -> None:
        await self.engine.submit(kind, execution_id, {"door": self.referee.door, "do": do}, **given)

    async def status(self, execution_id: str) -> RunStatus:
        return (await self.engine.status(execution_id)).status

    async def ended(self, execution_id: str) -> Execution:
        return await asyncio.wait_for(self.engine.wait(execution_id), BOUND_SECONDS)

    async def result(self, execution_id: str) -> Any:
        ended = await self.ended(execution_id)
        assert ended.status is RunStatus.SUCCEEDED, ended.error
        return ended.result
