"""The store of the engine in memory, and the flow that it passes to durable functions."""

from __future__ import annotations

import asyncio
import builtins
import json
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ccswarm import errors
from ccswarm.engines.base import Outcome
from ccswarm.errors import RunNotFound, SwarmError
from ccswarm.models import Execution, Json, Priority, RunStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping


@dataclass(slots=True)
class Row:
    """A stored execution, as JSON text so that no other values are possible."""

    id: str
    kind: str
    payload: str
    agent: str
    priority: Priority
    parent: str = ""
    status: RunStatus = RunStatus.QUEUED
    worker: str = ""
    stopped_by: str = ""
    created_at: float = field(default_factory=time.time)
    ended_at: float = 0.0
    result: str = "null"
    error: str = ""
    shown: str = "null"
    records: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict[tuple[int, int], tuple[str, str]])
    messages: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    sent: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    keyed: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    events: list[str] = field(default_factory=list[str])

    def take_in(self, topic: str, message: str) -> None:
        """Store a message in ``messages``, those not received yet, and in ``sent``, all of them."""
        self.messages.append((topic, message))
        self.sent.append((topic, message))

    def seen(self, *, payload: bool = True) -> Execution:
        facts = {name: getattr(self, name) for name in ("id", "kind", "status", "parent", "agent", "priority")}
        facts |= {name: getattr(self, name) for name in ("worker", "created_at", "ended_at", "error")}
        given = json.loads(self.payload) if payload else None
        return Execution(**facts, payload=given, result=json.loads(self.result), shown=json.loads(self.shown))


