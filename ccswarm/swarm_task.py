"""One task: a durable function in which one agent does it, where it works, what must hold afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

from ccswarm import plugins
from ccswarm.agent import Agent, Allowance, Call, Ending, Work, tell
from ccswarm.brains.base import Assignment, Brain, Means
from ccswarm.config_trust import Source
from ccswarm.crew import Crew
from ccswarm.engines.base import Flow
from ccswarm.errors import Conflict, PlanInvalid, WorkspaceUnusable
from ccswarm.gates import ORCHESTRATOR, Checked, Gates, orchestrator
from ccswarm.models import Json, RunStatus, ToolInfo, Usage
from ccswarm.origin import Author, Origin, gate_problems
from ccswarm.reviews import Review
from ccswarm.settings import AgentSettings, Budget, SwarmSettings, TaskSettings
from ccswarm.telemetry import Telemetry
from ccswarm.terminals import CLEANER, end_terminals, tools_for_ending
from ccswarm.workspaces import Clone, Workspaces


class Hands(Protocol):
    """What a worker process has to do the work with."""

    process: str
    means: Means

    async def call(
        self,
        agents: Mapping[str, AgentSettings],
        directory: str,
        crew: Crew | None = None,
        files: Sequence[str] = (),
    ) -> Call:
        """The way to the tools for agents that work in ``directory``, and for what those of ``crew`` have with each
        other, with the servers of ``files`` beside those of this process."""
        ...

    async def tools(
        self,
        agents: Mapping[str, AgentSettings],
        agent: str,
        directory: str,
        crew: Crew | None = None,
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


class TaskFlow:
    """Its agent's workspace, its brain's work, its gates and reviews, the way of its work back."""

    def __init__(
        self, flow: Flow, payload: Mapping[str, Any], hands: Hands, telemetry: Telemetry | None = None
    ) -> None:
        self._flow = flow
        self._telemetry = telemetry or Telemetry()
        self._payload = payload
        self._hands = hands
        self._task = TaskSettings.model_validate(payload["task"])
        self._swarm = SwarmSettings.model_validate(payload["swarm"])
        agents = [AgentSettings.model_validate(one) for one in payload["agents"]]
        self._crew = Crew(self._swarm, agents, payload.get("depth", 0))
        self._agent = self._crew.agents[payload["agent"]]
        self._gates_act_for = Author.of(payload).gates_act_for(self._agent.name)
        self._run_id: str = payload["run_id"]
        self._root: str = payload.get("root", self._run_id)
        self._files: tuple[str, ...] = tuple(payload.get("files", ()))
        self._unmerged: dict[str, Any] = {}

    async def carry_out(self) -> Json:
        if pause := self._payload["pause_seconds"]:
            await self._flow.sleep(pause)
        try:
            ending = await self._carry_out()
        except (PlanInvalid, WorkspaceUnusable) as error:
            ending = Ending(RunStatus.FAILED, f"{error.message}; {error.suggestion}")
        facts = {"status": ending.status, "summary": ending.summary, "result": ending.result, "scope": ending.scope}
        return {**facts, "usage": plain(ending.usage), **self._unmerged}

    async def _carry_out(self) -> Ending:
        """``unmerged`` is what another run could not merge: the work is done, and is not done again."""
        if left := self._payload.get("unmerged"):
            done = Ending(RunStatus.SUCCEEDED, left["summary"], left["result"])
            return await self._merge(_clone_of(left["clone"]), done)
        clone = await self._clone()
        directory = str(clone.directory) if clone else self._payload["workspace"]
        try:
            ending = await self._visits(directory)
            if clone and ending.status == RunStatus.SUCCEEDED and (left := await self._end_terminals(clone)):
                self._unmerged = _unmerged(clone, ending)
                ending = Ending(RunStatus.BLOCKED, left, ending.result, ending.usage)
        finally:
            if clone:
                await self._hands.release(directory)
        return await self._merge(clone, ending) if clone and ending.status == RunStatus.SUCCEEDED else ending

    async def _end_terminals(self, clone: Clone) -> str:
        """Nothing of the agent's changes its clone any more when its work is taken over; why that is not so."""

        async def ended(_: str) -> Json:
            cleaner = AgentSettings(name=CLEANER, grants=tools_for_ending(self._shell()))
            call = await self._hands.call({CLEANER: cleaner}, str(clone.directory), None, self._files)
            run_id, task_id = self._root, self._flow.id
            problem = await end_terminals(call, self._shell(), clone.path, run_id=run_id, task_id=task_id)
            return {"problem": problem}

        return (await self._flow.step("end terminals", ended))["problem"]

    async def _visits(self, directory: str) -> Ending:
        """The agent's work, given back to it as often as the task allows when a gate or a review does not hold."""
        brain: Brain = plugins.load("brains", self._agent.brain)
        priced = any("dollars" in one.caps for one in self._allowances(self._agent.name))
        if wrong := brain.problems(self._agent, self._hands.means.secret, priced=priced):
            raise PlanInvalid("; ".join(wrong), suggestion="mend it, or give the agent another brain")
        self._require_gates()
        # Apart from the agents, so that none of them can have what the orchestrator is granted.
        gates = () if self._gates_act_for else self._task.gates
        hosts = {ORCHESTRATOR: orchestrator(self._swarm.shell, gates, self._shell())}
        host = await self._hands.call(hosts, directory, None, self._files)
        work = await self._work(directory, host)
        tools = await self._tools(directory) if brain.wants_tools else []
        feedback, usage, thinking, ending = "", Usage(), None, Ending(RunStatus.FAILED)
        for visit in range(1, self._task.visits + 1):
            thinking = brain.begin(self._assignment(tools, directory, feedback, visit), self._hands.means, thinking)
            ending = await Agent(self._flow, work).run(thinking)
            ending.usage = usage = usage + ending.usage
            if ending.status != RunStatus.SUCCEEDED:
                return ending
            checked = await self._checked(work, directory, visit)
            ending.usage = usage = usage + checked.usage
            if checked.ending:
                return replace(checked.ending, result=ending.result, usage=usage)
            feedback = checked.problem
            if not feedback and self._task.review.by:
                review = Review(self._flow, {**self._payload, "above": self._of_task()}, directory, visit)
                feedback = await review.held(ending)
                ending.usage = usage = usage + review.usage
            if not feedback:
                return ending
        return Ending(RunStatus.FAILED, feedback, ending.result, usage)

    def _require_gates(self) -> None:
        """Raises PlanInvalid for gates that may not be run, before anything is done."""
        agent = self._crew.agents.get(self._gates_act_for)
        if wrong := list(gate_problems(self._task.gates, [agent], self._swarm.shell)) if agent else []:
            raise PlanInvalid("; ".join(wrong), suggestion="leave the gates out")

    async def _checked(self, work: Work, directory: str, visit: int) -> Checked:
        if not self._task.gates:
            return Checked()
        gates = Gates(self._flow, work, self._swarm.shell, directory, visit, self._gates_act_for)
        checked = await gates.check(self._task.gates)
        if not checked.ending:
            await tell(self._flow, "gate.failed" if checked.problem else "gates.held", said=checked.problem)
        return checked

    async def _work(self, directory: str, host: Call) -> Work:
        call = await self._hands.call(self._crew.agents, directory, self._crew, self._files)
        return Work(
            self._root, self._flow.id, self._agent.name, call, self._task.timeout_seconds, self._hands.process,
            self._allowances, self._payload["attempt"], host, self._delegated, self._telemetry,
        )  # fmt: skip

    def _delegated(self, agent: str, tasks: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """What the run of the tasks that ``agent`` hands on is started with. Raises PlanInvalid, BudgetExhausted."""
        plan = self._crew.delegated(agent, tasks)
        shown = {
            "swarm": self._payload["swarm"],
            "agents": self._payload["agents"],
            "tasks": [task.model_dump(mode="json", exclude_defaults=True) for task in plan.tasks],
        }
        given = {name: self._payload[name] for name in ("workspace", "files") if name in self._payload}
        helpers, depth = [helper.name for helper in plan.agents], self._crew.depth + 1
        above = [[scope, caps] for scope, caps in self._of_task()]
        author = Author(Origin.AGENT, agent).to_json()
        made = {"plan": shown, "root": self._root, "depth": depth, "helpers": helpers, "above": above}
        return {**given, **made, "author": author}

    def _assignment(self, tools: list[ToolInfo], directory: str, feedback: str, visit: int) -> Assignment:
        task = self._task.model_dump(mode="json", exclude_defaults=True)
        return Assignment(
            self._root,
            self._task.id,
            self._agent.name,
            task,
            self._payload["inputs"],
            tools,
            {**self._agent.settings, "prompt": self._agent.prompt, "visit": visit, "attempt": self._payload["attempt"]},
            feedback,
            directory,
            self._shell(),
            self._agent.type,
        )

    def _shell(self) -> str:
        """The server of the terminals that the agent's brain itself may need."""
        return str(self._agent.settings.get("shell") or self._swarm.shell)

    def _allowances(self, name: str) -> list[Allowance]:
        agent = self._crew.agents.get(name)
        scopes = (
            ("run", self._root, _caps(self._swarm.budget)),
            ("agent", f"{self._root}/{name}", _caps(agent.budget if agent else Budget())),
            *(("task", scope, caps) for scope, caps in self._of_task()),
        )
        return [Allowance(kind, scope, caps) for kind, scope, caps in scopes if caps]

    def _of_task(self) -> list[tuple[str, dict[str, float]]]:
        """The budget of the task, and of those whose work was handed on to it: by scope, what may be used."""
        above = [(str(scope), dict(caps)) for scope, caps in self._payload.get("above", ())]
        own = _caps(self._task.budget)
        return [*above, *([(f"{self._run_id}.{self._task.id}", own)] if own else [])]

    async def _tools(self, directory: str) -> list[ToolInfo]:
        async def listed(_: str) -> Json:
            agents, name = self._crew.agents, self._agent.name
            return [asdict(tool) for tool in await self._hands.tools(agents, name, directory, self._crew, self._files)]

        return [ToolInfo(**facts) for facts in await self._flow.step("tools", listed)]

    def _place(self) -> str:
        """What a run's clones are kept under: an agent may be at work in a run and in what was handed on in it."""
        if self._run_id == self._root:
            return self._root
        return f"{self._root}-{hashlib.sha256(self._run_id.encode()).hexdigest()[:12]}"

    async def _clone(self) -> Clone | None:
        if self._agent.workspace != "clone":
            return None
        workspaces = self._hands.workspaces(self._payload["workspace"])

        async def made(_: str) -> Json:
            clone = await workspaces.clone(self._place(), self._agent.name)
            return _facts_of(clone)

        return _clone_of(await self._flow.step("clone", made))

    async def _merge(self, clone: Clone, ending: Ending) -> Ending:
        workspaces = self._hands.workspaces(self._payload["workspace"])

        async def merged(_: str) -> Json:
            try:
                title = f"{self._task.id}: {self._task.text or self._agent.name}"[:200]
                done = await workspaces.merge(clone, title, [str(Source.parse(file).path) for file in self._files])
            except Conflict as conflict:
                return {"conflict": f"{conflict.message}; {conflict.suggestion}"}
            return {"commits": done.commits, "head": done.head}

        facts = await self._flow.step("merge", merged)
        await tell(self._flow, "merge", ref=clone.ref, **facts)
        if why := facts.get("conflict"):
            self._unmerged = _unmerged(clone, ending)
            return Ending(RunStatus.BLOCKED, why, ending.result, ending.usage)
        return ending


def _facts_of(clone: Clone) -> dict[str, Json]:
    return {**asdict(clone), "path": str(clone.path)}


def _clone_of(facts: Mapping[str, str]) -> Clone:
    return Clone(Path(facts["path"]), facts["branch"], facts["ref"], facts["base"], facts.get("prefix", ""))


def _unmerged(clone: Clone, ending: Ending) -> dict[str, Json]:
    """What another run needs to merge what is done."""
    return {"unmerged": {"clone": _facts_of(clone), "summary": ending.summary}}


def _caps(budget: Budget) -> dict[str, float]:
    return {
        name: value
        for name, value in (("calls", budget.calls), ("tokens", budget.tokens), ("dollars", budget.dollars))
        if value
    }


def plain(usage: Usage) -> dict[str, Any]:
    """As JSON."""
    return asdict(usage)
