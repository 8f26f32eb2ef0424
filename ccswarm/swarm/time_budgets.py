"""How much time a task has left, by its budget, its agent's, and an attempt's limit. Durable: the clock is recorded."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from ccswarm.config.settings import Budget
from ccswarm.engines.base import Flow
from ccswarm.models import Json

SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class TimeBudget:
    """A budget of ``seconds`` for all that is counted at ``scope``; ``kind`` is whose: agent or task."""

    kind: str
    scope: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """The remaining time of the limit that ends first: a budget of that ``kind``, or, if that is empty, the attempt's
    limit, ``whole``."""

    kind: str
    seconds: float
    whole: float = 0.0

    @property
    def over(self) -> bool:
        """Whether no time is left."""
        return self.seconds <= 0


class TimeBudgets:
    """The time from start to end, including all waits. ``attempt_seconds`` limits one attempt that has several parts.
    Without it and a budget of seconds, nothing is recorded."""

    def __init__(self, flow: Flow, budgets: Sequence[TimeBudget], attempt_seconds: float = 0.0) -> None:
        self._flow = flow
        self._budgets = budgets
        self._attempt_seconds = attempt_seconds
        self._passed = 0.0
        self._counted_until: float | None = None

    async def left(self, *, attempt: bool = True) -> TimeLeft | None:
        """Count the time since the previous call, and return what is left; None without a limit. Without ``attempt``,
        the time does not count as the attempt's, and only budgets limit what is left."""
        if not self._budgets and not self._attempt_seconds:
            return None
        now = await self._now()
        passed = max(0.0, now - self._counted_until) if self._counted_until is not None else 0.0
        self._counted_until = now
        self._passed += passed if attempt else 0.0
        found: list[TimeLeft] = []
        for one in self._budgets:
            if passed:
                await self._flow.spend(one.scope, {SECONDS: passed}, {}, anyway=True)
            used = (await self._flow.spent(one.scope)).get(SECONDS, 0.0)
            found.append(TimeLeft(one.kind, one.seconds - used))
        if self._attempt_seconds and attempt:
            found.append(TimeLeft("", self._attempt_seconds - self._passed, self._attempt_seconds))
        return min(found, key=lambda one: one.seconds, default=None)

    async def _now(self) -> float:
        async def read(_: str) -> Json:
            return time.time()

        return await self._flow.step("clock", read)


def time_budgets(*budgets: tuple[str, str, Budget]) -> list[TimeBudget]:
    """Return those of the given (kind, scope, budget) that limit the time."""
    return [TimeBudget(kind, scope, budget.seconds) for kind, scope, budget in budgets if budget.seconds]
