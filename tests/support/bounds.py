"""The bound of all waits in tests.

A passing test waits only as long as the machine takes, so the bound is far above what any machine takes: it ends a
hanging test and says nothing about speed. pytest's own bound, in pyproject.toml, is above this one.
"""

from __future__ import annotations

import asyncio
import select

BOUND_SECONDS = 200.0
LOOK_SECONDS = 0.01


def pause() -> None:
    """Leave the processor to others between two checks of a condition that no event announces."""
    select.select((), (), (), LOOK_SECONDS)


async def pause_awaited() -> None:
    """The same for what goes on in an event loop."""
    await asyncio.to_thread(pause)
