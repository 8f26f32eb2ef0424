"""How much a benchmark does: as much as measuring takes, or as little as shows that it still runs."""

from __future__ import annotations

import os
from typing import TypeVar

TINY = "BENCHMARKS_TINY"
"""A variable, so that processes which a benchmark starts know it too."""

T = TypeVar("T")


def sized(full: T, tiny: T) -> T:
    """``tiny`` where the variable is set."""
    return tiny if TINY in os.environ else full
