"""The swarm's engine on SQLite: a durable step, compared with a bare transaction; the start of work; an idle worker."""

from __future__ import annotations

import asyncio
import sqlite3
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentwire.plugins import load
from benchmarks.children import output
from benchmarks.report import Report
from benchmarks.size import sized
from ccswarm.config.settings import EngineSettings
from ccswarm.engines.base import Limits

if TYPE_CHECKING:
    from ccswarm.engines.base import Engine, Flow

STEPS, AT_ONCE, STARTS, CHILDREN = sized((1000, 25, 20, 200), (4, 2, 1, 2))
IDLE_SECONDS = sized(5.0, 0.01)
IMPORT = "import time; t = time.perf_counter(); import ccswarm.engines.dbos.engine; print(time.perf_counter() - t)"


async def nothing(_: str) -> None:
    """Do nothing, as a step."""


async def chain(flow: Flow, payload: Any) -> float:
    """Run steps one after the other, and return the seconds they took."""
    start = time.perf_counter()
    for number in range(payload):
        await flow.step(f"s{number}", nothing)
    return time.perf_counter() - start


async def fan(flow: Flow, payload: Any) -> float:
    """Run as many steps at once as a busy agent has."""
    start = time.perf_counter()
    for begin in range(0, payload, AT_ONCE):
        await asyncio.gather(*[flow.step(f"s{begin + number}", nothing) for number in range(AT_ONCE)])
    return time.perf_counter() - start


async def stamp(flow: Flow, _: Any) -> float:
    """Return when it was started."""
    return await flow.step("now", moment)


async def moment(_: str) -> float:
    return time.perf_counter()


async def run(report: Report, directory: Path) -> None:
    """Measure in one process, as in ``ccswarm run``."""
    report.title("The engine of the swarm (dbos on SQLite)")
    imported = await asyncio.to_thread(output, [sys.executable, "-c", IMPORT])
    report.row("import of the engine", float(imported) * 1e3, "ms")
    start = time.perf_counter()
    engine: Engine = load("ccswarm.engines", "dbos").open(EngineSettings(), directory)
    for name, function in (("chain", chain), ("fan", fan), ("stamp", stamp)):
        engine.define(name, function)
    await engine.open()
    report.row("open a new store", (time.perf_counter() - start) * 1e3, "ms", note="with that import")
    stop = asyncio.Event()
    working = asyncio.create_task(engine.run_worker("bench", stop, limits=Limits(per_agent=0)))
    await run_execution(engine, "stamp", "warm", 0)
    floor = await asyncio.to_thread(transactions, directory / "bare.db")
    report.row("a bare transaction of one row", floor, "ms")
    for name in ("chain", "fan"):
        took = await run_execution(engine, name, name, STEPS)
        words = "sequential" if name == "chain" else f"{AT_ONCE} at once"
        report.row(f"one of {STEPS:,} steps, {words}", took / STEPS * 1e3, "ms", floor=floor)
    waits = list[float]()
    for number in range(STARTS):
        start = time.perf_counter()
        waits.append(await run_execution(engine, "stamp", f"one{number}", 0) - start)
    report.row("from submit to the first step", statistics.median(waits) * 1e3, "ms", note="looks every 200 ms")
    start = time.perf_counter()
    await asyncio.gather(*[engine.submit("stamp", f"many{number}", 0) for number in range(CHILDREN)])
    await asyncio.gather(*[engine.wait(f"many{number}") for number in range(CHILDREN)])
    report.row(f"one of {CHILDREN} executions at once", (time.perf_counter() - start) / CHILDREN * 1e3, "ms")
    used = time.process_time()
    await asyncio.wait([working], timeout=IDLE_SECONDS)
    used = time.process_time() - used
    report.row("processor, idle", used / IDLE_SECONDS * 100, "%", most=5, note=f"{threading.active_count()} threads")
    start = time.perf_counter()
    stop.set()
    await working
    report.row("stop a worker", (time.perf_counter() - start) * 1e3, "ms")
    await engine.close()


async def run_execution(engine: Engine, kind: str, execution_id: str, payload: Any) -> float:
    """Run an execution and return its result."""
    await engine.submit(kind, execution_id, payload)
    return (await engine.wait(execution_id)).result


def transactions(file: Path) -> float:
    """Return the milliseconds of a transaction in a file set up like the engine's."""
    store = sqlite3.connect(file, isolation_level=None)
    store.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; CREATE TABLE row (text TEXT)")
    start = time.perf_counter()
    for _ in range(STEPS):
        store.execute("INSERT INTO row VALUES (?)", ("x" * 200,))
    took = time.perf_counter() - start
    store.close()
    return took / STEPS * 1e3
