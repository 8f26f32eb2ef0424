"""Numbers with what is counted, as a sentence needs them."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """Return ``1 task``, ``2 tasks``."""
    return f"{number} {what}{'s' * (number != 1)}"
