"""A worker in a process of its own: ``python swarm_worker.py CONFIG STATE``. Says "up" when it executes, and ends when
its input does."""

from __future__ import annotations

import asyncio
import faulthandler
import signal
import sys
from pathlib import Path

from ccswarm.config import config
from ccswarm.runs.app import working


async def main(file: str, state: str) -> None:
    settings = config.load(Path(file)).settings
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, over.set)
    async with working(settings, Path(state), config.server_environment()):
        print("up", flush=True)
        await over.wait()


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    asyncio.run(main(*sys.argv[1:]))
