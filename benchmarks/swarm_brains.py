"""Agents that ask a model, at a provider in a process of its own: the cost of a turn, relative to the bare request."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentwire.plugins import load
from benchmarks.children import output
from benchmarks.report import Report
from benchmarks.size import sized
from benchmarks.swarm_scale import NoTools, peak_mb
from ccswarm.config.settings import EngineSettings, Settings
from ccswarm.engines.base import Limits
from ccswarm.models import CallOutcome, CallRequest, CallStatus, ToolInfo
from ccswarm.runs.app import new_run_id
from ccswarm.swarm.swarm import Swarm
from tests.ccswarm.support.model_servers import ModelServer, loops

AGENTS, TURNS, REQUESTS, MANY_TURNS = sized((20, 10, 200, 1000), (2, 2, 2, 4))
OUTPUT = "words of a terminal " * 100
KINDS = sized({"openai": "/v1", "anthropic": ""}, {"openai": "/v1"})
MEASURES = sized(True, False)
_results: dict[str, list[dict[str, Any]]] = {}
MOST_GROWTH_KB, MOST_MB = 8, 2.0
"""The limits of memory for each further turn, whose 2 kB of output are stored, and for each further agent."""
CALL = (
    "import asyncio, sys; from benchmarks import swarm_brains as b; asyncio.run(getattr(b, sys.argv[1])(*sys.argv[2:]))"
)


class OneTool(NoTools):
    """Tools that return 2 kB at once, and record the memory at each call."""

    def __init__(self, log: Path) -> None:
        super().__init__(log)
        self.mb: list[float] = []

    async def call(self, *_: Any, **__: Any) -> Any:
        async def send(_: CallRequest) -> CallOutcome:
            self.mb.append(resident_mb())
            return CallOutcome(CallStatus.OK, OUTPUT)

        return send

    async def tools(self, *_: Any, **__: Any) -> list[ToolInfo]:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
        return [ToolInfo("no", f"op{number}", "Does nothing.", schema) for number in range(8)]


def resident_mb() -> float:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def plan(agents: int, turns: int, kind: str, url: str) -> Settings:
    """Return a plan with one task for each agent, whose agent gives up after that many turns."""
    settings = {"model": f"{kind}:big", "base_url": url, "key": "KEY", "max_turns": turns, "context_chars": 40_000}
    names = [f"a{number}" for number in range(agents)]
    return Settings.model_validate(
        {
            "swarm": {"max_agents": agents, "strategy": "parallel", "topology": "mesh"},
            "agents": [{"name": name, "brain": "llm", "grants": ["*"], "settings": settings} for name in names],
            "tasks": [{"id": f"t{n}", "text": "Do nothing.", "agent": name} for n, name in enumerate(names)],
        }
    )


async def serve() -> None:
    """Run a provider whose models request the same call forever; it ends with its input."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, over.set)
    async with ModelServer(loops(("no.op1", {"n": 1}))) as server:
        print(server.url, flush=True)
        await over.wait()


async def swarm(directory: str, agents: str, turns: str, kind: str, url: str) -> None:
    """Run a worker with a run of so many agents, and print what it took after the libraries were loaded."""
    home = Path(directory)
    begun = time.perf_counter(), time.process_time(), resident_mb()
    await asyncio.to_thread(load_libraries, kind)
    print(json.dumps(since(*begun)), flush=True)
    engine = load("ccswarm.engines", "dbos").open(EngineSettings(poll_seconds=0.05), home)
    task_worker = OneTool(home / "log")
    made, stop = Swarm(engine, task_worker), asyncio.Event()
    await engine.open()
    worker = asyncio.create_task(engine.run_worker(f"w{os.getpid()}", stop, limits=Limits(per_agent=0)))
    run_id, begun = new_run_id(), (time.perf_counter(), time.process_time(), resident_mb())
    await made.submit(plan(int(agents), int(turns), kind, url), run_id, directory)
    done = await engine.wait(run_id)
    summaries = {task["summary"] for task in done.result["tasks"].values()}
    assert summaries == {f"not done within {turns} answers of the model"}, summaries
    print(json.dumps({**since(*begun), "peak": peak_mb(), "each": task_worker.mb}))
    stop.set()
    await worker
    await engine.close()


