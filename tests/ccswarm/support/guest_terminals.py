"""Terminals for brains: each is a directory and an environment, and its commands are processes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ccswarm.models import CallOutcome, CallRequest, CallStatus
from tests.ccswarm.support.swarms import MemoryWorker
from tests.support.bounds import BOUND_SECONDS


class Terminals:
    """Terminals, which several worlds may share. ``made`` are all sessions by name, ``closed`` the closed ones."""

    def __init__(self) -> None:
        self.made: dict[str, Mapping[str, Any]] = {}
        self.closed: list[str] = []
        self.running: dict[str, asyncio.subprocess.Process] = {}
        self._printing: dict[str, asyncio.Task[tuple[bytes, bytes]]] = {}
        self.environ = dict(os.environ)
        self.refusal: CallOutcome | None = None

    def serve(self, worker: MemoryWorker, server: str = "ai-session") -> None:
        worker.tool(f"{server}.create_session", self._create)
        worker.tool(f"{server}.execute_command", self._execute)
        worker.tool(f"{server}.close_session", self._close)

    async def _create(self, request: CallRequest) -> Mapping[str, Any] | CallOutcome:
        assert request.agent == "orchestrator"
        if self.refusal:
            return self.refusal
        self.made[str(request.arguments["name"])] = request.arguments
        return {"name": request.arguments["name"]}

    async def _execute(self, request: CallRequest) -> Mapping[str, Any] | CallOutcome:
        name = str(request.arguments["session_id"])
        given = self.made[name]
        if name not in self.running:
            process = self.running[name] = await asyncio.create_subprocess_shell(
                request.arguments["command"],
                cwd=given["working_directory"],
                env={**self.environ, **given["env"]},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
            self._printing[name] = asyncio.create_task(process.communicate())
        process = self.running[name]
        printed, _ = await asyncio.shield(self._printing[name])
        facts = {"status": "finished", "exit_code": process.returncode}
        return CallOutcome(CallStatus.OK, printed.decode(), facts)

    async def _close(self, request: CallRequest) -> Mapping[str, Any]:
        name = str(request.arguments["session_id"])
        self.closed.append(name)
        await self.end(name)
        return {"closed": True}

    async def end(self, name: str) -> None:
        """End the processes of a terminal, as closing one does."""
        if process := self.running.pop(name, None):
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGHUP)
                async with asyncio.timeout(BOUND_SECONDS):
                    await process.wait()
            for left in _of_session(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(left, signal.SIGKILL)
            await self._printing.pop(name)

    async def close(self) -> None:
        for name in list(self.running):
            await self.end(name)


def _of_session(leader: int) -> list[int]:
    found: list[int] = []
    for entry in os.listdir("/proc"):
        with suppress(ValueError, ProcessLookupError):
            if os.getsid(int(entry)) == leader:
                found.append(int(entry))
    return found
