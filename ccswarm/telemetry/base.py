"""The interface of telemetry for runs, and its empty implementation for when no collector is configured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from ccswarm.models import CallOutcome, CallRequest, Json

Function = Callable[[str], Awaitable[Any]]
"""Of a recorded step: what is done the first time, and not again."""


class Known(Protocol):
    """A run or a task, as the engine knows it; see ``engines.base.Execution``."""

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


Status = Callable[[str], Awaitable[Known]]


class Sent(Protocol):
    """A call that the toolbox is about to send; see there. ``outcome`` is read at the end."""

    call_id: str
    begun: bool
    outcome: CallOutcome


class Telemetry:
    """Exports nothing; ``spans`` has the implementation that does.

    A run has the same IDs whichever process executes it, and is exported when it is over; steps answered from its
    record are not exported again.
    """

    def call(self, request: CallRequest, sent: Sent) -> AbstractContextManager[Mapping[str, str]]:
        """Around one call; yields what goes with it in its ``_meta``."""
        return NOTHING

    def thought(self, request: CallRequest, function: Function) -> Function:
        """``function`` of a step in which an agent's brain thinks; the request says whose."""
        return function

    async def asked(self, number: str, answer: Awaitable[Json | None]) -> Json | None:
        """Around the wait for a person's answer."""
        return await answer

    async def execution(self, execution_id: str, root: str, work: Coroutine[Any, Any, Json], status: Status) -> Json:
        """Around a run or a task, which belong to the run ``root``. ``status`` finds what is known of one."""
        return await work

    async def close(self) -> None:
        """Send what is left, within a bounded time."""


NOTHING = nullcontext[Mapping[str, str]]({})
