"""An evaluation: every case is tried by every entrant, each in a repository and with sessions of its own. The agent
works in a run that does not know the gates. When that is over, its sessions are ended, so that nothing of it keeps
running; only then are the files of the gates written, and the orchestrator runs the gates in another run."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ccswarm.config.config import command_of
from ccswarm.config.settings import (
    AgentSettings,
    EngineSettings,
    Gate,
    McpSettings,
    PlanStep,
    ServerSettings,
    Settings,
    SwarmSettings,
    TaskSettings,
)
from ccswarm.errors import PlanInvalid, ServerUnavailable, WorkspaceUnusable
from ccswarm.evaluation.report import Result
from ccswarm.evaluation.suite import Case, Entrant, Suite
from ccswarm.evaluation.workdir import WorkDirectory
from ccswarm.models import Execution, RunStatus
from ccswarm.plan.check import plan_problems
from ccswarm.plan.origin import Origin
from ccswarm.runs.app import App, new_run_id, working
from ccswarm.toolbox.scope import ToolScope
from ccswarm.toolbox.terminals import Terminals, scope_for_ending

CHECKER = AgentSettings(name="checker", grants=("swarm.list_agents",))
"""The agent of the task with the gates. Its step changes nothing that they check."""

LOOKER = "looker"
POLL_SECONDS = 0.05
MOST_CALLS = 100
"""The number of calls after which a directory's server is restarted, so that no try is refused for the calls or
sessions of earlier ones: ai-session allows 120 new sessions in a minute."""

OWN_CALLS = 10
"""The approximate number of calls for gates and cleaning."""

SPARE_SECONDS = 60.0
"""A run is cancelled if it is not over this long after the time limit of its task."""

AI_SESSION = ServerSettings(name="ai-session", command="ai-session mcp-server --stdio", trusted=True)
"""The server that is used if none is configured."""

ALONE = "--no-daemon"
"""The option with which ai-session has sessions of its own, which end with it."""

Tell = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt of an entrant at a case."""

    case: Case
    entrant: Entrant
    attempt: int

    @property
    def facts(self) -> dict[str, Any]:
        """The try as a JSON object for events."""
        return {"case": self.case.id, "entrant": self.entrant.name, "attempt": self.attempt}


def settings_for(configured: Settings) -> Settings:
    """Return the configuration's servers, with state and engine of the evaluation's own. The shell's server is started
    once for each directory; if it is ai-session, it has sessions of its own, which end with it."""
    shell = configured.swarm.shell
    servers = configured.mcp.servers
    if not any(server.name == shell for server in servers):
        servers = (*servers, AI_SESSION.model_copy(update={"name": shell}))
    own = tuple(_with_own_sessions(server) if server.name == shell else server for server in servers)
    return Settings(
        mcp=McpSettings(servers=own),
        swarm=SwarmSettings(name="evaluation", shell=shell, topology="star"),
        engine=EngineSettings(poll_seconds=POLL_SECONDS),
    )


def _with_own_sessions(server: ServerSettings) -> ServerSettings:
    alone = (ALONE,) if command_of(server)[-2:] == ["mcp-server", "--stdio"] else ()
    return server.model_copy(update={"cwd": "", "args": (*server.args, *alone)})