class MemoryStore:
    """The store, which outlives the processes. ``slept`` are the requested pauses, which take no time here."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.used: dict[str, dict[str, float]] = {}
        self.beats: dict[str, float] = {}
        self.slept: list[tuple[str, float]] = []
        self._change = asyncio.Event()
        self.version = 0

    def changed(self) -> None:
        self.version += 1
        self._change.set()
        self._change = asyncio.Event()

    async def change(self, seen: int | None = None) -> None:
        """Wait for the next change, or the first after version ``seen``."""
        if seen in (None, self.version):
            await self._change.wait()

    def row(self, execution_id: str) -> Row:
        if execution_id not in self.rows:
            raise RunNotFound(f"no execution {execution_id}")
        return self.rows[execution_id]

    def family(self, execution_id: str) -> list[Row]:
        found = [self.row(execution_id)]
        for parent in found:
            found += [row for row in self.rows.values() if row.parent == parent.id]
        return found

    async def over(self, execution_id: str) -> Row:
        while not self.row(execution_id).status.over:
            await self.change()
        return self.row(execution_id)

    def add(self, row: Row) -> None:
        self.rows.setdefault(row.id, row)
        self.changed()


class MemoryFlow:
    """A flow in which each calling asyncio task is a lane; calls are identified by lane and number in the lane."""

    def __init__(self, kinds: Collection[str], alive: Callable[[], bool], store: MemoryStore, row: Row) -> None:
        self._kinds = kinds
        self._alive = alive
        self._store = store
        self._row = row
        self._lanes: dict[Any, int] = {asyncio.current_task(): 0}
        self._next: dict[int, int] = {}

    @property
    def id(self) -> str:
        return self._row.id

    async def end(self) -> None:
        """Cancel the concurrent tasks that are left when the function has ended."""
        left = [task for task in self._lanes if task is not asyncio.current_task() and not task.done()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _recorded(self, name: str, make: Callable[[tuple[int, int]], Awaitable[Json]]) -> Json:
        lane = self._lanes.setdefault(asyncio.current_task(), len(self._lanes))
        key = (lane, self._next.get(lane, 1))
        self._next[lane] = key[1] + 1
        if key not in self._row.records:
            value = json.dumps(await make(key))
            assert self._alive(), "a killed process continued"
            self._row.records[key] = (name, value)
        known, value = self._row.records[key]
        assert known == name, f"call {key} of {self.id} was {known!r}, is {name!r}: the flow is not deterministic"
        return json.loads(value)

    async def step(
        self, name: str, function: Callable[[str], Awaitable[Json]], *, timeout_seconds: float | None = None
    ) -> Json:
        async def make(key: tuple[int, int]) -> Json:
            try:
                async with asyncio.timeout(timeout_seconds):
                    return {"value": await function(f"{self.id}/{key[0] * 10_000 + key[1]}")}
            except Exception as error:
                return {"error": [type(error).__name__, str(error), getattr(error, "suggestion", "")]}

        answer = await self._recorded(f"step {name}", make)
        if "value" in answer:
            return answer["value"]
        what, message, suggestion = answer["error"]
        kind = getattr(errors, what, None) or getattr(builtins, what, None)
        if kind is None or not issubclass(kind, Exception):
            raise RuntimeError(f"{what}: {message}")
        raise kind(message, suggestion=suggestion) if issubclass(kind, SwarmError) else kind(message)

    async def first(self, tasks: Collection[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
        await asyncio.sleep(0)
        for task in tasks:
            assert task in self._lanes or not isinstance(tasks, set), "give a list: a set has no order"
            self._lanes.setdefault(task, len(self._lanes))
        by_lane = {self._lanes[task]: task for task in tasks}

        async def make(_: object) -> Json:
            done, _pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return sorted(self._lanes[task] for task in done)

        done = {by_lane[lane] for lane in await self._recorded("first", make)}
        await asyncio.wait(done)
        return done

    async def start(
        self, kind: str, execution_id: str, payload: Json, *, agent: str, priority: Priority = "medium"
    ) -> None:
        async def make(_: object) -> None:
            assert kind in self._kinds, f"no kind is called {kind}"
            self._store.add(Row(execution_id, kind, json.dumps(payload), agent, priority, parent=self.id))

        await self._recorded(f"start {execution_id}", make)

    async def outcome(self, execution_id: str) -> Outcome:
        async def make(_: object) -> Json:
            ended = (await self._store.over(execution_id)).seen()
            return [ended.status, ended.result, ended.error]

        status, result, error = await self._recorded(f"outcome {execution_id}", make)
        return Outcome(RunStatus(status), result, error)

    async def payload_of(self, execution_id: str) -> Json:
        return json.loads(self._store.row(execution_id).payload)

    async def receive(self, topic: str, timeout_seconds: float) -> Json | None:
        async def make(_: object) -> Json:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_seconds):
                    while not (waiting := [m for m in self._row.messages if m[0] == topic]):
                        await self._store.change()
                    self._row.messages.remove(waiting[0])
                    return json.loads(waiting[0][1])
            return None

        return await self._recorded(f"receive {topic}", make)

    async def send(self, execution_id: str, topic: str, message: Json) -> None:
        async def make(_: object) -> None:
            if execution_id in self._store.rows:
                self._store.rows[execution_id].take_in(topic, json.dumps(message))
                self._store.changed()

        await self._recorded(f"send {execution_id}", make)

    async def sleep(self, seconds: float) -> None:
        async def make(_: object) -> None:
            self._store.slept.append((self.id, seconds))

        await self._recorded("sleep", make)
        await asyncio.sleep(0)

    async def emit(self, event: Mapping[str, Any]) -> None:
        async def make(_: object) -> None:
            self._row.events.append(json.dumps(dict(event)))
            self._store.changed()

        await self._recorded("emit", make)

    async def publish(self, status: Mapping[str, Any]) -> None:
        async def make(_: object) -> None:
            self._row.shown = json.dumps(dict(status))
            self._store.changed()

        await self._recorded("publish", make)

    async def spend(
        self, scope: str, amounts: Mapping[str, float], caps: Mapping[str, float], *, anyway: bool = False
    ) -> str:
        async def make(_: object) -> str:
            used = self._store.used.setdefault(scope, {})
            after = {name: used.get(name, 0) + amount for name, amount in amounts.items()}
            short = next((name for name in after if name in caps and after[name] > caps[name]), "")
            used.update({} if short and not anyway else after)
            return short

        return await self._recorded(f"spend {scope}", make)

    async def spent(self, scope: str) -> Mapping[str, float]:
        async def make(_: object) -> Json:
            return dict(self._store.used.get(scope, {}))

        return await self._recorded(f"spent {scope}", make)
