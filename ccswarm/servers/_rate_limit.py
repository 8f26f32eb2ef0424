"""The limit of requests per address."""

from __future__ import annotations

MOST_ADDRESSES = 10_000


class Rates:
    """A limit of ``each_second`` requests, with bursts of twice as many; 0 is no limit."""

    def __init__(self, each_second: float) -> None:
        self._each = each_second
        self._left = dict[str, tuple[float, float]]()

    def take(self, address: str, now: float) -> bool:
        """Count a request, and report whether it is allowed."""
        if not self._each:
            return True
        most = max(1.0, 2 * self._each)
        left, at = self._left.get(address, (most, now))
        left = min(most, left + (now - at) * self._each)
        if address not in self._left and len(self._left) >= MOST_ADDRESSES:
            self._left = {
                one: state for one, state in self._left.items() if state[0] + (now - state[1]) * self._each < most
            }
        self._left[address] = (left - 1 if left >= 1 else left, now)
        return left >= 1
