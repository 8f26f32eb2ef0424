"""A worker in a process of its own: ``python -m tests.ccswarm.support.engine_worker SETTINGS DIRECTORY ID [LIMITS]``.

Settings and limits are JSON. It prints "up" when it is about to start.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccswarm.config.settings import EngineSettings
from ccswarm.engines.base import RUNS, Limits
from ccswarm.engines.dbos.engine import DbosEngine
from tests.ccswarm.support.engine_plays import play
from tests.support.bounds import BOUND_SECONDS
from tests.support.forked_awaited import Awaited, awaited

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ccswarm.engines.base import Engine

ROOT = Path(__file__).parents[3]


def make(settings: EngineSettings, directory: Path) -> Engine:
    engine: Engine = DbosEngine(settings, directory)
    engine.define("play", play)
    engine.define("run", play, queue=RUNS)
    return engine


async def main(settings: str, directory: str, worker_id: str, limits: str = "{}") -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    engine = make(EngineSettings.model_validate_json(settings), Path(directory))
    print("up", flush=True)
    await engine.run_worker(worker_id, stop, limits=Limits(**json.loads(limits)))


@asynccontextmanager
async def started(settings: EngineSettings, directory: Path, worker_id: str, **limits: Any) -> AsyncGenerator[Awaited]:
    """Yield a worker in another process, which ends afterwards whatever the test does to it."""
    words = [settings.model_dump_json(), str(directory), worker_id, json.dumps(limits)]
    async with awaited("ccswarm", words, cwd=ROOT, env=os.environ, script=__file__) as process:
        assert await asyncio.wait_for(process.stdout.readline(), BOUND_SECONDS) == b"up\n", await process.communicate()
        yield process


async def start(settings: EngineSettings, directory: Path, worker_id: str, **limits: Any) -> asyncio.subprocess.Process:
    """Start a worker with an interpreter of its own, which the caller must end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", __name__ if __name__ != "__main__" else "tests.ccswarm.support.engine_worker"),
        *(settings.model_dump_json(), str(directory), worker_id, json.dumps(limits)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    try:
        assert await asyncio.wait_for(process.stdout.readline(), BOUND_SECONDS) == b"up\n", await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.communicate()
        raise
    return process


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
