"""What an engine stores and executes: durable functions, which continue after a crash where they stopped.

The process that takes over a durable function runs it again from its beginning. Operations on its ``Flow`` are not
repeated, but answered from the record. So the function uses the clock, randomness and I/O only through the flow.
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
    """The operations of a durable function."""

    @property
    def id(self) -> str:
        """The id of this execution, which is the same in every process."""
        ...

    async def step(
        self, name: str, function: Callable[[str], Awaitable[Json]], *, timeout_seconds: float | None = None
    ) -> Json:
        """Run ``function`` and record its result, or return the recorded one.

        ``function`` gets a key that stays the same if the step is run again because it is unknown whether it ended.
        Steps may run concurrently: start them as tasks in an order that is always the same. Raises TimeoutError after
        ``timeout_seconds``. The step is cancelled with the execution.
        """
        ...

    async def first(self, tasks: Collection[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
        """Wait until at least one of ``tasks`` is done. Which ones is recorded, so a replay returns the same."""
        ...

    async def start(
        self, kind: str, execution_id: str, payload: Json, *, agent: str, priority: Priority = "medium"
    ) -> None:
        """Queue another execution as a child. Does nothing if that id exists."""
        ...

    async def outcome(self, execution_id: str) -> Outcome:
        """Wait for the end of a child, and return how it ended."""
        ...

    async def payload_of(self, execution_id: str) -> Json:
        """Return the payload of an execution. It never changes, so it is not recorded. Raises RunNotFound."""
        ...

    async def receive(self, topic: str, timeout_seconds: float) -> Json | None:
        """Return the next message on ``topic``, or None after the time. Waiting occupies no worker."""
        ...

    async def send(self, execution_id: str, topic: str, message: Json) -> None:
        """Send a message to another execution's ``receive``. Does nothing if that one has ended or is unknown."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Pause. The pause survives a crash."""
        ...

    async def emit(self, event: Mapping[str, Any]) -> None:
        """Publish an event to followers of this execution. It is stored exactly once."""
        ...

    async def publish(self, status: Mapping[str, Any]) -> None:
        """Replace ``Execution.shown``."""
        ...

    async def spend(
        self, scope: str, amounts: Mapping[str, float], caps: Mapping[str, float], *, anyway: bool = False
    ) -> str:
        """Add ``amounts`` to the use of ``scope`` unless that exceeds ``caps``. Recorded: a replayed step adds nothing.
        Returns ``""``, or the name of the first cap exceeded; then nothing is added, unless ``anyway``, which is for
        amounts that are already used."""
        ...

    async def spent(self, scope: str) -> Mapping[str, float]:
        """Return what ``scope`` has used so far. Recorded."""
        ...


Durable = Callable[[Flow, Json], Awaitable[Json]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of an execution: succeeded, failed or cancelled. ``result`` is what its function returned."""

    status: RunStatus
    result: Json = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of concurrent executions; 0: no limit. ``at_once`` counts all workers, ``per_worker`` one of them,
    ``per_agent`` the executions of one agent. ``starts`` limits those started within ``period_seconds``, if both are
    given."""

    at_once: int = 0
    per_worker: int = 0
    per_agent: int = 1
    starts: int = 0
    period_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Step:
    """A recorded step: ``result`` or ``error`` of its function. Times are Unix times in seconds."""

    name: str
    result: Json = None
    error: str = ""
    began_at: float = 0.0
    ended_at: float = 0.0


class Store(Protocol):
    """The stored executions. Every method raises EngineUnavailable if they cannot be read."""

    async def status(self, execution_id: str) -> Execution:
        """Return an execution. Raises RunNotFound."""
        ...

    async def list(
        self, *, kind: str = "", prefix: str = "", top: bool = False, unfinished: bool = False, limit: int = 100
    ) -> Sequence[Execution]:
        """Return executions without payloads, newest first. ``top``: only those without a parent; ``unfinished``: only
        those that have not ended."""
        ...

    async def sent(self, execution_id: str, topic: str, key: str) -> Json | None:
        """Return the message with that key, received or not, or None."""
        ...

    def events(self, execution_id: str, *, offset: int = 0, follow: bool = True) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the execution's events from ``offset`` until it ends; without ``follow`` only the existing ones."""
        ...

    async def steps(self, execution_id: str) -> Sequence[Step]:
        """Return the recorded steps of an execution, in the order in which they ended."""
        ...

    async def spent(self, scope: str) -> Mapping[str, float]:
        """Return what ``Flow.spend`` added for ``scope``."""
        ...

    async def health(self) -> Mapping[str, Any]:
        """Return ``store``, ``workers`` (id → seconds since its last heartbeat), ``queued`` and ``running``."""
        ...


class Engine(Store, Protocol):
    """An engine, used once per process: first ``open`` or ``run_worker``, last ``close``. Every method raises
    EngineUnavailable if the store cannot be used. ``wait`` and ``events`` survive a restart of its server."""

    def define(self, kind: str, function: Durable, *, queue: str = TASKS) -> None:
        """Register a durable function. Call it before ``open``, with the same functions in every process."""
        ...

    async def open(self, *, limits: Limits = Limits()) -> None:
        """Connect, and initialize a new store. Executes nothing."""
        ...

    async def run_worker(
        self, worker_id: str, stop: asyncio.Event, *, limits: Limits = Limits(), known: asyncio.Event | None = None
    ) -> None:
        """Execute queued work until ``stop`` is set, then return unfinished work to the queue.

        The worker sends heartbeats and takes over the work of lost workers. If it cannot reach the store for as long as
        others wait before they take over from it, it ends the process with exit code 75. It opens and closes the engine
        itself; ``worker_id`` is unique among running workers. ``known`` is set once ``health`` lists it.
        """
        ...

    async def close(self) -> None:
        """Release all connections. Executions stay as they are."""
        ...

    async def submit(
        self, kind: str, execution_id: str, payload: Json, *, agent: str = "", priority: Priority = "medium"
    ) -> None:
        """Queue an execution. Does nothing if that id exists."""
        ...

    async def wait(self, execution_id: str) -> Execution:
        """Wait until the execution has ended, and return it. Raises RunNotFound."""
        ...

    async def cancel(self, execution_id: str) -> None:
        """Cancel the running steps of an execution and its children; queued ones never start. Raises RunNotFound."""
        ...

    async def pause(self, execution_id: str) -> None:
        """Cancel the running steps of an execution and its children until ``resume``. Raises RunNotFound."""
        ...

    async def resume(self, execution_id: str) -> None:
        """Continue a paused, cancelled or failed execution after the last recorded step. Raises RunNotFound."""
        ...

    async def send(self, execution_id: str, topic: str, message: Json, *, key: str = "") -> bool:
        """Send a message to ``Flow.receive``; it is stored until it is received. Raises RunNotFound. With ``key`` only
        the first message is stored; returns whether this is it."""
        ...

    async def messages(self, execution_id: str, topic: str) -> Mapping[str, Json]:
        """Return the messages sent on ``topic``, received or not, by an id of each, in no particular order; none
        for an unknown execution."""
        ...

    async def recover(self, worker_id: str) -> int:
        """Queue the unfinished work of a worker that has ended, and return how much."""
        ...

    async def retain(self, before: float) -> int:
        """Remove executions, with children, that ended before that Unix time, and return how many."""
        ...
