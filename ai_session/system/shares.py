"""The share that one owner may have of a common resource. No I/O."""

from __future__ import annotations

SHARE = (3, 4)
"""The fraction that no owner exceeds, whatever is configured, so that some is always left for others."""


def share(whole: int, most: int) -> int:
    """Return how many of ``whole`` one owner may have: ``most``, or the fraction if that is less; at least one."""
    part, of = SHARE
    return min(most, max(1, whole * part // of))
