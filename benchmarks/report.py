"""One row per measurement: value, floor, ratio, target. A row shows whether the target is met; nothing is asserted."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence


class Report:
    """The rows of measurements, printed as they are added."""

    def __init__(self) -> None:
        self.missed = 0

    def title(self, text: str) -> None:
        """Print a heading for the following rows."""
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
        """Print a row. ``floor`` has the same unit and is from the same run."""
        parts = [f"  {name:<52}{value:>10.3f} {unit:<6}"]
        is_met = True
        if floor:
            parts.append(f"{value / floor:6.2f} x floor {floor:.3f}")
        if floor and most_ratio is not None:
            is_met &= value <= floor * most_ratio
            parts.append(f"(target ≤ {most_ratio:g} x)")
        if floor and least_ratio is not None:
            is_met &= value >= floor * least_ratio
            parts.append(f"(target ≥ {least_ratio:g} x)")
        if most is not None:
            is_met &= value <= most
            parts.append(f"(target ≤ {most:g} {unit})")
        if not is_met:
            self.missed += 1
            parts.append("MISSED")
        if note:
            parts.append(note)
        print(" ".join(parts))
        sys.stdout.flush()


def median_ms(seconds: Sequence[float]) -> float:
    """Return the median in milliseconds."""
    return statistics.median(seconds) * 1e3
