"""How often each principal may do each kind of thing: GCRA, one number per principal and kind. No I/O but the clock.

A principal that was idle may use a whole minute's amount at once, then continues at the steady rate. So in any ``t``
seconds it gets at most ``per_minute × (1 + t / 60)``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from ai_session.errors import RateLimited

BURST_SECONDS = 60.0
MAX_KEYS = 16_384
"""Principals and kinds remembered at once, about 3 MB. Idle ones are forgotten first."""

SWEEP_SECONDS = 0.1
SLACK_SECONDS = 1e-6
"""Rounding of sums of intervals must not refuse the last call of a burst."""


class RateLimiter:
    """One per daemon. ``per_minute`` maps each kind (read, effect, sessions, output_bytes, questions) to its amount."""

    def __init__(self, per_minute: Mapping[str, int], clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = dict(per_minute)
        self._intervals = {kind: 60.0 / amount for kind, amount in per_minute.items()}
        self._clock = clock
        self._paid_until: dict[tuple[str, str], float] = {}
        self._sweep_at = 0.0

    def __len__(self) -> int:
        """Return the number of principals and kinds remembered now."""
        return len(self._paid_until)

    def acquire(self, principal_key: str, kind: str, cost: float = 1) -> None:
        """Use ``cost`` of ``kind``, or raise RateLimited and use nothing. KeyError for a kind without a limit.

        A cost above a whole minute's amount is accepted if nothing is owed, and must be paid off afterwards.
        """
        now = self._clock()
        key = (principal_key, kind)
        seconds = self._intervals[kind] * cost
        start = self._paid_until.get(key, now)
        if start <= now:
            start = now
        elif start + seconds - now > BURST_SECONDS + SLACK_SECONDS:
            wait = start - now - max(0.0, BURST_SECONDS - seconds)
            raise self._refusal(kind, wait)
        if key not in self._paid_until:
            self._make_room(now, kind)
        self._paid_until[key] = start + seconds

    def spend(self, principal_key: str, kind: str, cost: float) -> None:
        """Count what was used already, e.g. bytes of a result; never raises RateLimited, later calls wait instead."""
        now = self._clock()
        key = (principal_key, kind)
        if key not in self._paid_until and len(self._paid_until) >= MAX_KEYS:
            self._forget_idle(now)
            if len(self._paid_until) >= MAX_KEYS:
                return
        self._paid_until[key] = max(now, self._paid_until.get(key, now)) + self._intervals[kind] * cost

    def give_back(self, principal_key: str, kind: str) -> None:
        """Undo an ``acquire`` that turned out not to count."""
        key = (principal_key, kind)
        until = self._paid_until.get(key, 0.0) - self._intervals[kind]
        if until > self._clock():
            self._paid_until[key] = until
        else:
            self._paid_until.pop(key, None)

    def _make_room(self, now: float, kind: str) -> None:
        if len(self._paid_until) < MAX_KEYS:
            return
        self._forget_idle(now)
        if len(self._paid_until) >= MAX_KEYS:
            raise self._refusal(kind, self._sweep_at - now)

    def _forget_idle(self, now: float) -> None:
        """Forget idle principals; walks the whole map, but not before something in it has become idle."""
        if now < self._sweep_at:
            return
        self._paid_until = {key: until for key, until in self._paid_until.items() if until > now}
        if len(self._paid_until) > MAX_KEYS // 2:
            self._sweep_at = max(min(self._paid_until.values()), now + SWEEP_SECONDS)

    def _refusal(self, kind: str, wait_seconds: float) -> RateLimited:
        wait = max(1, math.ceil(wait_seconds * 1000)) / 1000
        return RateLimited(
            f"too many calls: the limit is {self._per_minute[kind]} of kind {kind} per minute",
            retry_after_seconds=wait,
            suggestion=f"call again in {wait:g} s; rates.{kind}_per_minute in the configuration sets the limit",
        )
