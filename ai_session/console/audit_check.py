"""The whole audit log, read and judged by a process of its own: the verb ``audit verify``, which needs no daemon and
believes none."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

Facts = dict[str, Any]
VERIFY = (sys.executable, "-P", "-m", "ai_session", "audit", "verify", "--json")


class AuditCheck:
    """One at a time, for all tabs."""

    def __init__(self) -> None:
        self._turns = asyncio.Lock()

    async def ask(self) -> Facts:
        """``result``, as the verb says it, or ``error``."""
        async with self._turns:
            process = await asyncio.create_subprocess_exec(
                *VERIFY,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                said, _ = await process.communicate()
            except asyncio.CancelledError:
                process.kill()
                await process.wait()
                raise
        try:
            found: Facts = json.loads(said)
        except ValueError:
            found = {}
        if "sound" in found:
            return {"result": found}
        unread = {"code": "audit_unread", "message": "the log cannot be read", "suggestion": "ai-session audit verify"}
        return {"error": found.get("error", unread)}
