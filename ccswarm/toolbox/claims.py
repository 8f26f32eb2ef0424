"""Calls that this process has recorded as about to be made."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
from contextlib import suppress


class Claims:
    """The calls that a process has claimed and that have not been answered. Another process that finds a claim cannot
    know whether the call was made. So a process that leaves stops claiming, and first waits for the answers to its
    claims. ``process`` names this process."""

    def __init__(self, process: str = "") -> None:
        self.process = process or f"{platform.node()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._open: set[tuple[str, str]] = set()
        self._leaving = False
        self._changed = asyncio.Event()

    async def open(self, execution: str, step: str) -> None:
        """Claim a call. After ``leave``, this waits until the execution is cancelled."""
        if self._leaving:
            await asyncio.Event().wait()
        self._open.add((execution, step))

    def close(self, execution: str, step: str | None = None) -> None:
        """Release the claim of an answered call; without ``step``, all claims of that execution."""
        self._open = {claim for claim in self._open if claim != (execution, step or claim[1])}
        self._changed.set()

    async def leave(self, seconds: float) -> None:
        """Stop claiming, and wait at most ``seconds`` until all claimed calls are answered."""
        self._leaving = True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._open:
                    self._changed.clear()
                    await self._changed.wait()
