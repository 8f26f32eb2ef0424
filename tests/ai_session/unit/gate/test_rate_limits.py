"""The limiter against a bucket computed with exact fractions."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_session.errors import RateLimited
from ai_session.gate.rate_limits import BURST_SECONDS, MAX_KEYS, RateLimiter


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bucket:
    """Leaks ``per_minute`` a minute and holds as much; a cost above that is taken when it is empty."""

    def __init__(self, per_minute: int) -> None:
        self.size = Fraction(per_minute)
        self.level = Fraction(0)

    def pass_time(self, seconds: Fraction) -> None:
        self.level = max(Fraction(0), self.level - self.size * seconds / 60)

    def take(self, cost: Fraction) -> bool:
        if self.level + cost > self.size and not (cost > self.size and self.level == 0):
            return False
        self.level += cost
        return True


# Their intervals, and the steps below, are exact in binary, so that the model's word counts at the very edge.
AMOUNTS = st.sampled_from([15, 30, 60, 120, 480])
STEPS = st.lists(
    st.tuples(st.integers(0, 40 * 64).map(lambda n: n / 64), st.integers(0, 4 * 600).map(lambda n: n / 4)),
    max_size=60,
)


@given(AMOUNTS, STEPS)
@settings(deadline=None)
def test_every_verdict_is_the_bucket_s(per_minute: int, steps: list[tuple[float, float]]) -> None:
    clock, bucket = Clock(), Bucket(per_minute)
    limiter = RateLimiter({"effect": per_minute}, clock)
    for seconds, cost in steps:
        clock.now += seconds
        bucket.pass_time(Fraction(seconds))
        if bucket.take(Fraction(cost)):
            limiter.acquire("a", "effect", cost)
            continue
        with pytest.raises(RateLimited) as caught:
            limiter.acquire("a", "effect", cost)
        assert caught.value.retry_after_seconds > 0


@given(st.integers(1, 10_000), st.lists(st.floats(0.1, 3000), min_size=1, max_size=30))
@settings(deadline=None)
def test_a_refused_call_is_taken_after_the_time_it_was_told_and_not_much_before(
    per_minute: int, costs: list[float]
) -> None:
    clock = Clock()
    limiter = RateLimiter({"effect": per_minute}, clock)
    for cost in costs:
        try:
            limiter.acquire("a", "effect", cost)
        except RateLimited as refused:
            if refused.retry_after_seconds > 0.002:
                clock.now += refused.retry_after_seconds - 0.002
                with pytest.raises(RateLimited):
                    limiter.acquire("a", "effect", cost)
                clock.now += 0.0021
            else:
                clock.now += refused.retry_after_seconds
            limiter.acquire("a", "effect", cost)


@given(st.integers(1, 6000), st.lists(st.floats(0, 5), max_size=200))
@settings(deadline=None)
def test_no_stretch_of_time_holds_more_than_the_minute_and_its_share(per_minute: int, pauses: list[float]) -> None:
    clock = Clock()
    limiter = RateLimiter({"effect": per_minute}, clock)
    start, taken = clock.now, 0
    for pause in pauses:
        clock.now += pause
        try:
            limiter.acquire("a", "effect", per_minute / 20)
        except RateLimited:
            continue
        taken += 1
        assert taken * per_minute / 20 <= per_minute * (1 + (clock.now - start) / 60) + 1e-3


def test_principals_and_kinds_do_not_share() -> None:
    limiter = RateLimiter({"questions": 1, "read": 2}, Clock())
    limiter.acquire("a", "questions")
    limiter.acquire("b", "questions")
    limiter.acquire("a", "read")
    limiter.acquire("a", "read")
    with pytest.raises(RateLimited) as caught:
        limiter.acquire("a", "questions")
    assert caught.value.retry_after_seconds == BURST_SECONDS
    assert caught.value.code == "rate_limited"
    assert "questions" in caught.value.message
    assert "call again in 60 s" in caught.value.suggestion
    with pytest.raises(KeyError):
        limiter.acquire("a", "unknown")


def test_what_was_spent_is_paid_off_before_the_next_call() -> None:
    clock = Clock()
    limiter = RateLimiter({"output_bytes": 60}, clock)
    limiter.spend("a", "output_bytes", 90)
    with pytest.raises(RateLimited) as caught:
        limiter.acquire("a", "output_bytes", 0)
    assert caught.value.retry_after_seconds == 30
    clock.now += 30
    limiter.acquire("a", "output_bytes", 0)


def test_idle_principals_are_forgotten_and_the_map_is_bounded() -> None:
    clock = Clock()
    limiter = RateLimiter({"read": 60}, clock)
    for number in range(MAX_KEYS):
        limiter.acquire(f"client {number}", "read")
    limiter.spend("busy", "read", 30)
    assert len(limiter) == MAX_KEYS
    with pytest.raises(RateLimited):
        limiter.acquire("one too many", "read")
    clock.now += 2
    limiter.acquire("one too many", "read", 5)
    assert len(limiter) == 1
    for number in range(MAX_KEYS - 1):
        limiter.acquire(f"client {number}", "read")
    with pytest.raises(RateLimited) as caught:
        limiter.acquire("once more", "read")
    clock.now += caught.value.retry_after_seconds
    limiter.acquire("once more", "read")
    with pytest.raises(RateLimited):
        limiter.acquire("one too many", "read", 60)
