"""The agents of a swarm: who may write to whom, and what one may have others do."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ccswarm.config.settings import AgentSettings, McpSettings, ServerSettings, Settings, SwarmSettings
from ccswarm.errors import BudgetExhausted, PlanInvalid
from ccswarm.plan.check import OWN_SERVER, plan_problems
from ccswarm.plan.delegation import delegated
from ccswarm.plan.origin import gate_problems
from ccswarm.plan.topology import Links


class Team:
    """``depth`` is how many agents stand between these and the plan. Raises ConfigInvalid where there are none."""

    def __init__(self, swarm: SwarmSettings, agents: Sequence[AgentSettings], depth: int = 0) -> None:
        self.swarm = swarm
        self.agents = {agent.name: agent for agent in agents}
        self.links = Links(swarm.topology, agents)
        self.depth = depth

    @property
    def key(self) -> str:
        """The same for crews that are alike."""
        shown = [agent.model_dump(mode="json") for agent in self.agents.values()]
        return json.dumps([self.depth, self.swarm.model_dump(mode="json"), *shown], sort_keys=True)

    def helpers(self, agent: str) -> list[AgentSettings]:
        """Who may be given work by ``agent``: all it may write to, of as many as may exist."""
        there = list(self.agents)[: self.swarm.max_agents]
        return [self.agents[name] for name in self.links.reachable(agent) if name in there]

    def delegated(self, agent: str, tasks: Sequence[Mapping[str, Any]]) -> Settings:
        """The plan that ``agent`` has others carry out. Raises PlanInvalid for tasks that are none, or whose gates may
        not act for ``agent``, and BudgetExhausted where there are too many agents above it already."""
        if self.depth >= self.swarm.spawn_depth:
            raise BudgetExhausted(
                f"swarm.spawn_depth is {self.swarm.spawn_depth}: work cannot be delegated further",
                suggestion="do it yourself, or finish and report what remains",
            )
        made = delegated(tasks)
        if not (helpers := self.helpers(agent)):
            raise PlanInvalid(f"{agent} may not delegate work", suggestion="do it yourself")
        wrong = [
            f"task {task.id}: {problem}"
            for task in made
            for problem in gate_problems(task.gates, [self.agents[agent]], self.swarm.shell)
        ]
        if wrong:
            raise PlanInvalid(
                "; ".join(wrong),
                suggestion="leave the gates out and put the conditions in the text, or ask the person to grant these"
                " tools",
            )
        return Settings(swarm=self.swarm, agents=tuple(helpers), tasks=made)

    def check(self, agent: str, tasks: Sequence[Mapping[str, Any]], servers: Collection[str]) -> Settings:
        """As ``delegated``; raises PlanInvalid, too, for what cannot be carried out with these servers."""
        plan = self.delegated(agent, tasks)
        known = McpSettings(servers=tuple(ServerSettings(name=name) for name in servers if name != OWN_SERVER))
        if wrong := plan_problems(plan.model_copy(update={"mcp": known}), None):
            raise PlanInvalid("; ".join(wrong), suggestion="fix the problems above")
        return plan
