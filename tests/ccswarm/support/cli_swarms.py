"""A swarm in memory whose agents are driven by real programs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ccswarm.brains.base import WorkerContext
from tests.ccswarm.support.guest_terminals import Terminals
from tests.ccswarm.support.swarms import MemoryWorker, settings
from tests.support.bounds import BOUND_SECONDS

ROOT = Path(__file__).parents[3]
TASK = "run_1.main"


class CliWorker:
    """A worker whose brains may run programs in terminals."""

    def __init__(self, home: Path, terminals: Terminals, memory_worker: MemoryWorker | None = None) -> None:
        self.worker = memory_worker or MemoryWorker()
        self.terminals = terminals
        self.worker.task_worker.worker_context = WorkerContext(
            lambda name: f"value of {name}", {"PYTHONPATH": str(ROOT)}, home
        )
        terminals.serve(self.worker)
        self.worker.tool("srv.do", found=42)

    async def run(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Carry out a plan and return the result of its task."""
        run = await self.worker.run(given)
        return run.result["tasks"]["main"]

    async def events(self, name: str) -> list[Mapping[str, Any]]:
        return [e async for e in self.worker.engine.events(TASK, follow=False) if e["event"] == name]


@asynccontextmanager
async def started(cli: CliWorker, given: Mapping[str, Any], worker: str = "worker") -> AsyncGenerator[str]:
    """Begin a run and, once its program has started, yield the terminal's name."""
    async with cli.worker.working(worker):
        await cli.worker.swarm.submit(settings(given), "run_1", "/project")
        async with asyncio.timeout(BOUND_SECONDS):
            async for event in cli.worker.engine.events("run_1"):
                if event["event"] == "task.started":
                    break
            name = ""
            async for event in cli.worker.engine.events(TASK):
                if event["event"] == "program.started":
                    name = str(event["session"])
                if event["event"] == "agent.said":
                    break
        yield name


async def ended(cli: CliWorker) -> Mapping[str, Any]:
    async with asyncio.timeout(BOUND_SECONDS):
        return (await cli.worker.engine.wait("run_1")).result["tasks"]["main"]
