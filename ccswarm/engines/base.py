"""What an engine keeps and executes: durable functions, which continue after a crash where they were.

A durable function is run again from its beginning by whoever takes it over; what it did through its ``Flow`` is not
done again but answered from what was recorded. So it uses no clock, no randomness and no I/O but through the flow.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ccswarm.models import Execution, Json, Priority, RunStatus

if TYPE_CHECKING:
    import asyncio

TASKS = "tasks"
RUNS = "runs"


class Flow(Protocol):
    """What a durable function may do."""

    @property
    def id(self) -> str:
        """Of this execution: the same whoever runs it."""
        ...

    async def step(
        self, name: str, function: Callable[[str], Awaitable[Json]], *, timeout_seconds: float | None = None
    ) -> Json:
        """Run ``function`` and record its result, or return the recorded one. It is given a key that stays the same
        when the step is run again because nobody knows whether it ended. Steps may run side by side: start them as
        tasks in an order that is always the same. TimeoutError after ``timeout_seconds``; cancelled with the
        execution."""
        ...

    async def first(self, tasks: Collection[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
        """Wait until at least one of ``tasks`` is done; which ones is recorded, so that they are the same again."""
        ...

    async def start(
        self, kind: str, execution_id: str, payload: Json, *, agent: str, priority: Priority = "medium"
    ) -> None:
        """Queue another execution as a child; a second time with that id does nothing."""
        ...

    async def outcome(self, execution_id: str) -> Outcome:
        """How a child that is over ended."""
        ...

    async def given(self, execution_id: str) -> Json:
        """What an execution was queued with: not recorded, since it is always the same. Raises RunNotFound."""
        ...

    async def receive(self, topic: str, timeout_seconds: float) -> Json | None:
        """The next message somebody sent on ``topic``; None after the time. Holds no worker while it waits."""
        ...

    async def send(self, execution_id: str, topic: str, message: Json) -> None:
        """A message for another execution's ``receive``; nothing happens where that one is over or unknown."""
        ...

    async def sleep(self, seconds: float) -> None:
        """A pause that survives a crash."""
        ...

    async def emit(self, event: Mapping[str, Any]) -> None:
        """Publish an event to followers of this execution; stored with it exactly once."""
        ...

    async def publish(self, status: Mapping[str, Any]) -> None:
        """Replace what ``Execution.shown`` says."""
        ...

    async def spend(
        self, scope: str, amounts: Mapping[str, float], caps: Mapping[str, float], *, anyway: bool = False
    ) -> str:
        """Add ``amounts`` to what ``scope`` has used, unless that would be more than ``caps`` allow: then the name
        of the first that is short, and nothing is added, but for ``anyway``: it is used already. ``""`` when there was
        enough. Recorded: a repeated step adds nothing."""
        ...

    async def spent(self, scope: str) -> Mapping[str, float]:
        """What ``scope`` has used by now; recorded."""
        ...


Durable = Callable[[Flow, Json], Awaitable[Json]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """``status`` is succeeded, failed or cancelled, as the engine saw it; ``result`` what the function returned."""

    status: RunStatus
    result: Json = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """``at_once`` executions over all workers, ``per_worker`` in one, ``per_agent`` of one agent; ``starts`` within
    ``period_seconds`` where both are given. 0: no limit."""

    at_once: int = 0
    per_worker: int = 0
    per_agent: int = 1
    starts: int = 0
    period_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """A step that an execution has recorded: ``result`` is what its function returned, ``error`` what it raised.
    Times are seconds since 1970."""

    name: str
    result: Json = None
    error: str = ""
    began_at: float = 0.0
    ended_at: float = 0.0


class Store(Protocol):
    """What is kept of executions. Every method raises EngineUnavailable when it cannot be read."""

    async def status(self, execution_id: str) -> Execution:
        """Raises RunNotFound."""
        ...

    async def list(
        self, *, kind: str = "", prefix: str = "", top: bool = False, unfinished: bool = False, limit: int = 100
    ) -> Sequence[Execution]:
        """Newest first, without payloads. ``top``: only what has no parent; ``unfinished``: only what is not over."""
        ...

    async def sent(self, execution_id: str, topic: str, key: str) -> Json | None:
        """The message of that key, received or not; None where there is none."""
        ...

    def events(self, execution_id: str, *, offset: int = 0, follow: bool = True) -> AsyncIterator[Mapping[str, Any]]:
        """What the execution emitted, from ``offset`` on; ends when it is over, or at once without ``follow``."""
        ...

    async def steps(self, execution_id: str) -> Sequence[Step]:
        """What the execution has recorded by now, in the order in which it ended."""
        ...

    async def spent(self, scope: str) -> Mapping[str, float]:
        """What ``Flow.spend`` added for ``scope``."""
        ...

    async def health(self) -> Mapping[str, Any]:
        """``store``, ``workers`` (id → seconds since its last beat), ``queued``, ``running``."""
        ...


class Engine(Store, Protocol):
    """Opened once per process: ``open`` (or ``run_worker``) first, ``close`` last. Every method raises
    EngineUnavailable when the store cannot be used; ``wait`` and ``events`` outlast a restart of its server."""

    def define(self, kind: str, function: Durable, *, queue: str = TASKS) -> None:
        """Name a durable function. Before ``open``; in every process the same ones."""
        ...

    async def open(self, *, limits: Limits = Limits()) -> None:
        """Connect, and make the store ready where it is new. Executes nothing."""
        ...

    async def run_worker(
        self, worker_id: str, stop: asyncio.Event, *, limits: Limits = Limits(), known: asyncio.Event | None = None
    ) -> None:
        """Execute what is queued until ``stop`` is set, then hand back what is unfinished. Beats, takes over what lost
        workers left, and ends the process with exit code 75 when it cannot reach the store for as long as others wait
        before they take over from it. Opens and closes by itself; ``worker_id`` is unique among those alive.
        ``known`` is set once everybody finds it in ``health``."""
        ...

    async def close(self) -> None:
        """Let go of everything; executions stay as they are."""
        ...

    async def submit(
        self, kind: str, execution_id: str, payload: Json, *, agent: str = "", priority: Priority = "medium"
    ) -> None:
        """Queue an execution; a second time with that id does nothing."""
        ...

    async def wait(self, execution_id: str) -> Execution:
        """Returns when the execution is over. Raises RunNotFound."""
        ...

    async def cancel(self, execution_id: str) -> None:
        """End it and all its children; steps that run are cancelled, queued ones never start. Raises RunNotFound."""
        ...

    async def pause(self, execution_id: str) -> None:
        """Stop it and its children after what runs now was cancelled; ``resume`` continues. Raises RunNotFound."""
        ...

    async def resume(self, execution_id: str) -> None:
        """Go on with what is paused, was cancelled or failed, from the last recorded step. Raises RunNotFound."""
        ...

    async def send(self, execution_id: str, topic: str, message: Json, *, key: str = "") -> bool:
        """A message for ``Flow.receive``; kept until it is received. With ``key`` only the first one is: whether this
        is it. Raises RunNotFound."""
        ...

    async def messages(self, execution_id: str, topic: str) -> Mapping[str, Json]:
        """Return the messages sent on ``topic``, received or not, by an id of each, in no particular order; none
        for an unknown execution."""
        ...

    async def recover(self, worker_id: str) -> int:
        """Take over what a worker that is gone left unfinished; how many."""
        ...

    async def retain(self, before: float) -> int:
        """Remove what was over before that time (seconds since 1970), with children; how many."""
        ...
