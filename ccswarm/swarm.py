"""The swarm: durable functions for a run (tasks by their needs) and for a task (one agent's work and its gates)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from ccswarm import plugins
from ccswarm.agent import STOP, Agent, Allowance, Call, Ending, Work, tell
from ccswarm.brains.base import Assignment, Brain
from ccswarm.engines.base import RUNS, Engine, Flow, Outcome
from ccswarm.errors import Conflict, PlanInvalid, RunNotFound, UsageInvalid, WorkspaceUnusable
from ccswarm.gates import ORCHESTRATOR, Gates, orchestrator
from ccswarm.models import Json, RunStatus, ToolInfo, Usage
from ccswarm.scheduler import Placed, Scheduler
from ccswarm.settings import AgentSettings, Budget, Settings, SwarmSettings, TaskSettings
from ccswarm.topology import Links
from ccswarm.workspaces import Clone, Workspaces

RUN, TASK = "run", "task"
FOREVER_SECONDS = 365 * 86400.0
log = logging.getLogger(__name__)


class Hands(Protocol):
    """What a worker process has to do the work with."""

    process: str

    async def call(
        self,
        agents: Mapping[str, AgentSettings],
        directory: str,
        links: Links | None = None,
        files: Sequence[str] = (),
    ) -> Call:
        """The way to the tools for agents that work in ``directory``, and write to each other as ``links`` says,
        with the servers of ``files`` beside those of this process."""
        ...

    async def tools(
        self,
        agents: Mapping[str, AgentSettings],
        agent: str,
        directory: str,
        links: Links | None = None,
        files: Sequence[str] = (),
    ) -> list[ToolInfo]:
        """What an agent is granted."""
        ...

    async def release(self, directory: str) -> None:
        """Nobody works in ``directory`` any more."""
        ...

    def workspaces(self, repository: str) -> Workspaces:
        """The clones of the repository a run works on."""
        ...


def payload_of(plan: Settings, run_id: str, workspace: str, files: Sequence[str] = ()) -> dict[str, Any]:
    """What a run is submitted with. Servers are not in it, for their variables may be secrets: a worker has its own,
    and those of ``files``, where the plan came from."""
    shown = plan.model_dump(mode="json", exclude_defaults=True, exclude={"mcp", "engine"})
    return {"run_id": run_id, "workspace": workspace, "plan": shown, "files": list(files)}


class Swarm:
    """Defines ``run`` and ``task`` on an engine. Made once in every process that executes or submits."""

    def __init__(self, engine: Engine, hands: Hands | None = None) -> None:
        self.engine = engine
        self._hands = hands
        engine.define(RUN, self._run, queue=RUNS)
        engine.define(TASK, self._task)

    async def submit(self, plan: Settings, run_id: str, workspace: str, files: Sequence[str] = ()) -> None:
        """Queue a run; ``files`` are the configuration and the plan it was read from. Raises PlanInvalid where it has
        no task, ConfigInvalid where it has no agent."""
        if not plan.tasks:
            raise PlanInvalid("the plan has no tasks", suggestion="add [[tasks]] with steps, or [[steps]]")
        Links(plan.swarm.topology, plan.agents)
        await self.engine.submit(RUN, run_id, payload_of(plan, run_id, workspace, files))

    async def again(self, run_id: str, new_id: str, plan: Settings | None = None) -> None:
        """Queue a new run of what did not succeed in one that is over, with the results of what did; ``plan`` instead
        of the one it had. Raises RunNotFound, UsageInvalid where it is not over or all of it succeeded."""
        found = await self.engine.status(run_id)
        result: dict[str, Any] | None = found.result
        if not found.status.over or not result:
            raise UsageInvalid(f"{run_id} is not over", suggestion=f"ccswarm resume {run_id}")
        if result["status"] == RunStatus.SUCCEEDED:
            raise UsageInvalid(f"{run_id} succeeded: there is nothing left of it", suggestion="ccswarm run")
        done = {name: one for name, one in result["tasks"].items() if one["status"] == RunStatus.SUCCEEDED}
        payload = {**found.payload, "run_id": new_id, "continues": run_id, "done": done}
        if plan:
            payload |= {"plan": payload_of(plan, new_id, "")["plan"]}
        await self.engine.submit(RUN, new_id, payload)

    async def answer(self, number: str, *, approved: bool, by: str, reason: str = "") -> dict[str, Any]:
        """A person's word on what ``approvals`` shows; what was asked. Raises RunNotFound where nothing waits."""
        for question in await self.approvals():
            if question["id"] == number:
                word = {"approved": approved, "by": by, "reason": reason}
                await self.engine.send(question["task_id"], f"approval:{number}", word, key=number)
                return question
        raise RunNotFound(f"nothing waits for approval {number!r}", suggestion="ccswarm approvals")

    async def approvals(self) -> list[dict[str, Any]]:
        """What waits for a person: id, task_id, agent, tool, arguments."""
        found: list[dict[str, Any]] = []
        for task in await self.engine.list(kind=TASK, limit=10_000):
            if not task.status.over and task.shown:
                found += [{**one, "task_id": task.id} for one in task.shown.get("approvals", ())]
        return found

    async def _run(self, flow: Flow, payload: Json) -> Json:
        return await _logged(flow.id, _Run(flow, payload).carry_out())

    async def _task(self, flow: Flow, payload: Json) -> Json:
        assert self._hands, "this process only submits"
        return await _logged(flow.id, _Task(flow, payload, self._hands).carry_out())


