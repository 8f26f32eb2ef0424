"""Calls that this process has recorded it is about to make."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
from contextlib import suppress


class Claims:
    """The calls that a process has claimed and that are not answered yet. Another process that finds a claim cannot
    know whether the call was made: so one that leaves claims nothing more, and first has its claims answered.

    ``process`` names this one.
    """

    def __init__(self, process: str = "") -> None:
        self.process = process or f"{platform.node()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._open: set[tuple[str, str]] = set()
        self._leaving = False
        self._changed = asyncio.Event()

    async def open(self, execution: str, step: str) -> None:
        """Claim a call. Once the process leaves, this waits until the execution is cancelled."""
        if self._leaving:
            await asyncio.Event().wait()
        self._open.add((execution, step))

    def close(self, execution: str, step: str | None = None) -> None:
        """It was answered; without ``step``, nothing of that execution is in progress here."""
        self._open = {claim for claim in self._open if claim != (execution, step or claim[1])}
        self._changed.set()

    async def leave(self, seconds: float) -> None:
        """Claim nothing more, and wait at most that long for the answers of what is claimed."""
        self._leaving = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._open:
                    self._changed.clear()
                    await self._changed.wait()
