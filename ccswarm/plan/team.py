"""The agents of a swarm: who may write to whom, and which work one may delegate."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ccswarm.config.settings import AgentSettings, McpSettings, ServerSettings, Settings, SwarmSettings
from ccswarm.errors import BudgetExhausted, PlanInvalid
from ccswarm.plan.check import OWN_SERVER, plan_problems
from ccswarm.plan.delegation import parse_delegated
from ccswarm.plan.origin import gate_problems
from ccswarm.plan.topology import Links


class Team:
    """The agents of a swarm. ``depth`` counts the delegations above them. Raises ConfigInvalid if there are none."""

    def __init__(self, swarm: SwarmSettings, agents: Sequence[AgentSettings], depth: int = 0) -> None:
        self.swarm = swarm
        self.agents = {agent.name: agent for agent in agents}
        self.links = Links(swarm.topology, agents)
        self.depth = depth

    @property
    def key(self) -> str:
        """A text that is the same for equal teams."""
        shown = [agent.model_dump(mode="json") for agent in self.agents.values()]
        return json.dumps([self.depth, self.swarm.model_dump(mode="json"), *shown], sort_keys=True)

    def helpers(self, agent: str) -> list[AgentSettings]:
        """Return the agents that ``agent`` may delegate to: those it may write to, among the first ``max_agents``."""
        existing = list(self.agents)[: self.swarm.max_agents]
        return [self.agents[name] for name in self.links.reachable(agent) if name in existing]

    def delegated(self, agent: str, tasks: Sequence[Mapping[str, Any]]) -> Settings:
        """Return the plan that ``agent`` delegates. Raises PlanInvalid for invalid tasks or gates that may not act for
        ``agent``, and BudgetExhausted if there are too many delegations above it."""
        if self.depth >= self.swarm.spawn_depth:
            raise BudgetExhausted(
                f"swarm.spawn_depth is {self.swarm.spawn_depth}: work cannot be delegated further",
                suggestion="do it yourself, or finish and report what remains",
            )
        made = parse_delegated(tasks)
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
        """Return the plan as ``delegated`` does. Also raises PlanInvalid if it cannot run with these servers."""
        plan = self.delegated(agent, tasks)
        known = McpSettings(servers=tuple(ServerSettings(name=name) for name in servers if name != OWN_SERVER))
        if wrong := plan_problems(plan.model_copy(update={"mcp": known}), None):
            raise PlanInvalid("; ".join(wrong), suggestion="fix the problems above")
        return plan