async def _logged(execution_id: str, work: Coroutine[Any, Any, Json]) -> Json:
    """Tells, at level INFO, what this process executes: id, status, summary."""
    log.info("%s: %s %s", execution_id, RunStatus.RUNNING.value, "")
    result = await work
    log.info("%s: %s %s", execution_id, str(result["status"]), result.get("summary", ""))
    return result


class _Run:
    """One run: what starts when, tries again what failed, and what it all came to."""

    def __init__(self, flow: Flow, payload: Mapping[str, Any]) -> None:
        self._flow = flow
        self._payload = payload
        self._plan = plan = Settings.model_validate(payload["plan"])
        links = Links(plan.swarm.topology, plan.agents)
        crew = plan.agents[: plan.swarm.max_agents]
        self._scheduler = Scheduler(plan.tasks, crew, links, plan.swarm.strategy, plan.swarm.max_agents)
        self._tasks = {task.id: task for task in plan.tasks}
        self._tries: dict[str, int] = {}
        self._results: dict[str, dict[str, Any]] = {}
        self._numbers: dict[str, str] = {}
        self._going: dict[asyncio.Task[Any], Placed] = {}
        self._usage = Usage()
        self._stopping = ""
        for name, facts in payload.get("done", {}).items():
            if name in self._tasks:
                self._scheduler.assume(name, facts["agent"])
                self._results[name] = dict(facts)
                self._tries[name] = facts["attempts"]

    async def carry_out(self) -> Json:
        seconds = self._plan.swarm.budget.seconds
        facts: dict[str, Any] = {"tasks": list(self._tasks), "agents": len(self._plan.agents)}
        if before := self._payload.get("continues"):
            facts |= {"continues": before, "done": list(self._results)}
        await tell(self._flow, "run.started", **facts)
        stop = asyncio.create_task(self._flow.receive(STOP, seconds or FOREVER_SECONDS))
        try:
            while True:
                for placed in () if self._stopping else self._scheduler.start():
                    await self._start(placed)
                await self._flow.publish(self._shown())
                if not self._going:
                    break
                done = await self._flow.first([*([] if self._stopping else [stop]), *self._going])
                if stop in done:
                    await self._stop(f"the seconds of the run ({seconds:g}) are used up")
                for task in [task for task in self._going if task in done]:
                    await self._ended(self._going.pop(task), task.result())
        finally:
            for task in (stop, *self._going):
                task.cancel()
            await asyncio.gather(stop, *self._going, return_exceptions=True)
        status = self._status()
        await tell(self._flow, "run.ended", status=status, counts=dict(self._scheduler.counts()))
        return {"status": status, "tasks": self._table(), "usage": plain(self._usage)}

    async def _start(self, placed: Placed, pause_seconds: float = 0.0) -> None:
        task = self._tasks[placed.task_id]
        tried = self._tries[task.id] = self._tries.get(task.id, 0) + 1
        number = f"{self._flow.id}.{task.id}" + (f"~{tried}" if tried > 1 else "")
        given = {
            "run_id": self._flow.id,
            "task": task.model_dump(mode="json", exclude_defaults=True),
            "agent": placed.agent,
            "agents": [agent.model_dump(mode="json", exclude_defaults=True) for agent in self._plan.agents],
            "swarm": self._plan.swarm.model_dump(mode="json", exclude_defaults=True),
            "inputs": {need: self._results[need]["result"] for need in task.needs},
            "workspace": self._payload["workspace"],
            "files": self._payload.get("files", ()),
            "attempt": tried,
            "pause_seconds": pause_seconds,
        }
        await self._flow.start(TASK, number, given, agent=placed.agent, priority=task.priority)
        self._numbers[task.id] = number
        facts = {"task": task.id, "agent": placed.agent, "attempt": tried, "execution": number}
        await tell(self._flow, "task.started", **facts)
        self._going[asyncio.create_task(self._over(number))] = placed

    async def _over(self, number: str) -> Outcome:
        return await self._flow.outcome(number)

    async def _stop(self, why: str) -> None:
        """Nothing starts any more, and what goes on is told to end; what was done by then is kept."""
        self._stopping = why
        for placed in self._going.values():
            await self._flow.send(self._numbers[placed.task_id], STOP, why)

    async def _ended(self, placed: Placed, outcome: Outcome) -> None:
        task = self._tasks[placed.task_id]
        facts: dict[str, Any] = {"status": RunStatus.FAILED, "summary": outcome.error, "result": None, "usage": {}}
        if outcome.status is RunStatus.SUCCEEDED:
            facts = dict(outcome.result)
        elif outcome.status is RunStatus.CANCELLED:
            facts |= {"status": RunStatus.CANCELLED, "summary": "cancelled"}
        self._usage += Usage(**facts["usage"])
        status, tried = RunStatus(facts["status"]), self._tries[task.id]
        again = status is RunStatus.FAILED and tried <= task.retry.times and not self._stopping
        shown = {"task": task.id, "agent": placed.agent, "attempt": tried, "summary": facts["summary"]}
        await tell(self._flow, "task.ended", **shown, status=status, again=again)
        if again:
            await self._start(placed, task.retry.seconds * task.retry.factor ** (tried - 1))
            return
        self._results[task.id] = facts
        self._scheduler.ended(task.id, status)
        if status is RunStatus.EXHAUSTED and facts.get("scope") == "run" and not self._stopping:
            await self._stop("a budget of the run is used up")

    def _status(self) -> RunStatus:
        """The worst that befell a task; a run that was stopped is over its budget."""
        found = set(self._scheduler.statuses.values())
        worst = (RunStatus.EXHAUSTED, RunStatus.BLOCKED, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.SKIPPED)
        if self._stopping:
            return RunStatus.EXHAUSTED
        status = next((status for status in worst if status in found), RunStatus.SUCCEEDED)
        return RunStatus.FAILED if status is RunStatus.SKIPPED else status

    def _table(self) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for name, status in self._scheduler.statuses.items():
            facts = self._results.get(name, {"summary": self._scheduler.reasons.get(name, ""), "result": None})
            agent, tries = self._scheduler.agents.get(name, ""), self._tries.get(name, 0)
            table[name] = {**facts, "status": status, "agent": agent, "attempts": tries}
        return table

    def _shown(self) -> dict[str, Any]:
        going = [{"task": placed.task_id, "agent": placed.agent} for placed in self._going.values()]
        return {"counts": dict(self._scheduler.counts()), "going": going}


