"""The size of a benchmark: large enough to measure, or just enough to show that it still runs."""

from __future__ import annotations

import os
from typing import TypeVar

TINY = "BENCHMARKS_TINY"
"""An environment variable, so that processes which a benchmark starts inherit it."""

T = TypeVar("T")


def sized(full: T, tiny: T) -> T:
    """Return ``tiny`` if the variable is set, else ``full``."""
    return tiny if TINY in os.environ else full
