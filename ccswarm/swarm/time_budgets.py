"""How long a task may still go on, by the budgets of its agent and its own, and by what one attempt may take. Durable:
its clock is recorded."""

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
    """``seconds`` of all that is counted at ``scope``; ``kind`` is whose: agent or task."""

    kind: str
    scope: str
    seconds: float


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """Of the bound that ends first: a budget of that ``kind``, or what the attempt may take, ``whole``, without one."""

    kind: str
    seconds: float
    whole: float = 0.0

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return self.seconds <= 0


class TimeBudgets:
    """Time from start to end, whoever is waited for: models, tools, gates, reviews, people, git. One attempt may take
    ``attempt_seconds``, where it has several parts. Without that and a budget of seconds nothing is recorded."""

    def __init__(self, flow: Flow, budgets: Sequence[TimeBudget], attempt_seconds: float = 0.0) -> None:
        self._flow = flow
        self._budgets = budgets
        self._attempt_seconds = attempt_seconds
        self._passed = 0.0
        self._counted_until: float | None = None

    async def left(self, *, attempt: bool = True) -> TimeLeft | None:
        """Counts the time since it was last asked, of the first time none; None where there is no bound. Without
        ``attempt`` what has passed is none of the attempt's time, and what is left is of budgets alone."""
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
    """Of kind, scope and budget, those that bound the time."""
    return [TimeBudget(kind, scope, budget.seconds) for kind, scope, budget in budgets if budget.seconds]
