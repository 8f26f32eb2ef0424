"""How many requests an address may make."""

from __future__ import annotations

MOST_ADDRESSES = 10_000


class Rates:
    """``each_second``, and twice as many at once; 0: as many as come."""

    def __init__(self, each_second: float) -> None:
        self._each = each_second
        self._left = dict[str, tuple[float, float]]()

    def take(self, address: str, now: float) -> bool:
        """Whether it may make one more."""
        if not self._each:
            return True
        most = max(1.0, 2 * self._each)
        left, at = self._left.get(address, (most, now))
        left = min(most, left + (now - at) * self._each)
        if address not in self._left and len(self._left) >= MOST_ADDRESSES:
            self._left = {one: it for one, it in self._left.items() if it[0] + (now - it[1]) * self._each < most}
        self._left[address] = (left - 1 if left >= 1 else left, now)
        return left >= 1
