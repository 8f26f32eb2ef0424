"""How long tests wait for what must happen.

A test that passes never waits longer than the machine takes, so the bound is far above what any machine takes: it ends
what hangs, and says nothing about speed. pytest's own, in pyproject.toml, is above this one.
"""

from __future__ import annotations

import select

BOUND_SECONDS = 200.0
LOOK_SECONDS = 0.01


def pause() -> None:
    """Between two looks at what no event announces: whoever is waited for gets the processor."""
    select.select((), (), (), LOOK_SECONDS)
