"""One task: a durable function in which an agent does it, and its work is checked and delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Protocol

from ccswarm.brains.base import Assignment, Brain, SupportsSettled, WorkerContext
from ccswarm.clones.clones import Clone, Workspaces
from ccswarm.clones.collect import runs_directory
from ccswarm.config import starters
from ccswarm.config.settings import AgentSettings, Budget, SwarmSettings, TaskSettings
from ccswarm.engines.base import Flow
from ccswarm.errors import Conflict, PlanInvalid, WorkspaceUnusable
from ccswarm.models import Json, RunStatus, ToolInfo, Usage
from ccswarm.plan.origin import Author, Origin, gate_problems
from ccswarm.plan.team import Team
from ccswarm.swarm.agent import STEPS, Agent, Allowance, Call, Ending, Remembered, Work, emit_event, nothing_remembered
from ccswarm.swarm.delivery import Delivery, Judged
from ccswarm.swarm.gates import ORCHESTRATOR, Checked, Gates, orchestrator
from ccswarm.swarm.reviews import Review
from ccswarm.swarm.task_terminals import TaskTerminals
from ccswarm.swarm.time_budgets import TimeBudgets, time_budgets
from ccswarm.swarm.tree import Tree, blocked, clone_from_json, clone_to_json, first_tree, shown_tree
from ccswarm.toolbox.claims import Claims
from ccswarm.toolbox.scope import ToolScope
from ccswarm.toolbox.telemetry.base import Telemetry


class TaskWorker(Protocol):
    """What a worker process provides for tasks."""

    claims: Claims
    worker_context: WorkerContext

    async def call(self, scope: ToolScope) -> Call:
        """Return the function that makes calls within the scope."""
        ...

    async def tools(self, scope: ToolScope, agent: str) -> list[ToolInfo]:
        """Return the tools that an agent is granted."""
        ...

    async def release(self, directory: str) -> None:
        """End what was started for ``directory``, which is no longer used."""
        ...

    def workspaces(self, repository: str) -> Workspaces:
        """Return the clones of the repository that a run works on."""
        ...


class TaskFlow:
    """A task: its agent's workspace, the work of its brain, gates and reviews, and the delivery of the work."""

    def __init__(
        self,
        flow: Flow,
        payload: Mapping[str, Any],
        task_worker: TaskWorker,
        telemetry: Telemetry | None = None,
        remembered: Remembered = nothing_remembered,
    ) -> None:
        self._flow = flow
        self._remembered = remembered
        self._telemetry = telemetry or Telemetry()
        self._payload = payload
        self._task_worker = task_worker
        self._task = TaskSettings.model_validate(payload["task"])
        self._swarm = SwarmSettings.model_validate(payload["swarm"])
        agents = [AgentSettings.model_validate(one) for one in payload["agents"]]
        self._team = Team(self._swarm, agents, payload.get("depth", 0))
        self._agent = self._team.agents[payload["agent"]]
        self._gates_act_for = Author.of(payload).gates_act_for(self._agent.name)
        self._run_id: str = payload["run_id"]
        self._root: str = payload.get("root", self._run_id)
        self._files: tuple[str, ...] = tuple(payload.get("files", ()))
        self._facts: dict[str, Any] = {}
        """Further facts for the result: those of ``Delivery.facts``."""
        self._most_rounds = 1
        self._first = False
        self._not_run: dict[str, None] = {}
        self._terminals = TaskTerminals(
            flow,
            task_worker.call,
            self._root,
            payload["workspace"],
            self._files,
            shell=self._shell(),
            keep_failed=self._agent.keep == "failed",
        )
        own = ("task", f"{self._run_id}.{self._task.id}", self._task.budget)
        scope = f"{self._root}/{self._agent.name}"
        parts = self._agent.workspace == "clone" or self._task.gates or self._task.review.by
        budgets = time_budgets(own, ("agent", scope, self._agent.budget))
        self._time = TimeBudgets(flow, budgets, self._task.timeout_seconds if parts else 0.0)

    async def carry_out(self) -> Json:
        if pause := self._payload["pause_seconds"]:
            await self._flow.sleep(pause)
        try:
            ending = await self._attempt()
        except (PlanInvalid, WorkspaceUnusable) as error:
            ending = Ending(RunStatus.FAILED, f"{error.message}; {error.suggestion}")
        except Conflict as error:
            ending = Ending(RunStatus.BLOCKED, f"{error.message}; {error.suggestion}")
        if await self._terminals.shut(ending.status):
            await self._release_clone()
        facts = {"status": ending.status, "summary": ending.summary, "result": ending.result, "scope": ending.scope}
        not_run = list(dict.fromkeys((*self._not_run, *self._facts.get("not_run", ()))))
        return {**facts, "usage": plain(ending.usage), **self._facts, **({"not_run": not_run} if not_run else {})}

    async def _attempt(self) -> Ending:
        await self._time.left()
        if left := self._payload.get("unmerged"):
            return await self._deliver_unmerged(left)
        if not (tree := await self._tree()):
            done = await self._rounds(self._payload["workspace"], None)
            await self._time.left()
            return done.ending.with_remark(await self._terminals.close(done.ending.status))
        self._terminals.directory = tree.directory
        try:
            try:
                done = await self._rounds(tree.directory, tree)
            except PlanInvalid as error:
                done = Judged(Ending(RunStatus.FAILED, f"{error.message}; {error.suggestion}"))
            if self._payload.get("shown"):
                await self._time.left()
                await tree.discard()
                ending = done.ending
            else:
                ending = await self._deliver_or_keep(tree, done)  # this has ended the terminals, unless they are kept
                if self._terminals.keeps(ending.status):
                    ending = ending.with_remark(await self._terminals.close(ending.status))
        except asyncio.CancelledError:
            raise  # a program that is asked to end still needs the tools
        except BaseException:
            await self._task_worker.release(tree.directory)
            raise
        await self._task_worker.release(tree.directory)
        return ending

    async def _deliver_unmerged(self, left: Mapping[str, Any]) -> Ending:
        """Deliver what another run could not deliver; the work is not done again."""
        tree = self._tree_in(clone_from_json(left["clone"]))
        done = Judged(
            Ending(RunStatus.SUCCEEDED, left["summary"], left["result"]),
            str(left.get("commit") or ""),
            agreed=left.get("agreed") is True,
        )
        try:
            self._require_gates()
            if not done.commit:
                done = await self._judge(tree.directory, tree, done.ending, 1)
            return await self._deliver_or_keep(tree, await self._ask_to_merge(tree, done, 1))
        finally:
            await self._task_worker.release(tree.directory)

    async def _deliver_or_keep(self, tree: Tree, done: Judged) -> Ending:
        """Deliver accepted work; keep other work apart, and say where."""
        if done.ending.status == RunStatus.SUCCEEDED and not done.feedback:
            delivery = self._delivery(tree)
            done = await delivery.deliver(done)
            self._facts |= delivery.facts
            if done.ending.status == RunStatus.SUCCEEDED:
                return done.ending
        ending = done.ending
        if done.feedback:
            ending = Ending(RunStatus.FAILED, done.feedback, ending.result, ending.usage)
        if "unmerged" in self._facts:
            return ending
        if self._terminals.keeps(ending.status):
            return ending.with_remark(f"its work is in {tree.clone.path}")
        return ending.with_remark(await tree.keep(self._task.timeout_seconds))  # also when the task's time is over

    async def _ask_to_merge(self, tree: Tree, done: Judged, round_number: int) -> Judged:
        """Return the work with a person's answer, if one must agree and no other attempt passed first."""
        if done.ending.status == RunStatus.SUCCEEDED and not done.feedback and not await self._is_first():
            return Judged(
                replace(done.ending, status=RunStatus.FAILED, summary="another attempt passed before this one")
            )
        delivery = self._delivery(tree)
        done = await delivery.ask_to_merge(done, round_number)
        self._facts |= delivery.facts
        return done

    async def _is_first(self) -> bool:
        """Report whether this attempt passes before its parallel ones; the answer never changes."""
        parallel = self._task.attempts
        if not self._first and parallel > 1 and not self._payload.get("unmerged"):
            scope = f"{self._run_id}.{self._task.id}/first{(self._payload['attempt'] - 1) // parallel}"
            if await self._flow.spend(scope, {"firsts": 1}, {"firsts": 1}):
                return False
        self._first = True
        return True

    def _delivery(self, tree: Tree) -> Delivery:
        return Delivery(
            self._flow,
            tree,
            self._swarm.merge,
            number=self._flow.id,
            agent=self._agent.name,
            needed=bool(self._payload.get("needed")),
            check=self._run_gates_apart if self._task.gates else None,
            time=self._time,
            telemetry=self._telemetry,
        )

    async def leave(self, status: RunStatus) -> None:
        """End what the attempt opened if it was cancelled, and interrupt it if it was paused; in any other ``status``,
        another worker continues with it. Nothing of this is recorded."""
        await self._terminals.leave(status)
        await self._release_clone()

    async def _release_clone(self) -> None:
        if self._terminals.directory != self._payload["workspace"]:
            await self._task_worker.release(self._terminals.directory)

    def _scope(self, directory: str) -> ToolScope:
        return ToolScope(self._team.agents, directory, self._team, self._files)

    async def _rounds(self, directory: str, tree: Tree | None) -> Judged:
        """Have the agent do the task, again with feedback as often as the task allows, until gates and reviews pass."""
        brain: Brain = starters.load_brain(self._agent.brain)
        priced = any("dollars" in one.caps for one in self._allowances(self._agent.name))
        if wrong := brain.problems(self._agent, self._task_worker.worker_context.secret, priced=priced):
            raise PlanInvalid("; ".join(wrong), suggestion="fix it, or give the agent another brain")
        self._require_gates()
        work = await self._work(directory)
        tools = await self._list_tools(directory) if brain.wants_tools else []
        feedback = ""
        usage = Usage()
        thinking = None
        judged = Judged(Ending(RunStatus.FAILED))
        repeatable = self._task.gates or self._task.review.by or self._swarm.merge == "ask"
        self._most_rounds = (self._task.rounds or brain.rounds) if repeatable else 1
        round_number, last = 0, self._most_rounds
        while round_number < last:
            round_number += 1
            thinking = brain.begin(
                self._assignment(tools, directory, feedback, round_number), self._task_worker.worker_context, thinking
            )
            ending = await Agent(self._flow, work).run(thinking, await self._time.left())
            ending.usage = usage = usage + ending.usage
            if ending.status != RunStatus.SUCCEEDED:
                judged = Judged(ending)
                break
            judged = await self._judge(directory, tree, ending, round_number)
            usage = judged.ending.usage
            if tree and not self._payload.get("shown"):
                judged = await self._ask_to_merge(tree, judged, round_number)
            if not (feedback := judged.feedback):
                break
            if judged.returned:
                last = round_number + self._most_rounds
        if isinstance(thinking, SupportsSettled):
            await thinking.settled()
        if tree or not judged.feedback:
            return judged
        return Judged(replace(judged.ending, status=RunStatus.FAILED, summary=feedback))

    async def _judge(self, directory: str, tree: Tree | None, ending: Ending, round_number: int) -> Judged:
        """Run gates and reviews on one attempt: on ``directory``, or on the commit made of the tree."""
        commit, shown = "", None
        if tree:
            presented = await tree.present(
                round_number, gates=bool(self._task.gates), seconds=await self._seconds_left()
            )
            if presented.problem:
                self._facts |= tree.unmerged(ending, "")
                return Judged(blocked(presented.problem, ending))
            commit, directory = presented.commit, presented.directory
            shown = {"clone": clone_to_json(tree.clone), "commit": commit}
        elif (self._task.gates or self._task.review.by) and (problem := await self._terminals.stop(round_number)):
            return Judged(replace(ending, status=RunStatus.FAILED, summary=problem))
        checked = await self._run_gates(directory, str(round_number))
        usage = ending.usage + checked.usage
        if tree and self._task.gates:
            await tree.withdraw(directory)
            await self._task_worker.release(directory)
        if checked.ending:
            return Judged(replace(checked.ending, result=ending.result, usage=usage))
        feedback = checked.problem
        if not feedback and self._task.review.by:
            payload = {**self._payload, "above": self._task_limits()}
            review = Review(self._flow, payload, directory, round_number, shown)
            verdict = await review.collect(ending, await self._time.left())
            usage = usage + review.usage
            if isinstance(verdict, Ending):
                return Judged(replace(verdict, result=ending.result, usage=usage))
            feedback = verdict
        return Judged(replace(ending, usage=usage), commit, feedback)

    async def _seconds_left(self) -> float | None:
        """Return how many seconds the task has left; None without a limit."""
        left = await self._time.left()
        return left.seconds if left else None

    def _require_gates(self) -> None:
        """Raise PlanInvalid for gates that may not be run, before anything is done."""
        agent = self._team.agents.get(self._gates_act_for)
        if wrong := list(gate_problems(self._task.gates, [agent], self._swarm.shell)) if agent else []:
            raise PlanInvalid("; ".join(wrong), suggestion="leave the gates out")

    async def _run_gates_apart(self, directory: str, round_number: str) -> Checked:
        """Run the gates in a directory that is removed afterwards."""
        checked = await self._run_gates(directory, round_number)
        await self._task_worker.release(directory)
        return checked

    async def _run_gates(self, directory: str, round_number: str) -> Checked:
        if not self._task.gates:
            return Checked()
        work = await self._work(directory)
        gates = Gates(self._flow, work, self._swarm.shell, directory, round_number, self._gates_act_for, self._time)
        checked = await gates.check(self._task.gates)
        if not checked.ending:
            await emit_event(self._flow, "gate.failed" if checked.problem else "gates.held", said=checked.problem)
        return checked

    async def _work(self, directory: str) -> Work:
        # Kept apart from the agents, so that none of them can use what the orchestrator is granted.
        gates = () if self._gates_act_for else self._task.gates
        hosts = {ORCHESTRATOR: orchestrator(self._swarm.shell, gates, self._shell())}
        host = await self._terminals.fenced(ToolScope(hosts, directory, files=self._files))
        call = await self._terminals.fenced(self._scope(directory))
        return Work(
            run_id=self._root,
            task_id=self._flow.id,
            agent=self._agent.name,
            call=call,
            timeout_seconds=self._task.timeout_seconds,
            claims=self._task_worker.claims,
            allowances=self._allowances,
            attempt=self._payload["attempt"],
            host=host,
            delegated=self._delegation_payload,
            telemetry=self._telemetry,
            remembered=self._remembered,
            terminals=self._terminals,
            not_run=self._not_run,
        )

    def _delegation_payload(self, agent: str, tasks: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return the payload of the run of tasks that ``agent`` delegates. Raises PlanInvalid and BudgetExhausted."""
        plan = self._team.delegated(agent, tasks)
        tasks_only = {"tasks": [task.model_dump(mode="json", exclude_defaults=True) for task in plan.tasks]}
        shared = {name: self._payload[name] for name in ("workspace", "files", "placed") if name in self._payload}
        helpers, depth = [helper.name for helper in plan.agents], self._team.depth + 1
        above = [[scope, caps] for scope, caps in self._task_limits()]
        author = Author(Origin.AGENT, agent).to_json()
        run = {"plan": tasks_only, "root": self._root, "depth": depth, "helpers": helpers, "above": above}
        return {**shared, **run, "author": author, "steps": STEPS}

    def _assignment(self, tools: list[ToolInfo], directory: str, feedback: str, round_number: int) -> Assignment:
        task = self._task.model_dump(mode="json", exclude_defaults=True) | {"rounds": self._most_rounds}
        return Assignment(
            self._root,
            self._task.id,
            self._agent.name,
            task,
            self._payload["inputs"],
            tools,
            {
                **self._agent.settings,
                "prompt": self._agent.prompt,
                "round": round_number,
                "attempt": self._payload["attempt"],
            },
            feedback,
            directory,
            self._shell(),
            self._agent.type,
            self._agent.grants,
        )

    def _shell(self) -> str:
        """Return the server of the terminals that the agent's brain itself may need."""
        return str(self._agent.settings.get("shell") or self._swarm.shell)

    def _allowances(self, name: str) -> list[Allowance]:
        agent = self._team.agents.get(name)
        scopes = (
            ("run", self._root, _caps(self._swarm.budget)),
            ("agent", f"{self._root}/{name}", _caps(agent.budget if agent else Budget())),
            *(("task", scope, caps) for scope, caps in self._task_limits()),
        )
        return [Allowance(kind, scope, caps) for kind, scope, caps in scopes if caps]

    def _task_limits(self) -> list[tuple[str, dict[str, float]]]:
        """Return the limits by scope, of the task and of the tasks that delegated it."""
        above = [(str(scope), dict(caps)) for scope, caps in self._payload.get("above", ())]
        own = _caps(self._task.budget)
        return [*above, *([(f"{self._run_id}.{self._task.id}", own)] if own else [])]

    async def _list_tools(self, directory: str) -> list[ToolInfo]:
        async def list_granted(_: str) -> Json:
            tools = await self._task_worker.tools(self._scope(directory), self._agent.name)
            return [asdict(tool) for tool in tools]

        return [ToolInfo(**facts) for facts in await self._flow.step("tools", list_granted)]

    async def _tree(self) -> Tree | None:
        if self._agent.workspace != "clone":
            return None
        workspaces = self._task_worker.workspaces(self._payload["workspace"])
        if shown := self._payload.get("shown"):
            return self._tree_in(
                await shown_tree(self._flow, workspaces, shown, "review" + self._flow.id.rpartition(".review")[2])
            )
        name = f"{self._task.id}.{self._payload['attempt']}"
        where = runs_directory(self._root, self._run_id)
        merged = dict[str, str](self._payload.get("merged", {}))
        clone = await first_tree(self._flow, workspaces, where, name, merged, merges=self._swarm.merge != "branch")
        return self._tree_in(clone)

    def _tree_in(self, clone: Clone) -> Tree:
        workspaces = self._task_worker.workspaces(self._payload["workspace"])
        title = f"{self._task.id}: {self._task.text or self._agent.name}"
        return Tree(self._flow, workspaces, clone, self._terminals.end_in, self._files, title)


def _caps(budget: Budget) -> dict[str, float]:
    return {
        name: value
        for name, value in (("calls", budget.calls), ("tokens", budget.tokens), ("dollars", budget.dollars))
        if value
    }


def plain(usage: Usage) -> dict[str, Any]:
    """Return the usage as a JSON object."""
    return asdict(usage)