async def bare(requests: str, kind: str, url: str) -> None:
    """Send requests of the average size of an agent's, by pydantic-ai alone: one client for all of them, as many at
    once as there are agents."""
    from pydantic_ai.direct import model_request
    from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    api, provider, _ = load_libraries(kind).load(kind)
    model = api("big", provider=provider(base_url=url, api_key="key"))
    tools = [ToolDefinition(name=f"no__op{number}", description="Does nothing.") for number in range(8)]
    wanted = ModelRequestParameters(function_tools=tools)
    messages: list[Any] = [ModelRequest.user_text_prompt(OUTPUT)]
    for number in range(TURNS // 2):
        messages.append(ModelResponse([ToolCallPart("no__op1", {"n": 1}, f"c{number}")]))
        messages.append(ModelRequest([ToolReturnPart("no__op1", OUTPUT, f"c{number}")]))
    await model_request(model, messages, model_request_parameters=wanted)
    begun, left = (time.perf_counter(), time.process_time(), resident_mb()), iter(range(int(requests)))

    async def ask() -> None:
        for _ in left:
            await model_request(model, messages, model_request_parameters=wanted)

    await asyncio.gather(*(ask() for _ in range(AGENTS)))
    print(json.dumps(since(*begun)))


def load_libraries(kind: str) -> Any:
    """Load what the first question to a model needs."""
    from ccswarm.brains.llm import api as llm_api

    llm_api.load(kind)
    return llm_api


def since(wall: float, cpu: float, mb: float) -> dict[str, float]:
    """Return the seconds, processor seconds and megabytes since then."""
    return {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "mb": resident_mb() - mb}


def measure(what: str, *arguments: object) -> list[dict[str, Any]]:
    """Return what a process of its own prints for ``what``. If nothing is measured, one result stands for all, because
    loading takes long."""
    known = _results.get(what)
    if known is None or MEASURES:
        known = _results[what] = _run_process(what, arguments)
    return known


def _run_process(what: str, arguments: Sequence[object]) -> list[dict[str, Any]]:
    command = [sys.executable, "-c", CALL, what, *map(str, arguments)]
    return [json.loads(line) for line in output(command).splitlines()]


async def run(report: Report, directory: Path) -> None:
    """The provider is asked over loopback, without TLS, and has a processor time of its own."""
    report.title("Agents that think")
    await asyncio.to_thread(measure_all, report, directory)


def measure_all(report: Report, directory: Path) -> None:
    command = [sys.executable, "-c", CALL, "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        url = server.stdout.readline().strip()
        for kind, suffix in KINDS.items():
            rows(report, directory, kind, url + suffix)
        endurance(report, directory, url + KINDS["openai"])
        server.communicate("")


def rows(report: Report, directory: Path, kind: str, url: str) -> None:
    """Measure agents with one kind of model."""
    (floor,) = measure("bare", REQUESTS, kind, url)
    _, one = measure("swarm", fresh(directory), 1, TURNS, kind, url)
    loaded, many = measure("swarm", fresh(directory), AGENTS, TURNS, kind, url)
    turns = AGENTS * TURNS
    report.row(f"{kind}: libraries loaded", loaded["seconds"], "s", note=f"{loaded['mb']:.0f} MB, once in a worker")
    report.row(
        f"  {AGENTS} agents of {TURNS} turns at once",
        many["seconds"],
        "s",
        note=f"{turns / many['seconds']:.0f} turns/s",
    )
    each, bare_each = many["cpu"] / turns * 1e3, floor["cpu"] / REQUESTS * 1e3
    note = "(two thirds of it: six durable operations)"
    report.row("  processor of a turn: asked, called, recorded", each, "ms", floor=bare_each, note=note)
    report.row("  bare requests", REQUESTS / floor["seconds"], "/s")
    report.row("  processor of an agent", many["cpu"] / AGENTS, "s")
    report.row("  memory of each further agent", (many["peak"] - one["peak"]) / (AGENTS - 1), "MB", most=MOST_MB)
    report.row("  memory of the worker that does it all", many["peak"], "MB")


def endurance(report: Report, directory: Path, url: str) -> None:
    """Measure one agent for very long."""
    _, long = measure("swarm", fresh(directory), 1, MANY_TURNS, "openai", url)
    samples: Sequence[float] = long["each"]
    half, end = samples[len(samples) // 2], samples[-1]
    growth = (end - half) * 1024 / (len(samples) / 2)
    report.row(f"one agent of {MANY_TURNS} turns, each", long["seconds"] / MANY_TURNS * 1e3, "ms")
    note = f"{samples[0]:.0f}, {half:.0f}, {end:.0f} MB at the begin, in the middle, at the end"
    report.row("  memory it grows by with each", growth, "KB", most=MOST_GROWTH_KB, note=note)


def fresh(directory: Path) -> Path:
    """Return a new state directory."""
    workspace = directory / new_run_id()
    workspace.mkdir()
    return workspace
