"""Which agents do a task of a swarm, and in which order: the plan of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ccswarm.config.settings import AgentSettings, Settings, Strategy, TaskSettings
from ccswarm.errors import PlanInvalid
from ccswarm.models import Priority
from ccswarm.plan.topology import COORDINATOR, Links
from ccswarm.runs import service
from ccswarm.servers.visionflow.store import Member, StoredSwarm

COLLECT = "collect"
"""The id of the last task if there is a hub with a model: it combines the results of the others."""
RESERVED = {COLLECT, "orchestrator", service.CHECKER}
HANDLE_CHARS = 48

ROLE = "{text}\n\n(You are {name}, one of {count} agents on this task: {names}. {part})"
PARTS = {
    "": "Do the part of it that suits you best.",
    "first": "You coordinate: say what each of the others has to do. They start when you are done, and get your"
    " result.",
    COLLECT: "The others are done, and you get their results: combine them.",
}


def handle_of(name: str, taken: Iterable[str]) -> str:
    """Return the name of an agent in plans: its own without the characters that plans do not allow, and with a number
    if that name is ``taken``."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:HANDLE_CHARS] or "agent"
    used = RESERVED | set(taken)
    return next(
        one for number in range(1, len(used) + 2) if (one := plain if number < 2 else f"{plain}-{number}") not in used
    )


def choose(
    swarm: StoredSwarm, candidates: Sequence[Member], most: int, text: str, busy: Mapping[str, int]
) -> list[Member]:
    """Return at most ``most`` of the ``able`` agents, in the order in which they joined; a hub is always among them.
    Those with fewer tasks, by ``busy``, come first. Before that, ``balanced`` counts all tasks an agent ever had, and
    ``specialized`` prefers agents whose type or capability occurs in the text."""
    if len(candidates) <= most:
        return list(candidates)
    had = {one.id: sum(one.id in task.members for task in swarm.tasks.values()) for one in candidates}
    words = text.casefold()

    def rank(member: Member) -> tuple[bool, int, int]:
        named = any(word.casefold() in words for word in (member.type, *member.capabilities))
        return (
            (swarm.strategy == "specialized" and not named),
            had[member.id] * (swarm.strategy == "balanced"),
            busy[member.id],
        )

    picked = sorted(candidates, key=rank)[:most]
    if swarm.topology in ("star", "hierarchical"):
        hub = next((one for one in candidates if one.type == COORDINATOR), candidates[0])
        picked = picked if hub in picked else [hub, *picked[:-1]]
    return [one for one in candidates if one in picked]


def plan_of(
    base: Settings,
    swarm: StoredSwarm,
    agents: Sequence[AgentSettings],
    text: str,
    strategy: Strategy,
    priority: Priority,
) -> Settings:
    """Return a plan in which each agent does the task once, in the order of the topology. In a ring, each gets the
    result of the previous one; under a hub, the hub is first and the others get its result; otherwise all work at the
    same time. Raises ConfigInvalid."""
    links = Links(swarm.topology, agents)
    hub = links.hub if swarm.topology in ("star", "hierarchical") and len(agents) > 1 else ""
    names = [agent.name for agent in agents]
    tasks: list[TaskSettings] = []
    for index, agent in enumerate(agents):
        needs = [hub] if hub and agent.name != hub else []
        if swarm.topology == "ring" and index:
            needs = [names[index - 1]]
        task_text = _task_text(agent, names, text, "first" if agent.name == hub else "")
        tasks.append(service.task_in_words(agent.name, task_text, agent, needs=needs, priority=priority))
    head = next((agent for agent in agents if agent.name == hub), None)
    if head and head.brain != service.PLAYBOOK:
        task_text = _task_text(head, names, text, COLLECT)
        needs = [name for name in names if name != hub]
        tasks.append(service.task_in_words(COLLECT, task_text, head, needs=needs, priority=priority))
    settings = base.swarm.model_copy(
        update={"name": swarm.id, "topology": swarm.topology, "strategy": strategy, "max_agents": max(1, len(agents))}
    )
    return base.model_copy(update={"swarm": settings, "agents": tuple(agents), "tasks": tuple(tasks), "steps": ()})


def _task_text(agent: AgentSettings, names: Sequence[str], text: str, part: str) -> str:
    """Return the task's text: for a playbook as the client sent it, for a model with the agents that share it."""
    if agent.brain == service.PLAYBOOK or len(names) < 2:
        return text
    return ROLE.format(text=text, name=agent.name, count=len(names), names=", ".join(names), part=PARTS[part])


def agent_of(base: Settings, member: Member) -> AgentSettings:
    """Return the configured agent of a member, with the member's name and only its capabilities. Raises PlanInvalid if
    it is no longer configured."""
    for agent in base.agents:
        if agent.name == member.template:
            capabilities = tuple(one for one in agent.capabilities if one in member.capabilities)
            return agent.model_copy(update={"name": member.handle, "capabilities": capabilities})
    raise PlanInvalid(
        f"{member.name} is the configured agent {member.template}, which no longer exists",
        suggestion="configure it again, or terminate it",
    )


def links_of(swarm: StoredSwarm, members: Sequence[Member]) -> tuple[dict[str, list[str]], str]:
    """Return the ids to which each agent may write, and the hub's; ``""`` without a hub or with one agent."""
    if not members:
        return {}, ""
    ids = {member.handle: member.id for member in members}
    links = Links(swarm.topology, [AgentSettings(name=member.handle, type=member.type) for member in members])
    hub = ids[links.hub] if swarm.topology in ("star", "hierarchical") and len(members) > 1 else ""
    return {ids[one]: [ids[other] for other in links.reachable(one)] for one in ids}, hub