class _Task:
    """One task: its agent's workspace, its brain's work, its gates, the way of its work back."""

    def __init__(self, flow: Flow, payload: Mapping[str, Any], hands: Hands) -> None:
        self._flow = flow
        self._payload = payload
        self._hands = hands
        self._task = TaskSettings.model_validate(payload["task"])
        self._swarm = SwarmSettings.model_validate(payload["swarm"])
        agents = [AgentSettings.model_validate(one) for one in payload["agents"]]
        self._links = Links(self._swarm.topology, agents)
        self._agents = {agent.name: agent for agent in agents}
        self._agent = self._agents[payload["agent"]]
        self._run_id: str = payload["run_id"]
        self._files: tuple[str, ...] = tuple(payload.get("files", ()))

    async def carry_out(self) -> Json:
        if pause := self._payload["pause_seconds"]:
            await self._flow.sleep(pause)
        try:
            clone = await self._clone()
            directory = str(clone.path) if clone else self._payload["workspace"]
            try:
                ending = await self._visits(directory)
            finally:
                if clone:
                    await self._hands.release(directory)
            if clone and ending.status == RunStatus.SUCCEEDED:
                ending = await self._merge(clone, ending)
        except (PlanInvalid, WorkspaceUnusable) as error:
            ending = Ending(RunStatus.FAILED, f"{error.message}; {error.suggestion}")
        facts = {"status": ending.status, "summary": ending.summary, "result": ending.result, "scope": ending.scope}
        return {**facts, "usage": plain(ending.usage)}

    async def _visits(self, directory: str) -> Ending:
        """The agent's work, given back to it as often as the task allows when a gate does not hold."""
        brain: Brain = plugins.load("brains", self._agent.brain)
        work = await self._work(self._agents, directory)
        # Apart from the agents, so that none of them can have what the orchestrator is granted.
        checks = await self._work({ORCHESTRATOR: orchestrator(self._swarm.shell, self._task.gates)}, directory)
        tools = await self._tools(directory) if brain.wants_tools else []
        feedback, usage, ending = "", Usage(), Ending(RunStatus.FAILED)
        for visit in range(1, self._task.visits + 1):
            thinking = brain.begin(self._assignment(tools, directory, feedback, visit))
            ending = await Agent(self._flow, work).run(thinking)
            ending.usage = usage = usage + ending.usage
            if ending.status != RunStatus.SUCCEEDED or not self._task.gates:
                return ending
            gates = Gates(self._flow, checks, self._swarm.shell, directory, visit)
            feedback = await gates.check(self._task.gates)
            await tell(self._flow, "gates.held" if not feedback else "gate.failed", said=feedback)
            if not feedback:
                return ending
        return Ending(RunStatus.FAILED, feedback, ending.result, usage)

    async def _work(self, agents: Mapping[str, AgentSettings], directory: str) -> Work:
        call = await self._hands.call(agents, directory, self._links, self._files)
        return Work(
            self._run_id, self._flow.id, self._agent.name, call, self._task.timeout_seconds, self._hands.process,
            self._allowances, self._payload["attempt"],
        )  # fmt: skip

    def _assignment(self, tools: list[ToolInfo], directory: str, feedback: str, visit: int) -> Assignment:
        task = self._task.model_dump(mode="json", exclude_defaults=True)
        return Assignment(
            self._run_id,
            self._task.id,
            self._agent.name,
            task,
            self._payload["inputs"],
            tools,
            {**self._agent.settings, "prompt": self._agent.prompt, "visit": visit, "attempt": self._payload["attempt"]},
            feedback,
            directory,
        )

    def _allowances(self, name: str) -> list[Allowance]:
        budget = self._agents[name].budget if name in self._agents else Budget()
        scopes = (
            ("run", self._run_id, self._swarm.budget),
            ("agent", f"{self._run_id}/{name}", budget),
            ("task", f"{self._run_id}.{self._task.id}", self._task.budget),
        )
        return [Allowance(kind, scope, caps) for kind, scope, budget in scopes if (caps := _caps(budget))]

    async def _tools(self, directory: str) -> list[ToolInfo]:
        async def listed(_: str) -> Json:
            return [
                asdict(tool)
                for tool in await self._hands.tools(self._agents, self._agent.name, directory, self._links, self._files)
            ]

        return [ToolInfo(**facts) for facts in await self._flow.step("tools", listed)]

    async def _clone(self) -> Clone | None:
        if self._agent.workspace != "clone":
            return None
        workspaces = self._hands.workspaces(self._payload["workspace"])

        async def made(_: str) -> Json:
            clone = await workspaces.clone(self._run_id, self._agent.name)
            return {**asdict(clone), "path": str(clone.path)}

        facts = await self._flow.step("clone", made)
        return Clone(Path(facts["path"]), facts["branch"], facts["ref"], facts["base"])

    async def _merge(self, clone: Clone, ending: Ending) -> Ending:
        workspaces = self._hands.workspaces(self._payload["workspace"])

        async def merged(_: str) -> Json:
            try:
                done = await workspaces.merge(clone, f"{self._task.id}: {self._task.text or self._agent.name}"[:200])
            except Conflict as conflict:
                return {"conflict": f"{conflict.message}; {conflict.suggestion}"}
            return {"commits": done.commits, "head": done.head}

        facts = await self._flow.step("merge", merged)
        await tell(self._flow, "merge", ref=clone.ref, **facts)
        if why := facts.get("conflict"):
            return Ending(RunStatus.BLOCKED, why, ending.result, ending.usage)
        return ending


def _caps(budget: Budget) -> dict[str, float]:
    return {
        name: value
        for name, value in (("calls", budget.calls), ("tokens", budget.tokens), ("dollars", budget.dollars))
        if value
    }


def plain(usage: Usage) -> dict[str, Any]:
    """As JSON."""
    return asdict(usage)