class Evaluation:
    """An evaluation in ``root``, an empty directory for work directories, state and results. ``suite_directory``
    contains the fixtures. ``tell`` is called with case.started and case.ended and their facts; ``results`` grows as
    tries end."""

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        root: Path,
        suite_directory: Path,
        tell: Tell,
        *,
        keep: bool,
    ) -> None:
        self.results: list[Result] = []
        self._settings = settings
        self._environ = environ
        self._root = root
        self._suite_directory = suite_directory
        self._tell = tell
        self._keep = keep

    def _workdirs(self, count: int) -> list[WorkDirectory]:
        return [WorkDirectory(self._root / str(number), self._environ) for number in range(1, count + 1)]

    async def carry_out(self, tries: Sequence[Try], at_once: int) -> None:
        """Carry out all tries, ``at_once`` in parallel. Raises PlanInvalid for solutions that the servers' tools make
        impossible, ServerUnavailable and EngineUnavailable."""
        state = self._root / "state"
        state.mkdir(mode=0o700)
        workdirs = await asyncio.to_thread(self._workdirs, min(at_once, len(tries)))
        waiting = deque(tries)
        async with working(self._settings, state, self._environ) as app:
            await self._require_possible(app, tries, str(workdirs[0].directory))
            workers = [asyncio.create_task(self._work(app, workdir, waiting)) for workdir in workdirs]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)

    async def _require_possible(self, app: App, tries: Sequence[Try], directory: str) -> None:
        assert app.task_worker
        toolbox = app.task_worker.toolbox(ToolScope({LOOKER: AgentSettings(name=LOOKER, grants=("*",))}, directory))
        tools = {tool.full_name: tool for tool in await toolbox.discover_tools(LOOKER)}
        shell = self._settings.swarm.shell
        if problem := toolbox.problems().get(shell):
            raise ServerUnavailable(f"server {shell}: {problem}", suggestion="ccswarm doctor")
        problems = [
            f"case {one.case.id}: {problem}"
            for one in tries
            if one.attempt == 1
            for problem in plan_problems(self._plan(one), tools)
        ]
        if problems:
            raise PlanInvalid("; ".join(dict.fromkeys(problems)), suggestion="fix the suite")

    async def _work(self, app: App, workdir: WorkDirectory, waiting: deque[Try]) -> None:
        async with app.swarm.keep_servers(str(workdir.directory)):
            await self._carry_out_each(app, workdir, waiting)

    async def _carry_out_each(self, app: App, workdir: WorkDirectory, waiting: deque[Try]) -> None:
        assert app.task_worker
        directory, calls = str(workdir.directory), MOST_CALLS
        while waiting:
            if calls >= MOST_CALLS:
                await app.task_worker.release(directory)
                # This also starts the server, which takes longer than a case, so that no agent's time is spent on it.
                await self._end_sessions(app, directory)
                calls = 0
            one = waiting.popleft()
            self._tell("case.started", one.facts)
            result = await self._try(app, workdir, one)
            self.results.append(result)
            calls += result.calls + OWN_CALLS
            self._tell("case.ended", {**one.facts, "result": result})

    async def _try(self, app: App, workdir: WorkDirectory, one: Try) -> Result:
        facts: dict[str, Any] = {**one.facts, "expected": one.entrant.expected}
        try:
            await asyncio.to_thread(workdir.fill, one.case, self._suite_directory)
        except WorkspaceUnusable as error:
            return Result(**facts, passed=False, why=f"setup: {error.message}")
        directory = str(workdir.directory)
        if one.entrant.does != "nothing":
            facts |= _result_facts(
                await self._run(app, self._plan(one), directory, one.case.timeout_seconds), one.case.id
            )
            await self._end_sessions(app, directory)
        problem = await self._run_gates(app, workdir, one.case)
        if self._keep:
            facts["kept"] = str(self._root / "kept" / one.entrant.name / f"{one.case.id}-{one.attempt}")
            await asyncio.to_thread(workdir.keep, Path(facts["kept"]))
        await asyncio.to_thread(workdir.clear)
        return Result(**facts, passed=not problem, why=problem)

    async def _run_gates(self, app: App, workdir: WorkDirectory, case: Case) -> str:
        """Run the gates. Return ``""`` if all pass, else the message of the first that fails."""
        try:
            await asyncio.to_thread(workdir.put, case.gate_files)
        except (OSError, WorkspaceUnusable) as error:
            return f"the files of the gates cannot be written: {error}"
        directory, seconds = str(workdir.directory), case.gate_seconds * len(case.gates)
        task = _task(await self._run(app, self._gates(case), directory, seconds), case.id)
        await self._end_sessions(app, directory)
        return "" if task["status"] == RunStatus.SUCCEEDED else task["summary"] or "the gates were not run"

    def _plan(self, one: Try) -> Settings:
        agent = one.entrant.agent_for(one.case)
        task = TaskSettings(
            id=one.case.id,
            text=one.case.text,
            agent=agent.name,
            steps=one.entrant.steps_for(one.case, self._settings.swarm.shell),
            timeout_seconds=one.case.timeout_seconds,
        )
        tasks = (task,) if one.entrant.does != "nothing" else ()
        return self._settings.model_copy(update={"agents": (agent, *one.entrant.others), "tasks": tasks})

    def _gates(self, case: Case) -> Settings:
        gates = tuple(Gate(command=command, timeout_seconds=case.gate_seconds) for command in case.gates)
        look = PlanStep(id="look", tool="swarm.list_agents")
        task = TaskSettings(id=case.id, text="The gates.", agent=CHECKER.name, steps=(look,), gates=gates)
        return self._settings.model_copy(update={"agents": (CHECKER,), "tasks": (task,)})

    async def _run(self, app: App, plan: Settings, directory: str, seconds: float) -> Execution:
        run_id = new_run_id()
        await app.swarm.submit(plan, run_id, directory, origin=Origin.PERSON)
        try:
            async with asyncio.timeout(seconds + SPARE_SECONDS):
                return await app.engine.wait(run_id)
        except TimeoutError:
            await app.engine.cancel(run_id)
            return await app.engine.wait(run_id)

    async def _end_sessions(self, app: App, directory: str) -> None:
        """End all sessions of the directory's server with every process in them, or, if other programs use that server,
        those in the directory. If that fails, end the server."""
        assert app.task_worker
        shell = self._settings.swarm.shell
        exclusive = any(server.name == shell and ALONE in command_of(server) for server in self._settings.mcp.servers)
        call = await app.task_worker.call(scope_for_ending(shell, directory))
        if await Terminals(call, shell, directory=directory, any_owner=exclusive).end():
            await app.task_worker.release(directory)


def _result_facts(run: Execution, case: str) -> dict[str, Any]:
    """Return the result of the agent's run."""
    result: Mapping[str, Any] = run.result or {}
    usage: Mapping[str, Any] = result.get("usage") or {}
    task = _task(run, case)
    used = {name: usage.get(name, 0) for name in ("calls", "tokens", "dollars")}
    seconds = round(max(0.0, run.ended_at - run.created_at), 3)
    return {"status": str(task["status"]), "summary": task["summary"], **used, "seconds": seconds}


def _task(run: Execution, case: str) -> Mapping[str, Any]:
    if run.result:
        return run.result["tasks"][case]
    return {"status": run.status, "summary": run.error or f"the run was {run.status}"}


def tries_of(
    suite: Suite, entrants: Sequence[Entrant], repeat: int, only: Sequence[str] = ()
) -> tuple[list[Try], list[dict[str, str]]]:
    """Return the tries, and the case, entrant and reason of what is left out."""
    cases = [case for case in suite.cases if not only or case.id in only]
    left_out = [
        {"case": case.id, "entrant": entrant.name, "why": why}
        for case in cases
        for entrant in entrants
        if (why := entrant.cannot(case))
    ]
    tries = [
        Try(case, entrant, attempt)
        for attempt in range(1, repeat + 1)
        for case in cases
        for entrant in entrants
        if not entrant.cannot(case)
    ]
    return tries, left_out
