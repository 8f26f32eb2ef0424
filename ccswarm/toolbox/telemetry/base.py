"""The interface of telemetry for runs, and its empty implementation for when no collector is configured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from ccswarm.models import CallOutcome, CallRequest, Json

Function = Callable[[str], Awaitable[Any]]
"""The work of a recorded step: it runs the first time and never again."""


class KnownExecution(Protocol):
    """A run or a task as the engine stores it; ``engines.base.Execution`` is one."""

    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def parent(self) -> str: ...
    @property
    def agent(self) -> str: ...
    @property
    def created_at(self) -> float: ...


Status = Callable[[str], Awaitable[KnownExecution]]


class SentCall(Protocol):
    """A call that the toolbox is about to send. ``outcome`` is read at the end."""

    call_id: str
    begun: bool
    outcome: CallOutcome


class Telemetry:
    """Telemetry that exports nothing; ``spans.LiveTelemetry`` exports. A run has the same ids whichever process
    executes it, and is exported when it ends. Steps replayed from its record are not exported again."""

    def call(self, request: CallRequest, sent: SentCall) -> AbstractContextManager[Mapping[str, str]]:
        """Return a context around one call. It yields what goes into the request's ``_meta``."""
        return NOTHING

    def trace_thought(self, request: CallRequest, function: Function) -> Function:
        """Wrap ``function``, a step in which an agent's brain thinks. The request names the agent."""
        return function

    async def await_answer(self, number: str, answer: Awaitable[Json | None]) -> Json | None:
        """Await a person's answer to the question ``number``."""
        return await answer

    async def execution(self, execution_id: str, root: str, work: Coroutine[Any, Any, Json], status: Status) -> Json:
        """Await the work of a run or a task of the run ``root``. ``status`` looks up the facts of one."""
        return await work

    async def close(self) -> None:
        """Send what is left, within a bounded time."""


NOTHING = nullcontext[Mapping[str, str]]({})
