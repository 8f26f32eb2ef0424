"""What one owner may have of what there is for all: pure."""

from __future__ import annotations

SHARE = (3, 4)
"""The part that nobody goes beyond, whatever is configured, so that there is always some left for others."""


def share(whole: int, most: int) -> int:
    """How many of ``whole`` one owner may have: ``most``, less where that would be nearly all, but one at least."""
    part, of = SHARE
    return min(most, max(1, whole * part // of))
