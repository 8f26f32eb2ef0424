"""Verification of the whole audit log by another process: ``audit verify``, which needs and trusts no daemon."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

Facts = dict[str, Any]
VERIFY = (sys.executable, "-P", "-m", "ai_session", "audit", "verify", "--json")


class AuditCheck:
    """Runs one verification at a time for all tabs."""

    def __init__(self) -> None:
        self._turns = asyncio.Lock()

    async def ask(self) -> Facts:
        """Return ``result``, the verb's JSON, or ``error``."""
        async with self._turns:
            process = await asyncio.create_subprocess_exec(
                *VERIFY,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                output, _ = await process.communicate()
            except asyncio.CancelledError:
                process.kill()
                await process.wait()
                raise
        try:
            found: Facts = json.loads(output)
        except ValueError:
            found = {}
        if "sound" in found:
            return {"result": found}
        problem = {"code": "audit_unread", "message": "the log cannot be read", "suggestion": "ai-session audit verify"}
        return {"error": found.get("error", problem)}
