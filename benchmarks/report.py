"""One row per measurement: value, floor, ratio, target. A row says whether the target held; nothing is asserted."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence


class Report:
    """Prints rows as they come."""

    def __init__(self) -> None:
        self.missed = 0

    def title(self, text: str) -> None:
        """A heading for the rows that follow."""
        print(f"\n{text}")

    def row(
        self,
        name: str,
        value: float,
        unit: str,
        *,
        floor: float | None = None,
        most_ratio: float | None = None,
        most: float | None = None,
        least_ratio: float | None = None,
        note: str = "",
    ) -> None:
        """``floor`` is in the same unit and run; the targets are the ones given."""
        words = [f"  {name:<52}{value:>10.3f} {unit:<6}"]
        held = True
        if floor:
            words.append(f"{value / floor:6.2f} x floor {floor:.3f}")
        if floor and most_ratio is not None:
            held &= value <= floor * most_ratio
            words.append(f"(target ≤ {most_ratio:g} x)")
        if floor and least_ratio is not None:
            held &= value >= floor * least_ratio
            words.append(f"(target ≥ {least_ratio:g} x)")
        if most is not None:
            held &= value <= most
            words.append(f"(target ≤ {most:g} {unit})")
        if not held:
            self.missed += 1
            words.append("MISSED")
        if note:
            words.append(note)
        print(" ".join(words))
        sys.stdout.flush()


def median_ms(seconds: Sequence[float]) -> float:
    """The middle of the samples, in milliseconds."""
    return statistics.median(seconds) * 1e3
