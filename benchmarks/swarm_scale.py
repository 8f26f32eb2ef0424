"""The swarm at scale: 10,000 tasks scheduled, 50 agents at once in one process, and how soon a killed run continues."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from agentwire.plugins import load
from benchmarks.children import outcome
from benchmarks.report import Report
from benchmarks.size import sized
from ccswarm.brains.base import WorkerContext
from ccswarm.clones.clones import Workspaces
from ccswarm.config.settings import AgentSettings, EngineSettings, Settings, TaskSettings
from ccswarm.engines.base import Limits
from ccswarm.models import CallOutcome, CallRequest, CallStatus, RunStatus, ToolInfo
from ccswarm.plan.topology import Links
from ccswarm.runs.app import new_run_id
from ccswarm.swarm.scheduler import Scheduler
from ccswarm.swarm.swarm import Swarm
from ccswarm.swarm.task import TaskWorker
from ccswarm.toolbox.claims import Claims
from ccswarm.toolbox.scope import ToolScope

TASKS, LAYER, AGENTS, STEPS = sized((10_000, 100, 50, 30), (20, 10, 2, 6))
MEASURES = sized(True, False)
MOST_MB, LOST_SECONDS = 250, sized(2.0, 0.5)
CHILD = "import asyncio, sys; from benchmarks.swarm_scale import child; asyncio.run(child(*sys.argv[1:]))"


class NoTools(TaskWorker):
    """Tools that do nothing; each call is a line of ``log``."""

    def __init__(self, log: Path) -> None:
        self.claims = Claims()
        self.worker_context = WorkerContext(lambda _: "key", {}, log.parent)
        self._log = log.open("a")

    async def call(self, scope: ToolScope) -> Any:
        async def send(request: CallRequest) -> CallOutcome:
            print(time.time(), request.key, file=self._log, flush=True)
            return CallOutcome(CallStatus.OK, structured={"exit_code": 0})

        return send

    async def tools(self, scope: ToolScope, agent: str) -> list[ToolInfo]:
        return []

    async def release(self, directory: str) -> None:
        """Do nothing."""

    def workspaces(self, repository: str) -> Workspaces:
        return Workspaces(Path(repository), Path(repository), {})


def plan(agents: int, steps: int) -> Settings:
    """Return a plan with one task for each agent."""
    names = [f"a{number}" for number in range(agents)]
    return Settings.model_validate(
        {
            "swarm": {"max_agents": agents, "strategy": "parallel", "topology": "mesh"},
            "agents": [{"name": name, "grants": ["*"]} for name in names],
            "tasks": [
                {"id": f"t{n}", "agent": name, "steps": [{"id": f"s{s}", "tool": "no.op"} for s in range(steps)]}
                for n, name in enumerate(names)
            ],
        }
    )


def peak_mb() -> float:
    """Return the peak memory of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


async def child(directory: str, run_id: str, agents: str, steps: str) -> None:
    """Run a worker that submits a run, unless it exists already, and print what the run took."""
    home = Path(directory)
    settings = EngineSettings(lost_after_seconds=LOST_SECONDS, heartbeat_seconds=0.5, poll_seconds=0.05)
    engine = load("ccswarm.engines", "dbos").open(settings, home)
    swarm, stop = Swarm(engine, NoTools(home / "log")), asyncio.Event()
    await engine.open()
    worker = asyncio.create_task(engine.run_worker(f"w{os.getpid()}", stop, limits=Limits(per_agent=0)))
    start = time.perf_counter()
    await swarm.submit(plan(int(agents), int(steps)), run_id, directory)
    done = await engine.wait(run_id)
    took = time.perf_counter() - start
    assert done.status is RunStatus.SUCCEEDED, done.error
    assert done.result["status"] == "succeeded", done.result
    print(json.dumps({"seconds": took, "mb": peak_mb()}))
    stop.set()
    await worker
    await engine.close()


def start_child(directory: Path, run_id: str, agents: int, steps: int) -> subprocess.Popen[str]:
    """Run ``child`` in a process of its own."""
    argv = [sys.executable, "-c", CHILD, str(directory), run_id, str(agents), str(steps)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


async def run(report: Report, directory: Path) -> None:
    """Measure; the killed run is killed after a third of its steps."""
    report.title("The swarm at size")
    team = [AgentSettings(name=f"a{number}") for number in range(AGENTS)]
    tasks = [TaskSettings(id=f"t{n}", needs=(f"t{n - LAYER}",) if n >= LAYER else ()) for n in range(TASKS)]
    start = time.perf_counter()
    scheduler = Scheduler(tasks, team, Links("mesh", team), "parallel", AGENTS)
    going: list[str] = []
    while not scheduler.done:
        going += [placed.task_id for placed in scheduler.start()]
        scheduler.ended(going.pop(0), RunStatus.SUCCEEDED)
    report.row(f"{TASKS} tasks scheduled, each", (time.perf_counter() - start) / TASKS * 1e3, "ms")

    run_id, log = new_run_id(), directory / "log"
    killed = start_child(directory, run_id, 1, STEPS)
    with open_when_there(log) as lines:
        seen = 0
        while seen < STEPS // 3:
            seen += bool(lines.readline())
    killed.kill()
    killed.communicate()
    made, at = log.read_text().splitlines(), time.time()
    facts = outcome(start_child(directory, run_id, 1, STEPS))
    all_made = log.read_text().splitlines()
    report.row("killed run: new process to its next step", float(all_made[len(made)].split()[0]) - at, "s")
    report.row(
        "  calls sent again, with the key they had", len(all_made) - len({line.split()[1] for line in all_made}), ""
    )

    if MEASURES:  # otherwise the result of the previous process stands for it
        facts = outcome(start_child(directory, new_run_id(), AGENTS, 3))
    found = json.loads(facts)
    report.row(f"{AGENTS} agents of 3 steps at once", found["seconds"], "s")
    report.row("  memory of the process that does it all", found["mb"], "MB", most=MOST_MB)


def open_when_there(path: Path) -> Any:
    """Open the file as soon as it exists."""
    while not path.exists():
        os.sched_yield()
    return path.open()
