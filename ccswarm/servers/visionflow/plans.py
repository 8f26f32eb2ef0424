"""Who does a task of a swarm, and in which order: the plan of a run. Pure."""

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
"""The last task where there is a hub that thinks: it brings together what the others found."""
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
    """What an agent is called in plans: its name as far as plans can say it, and a number where that is taken."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_")[:HANDLE_CHARS] or "agent"
    used = RESERVED | set(taken)
    return next(
        one for number in range(1, len(used) + 2) if (one := plain if number < 2 else f"{plain}-{number}") not in used
    )


def chosen(kept: StoredSwarm, able: Sequence[Member], most: int, text: str, busy: Mapping[str, int]) -> list[Member]:
    """At most ``most`` of those that are able, in the order in which they joined. Where there is a hub it is among
    them. ``busy`` is by id how many tasks each has; ``balanced`` looks at all it ever had, ``specialized`` at who is
    named by what the task says, before that."""
    if len(able) <= most:
        return list(able)
    had = {one.id: sum(one.id in task.members for task in kept.tasks.values()) for one in able}
    words = text.casefold()

    def rank(member: Member) -> tuple[bool, int, int]:
        named = any(word.casefold() in words for word in (member.type, *member.capabilities))
        return (
            (kept.strategy == "specialized" and not named),
            had[member.id] * (kept.strategy == "balanced"),
            busy[member.id],
        )

    picked = sorted(able, key=rank)[:most]
    if kept.topology in ("star", "hierarchical"):
        hub = next((one for one in able if one.type == COORDINATOR), able[0])
        picked = picked if hub in picked else [hub, *picked[:-1]]
    return [one for one in able if one in picked]


def plan_of(
    base: Settings,
    kept: StoredSwarm,
    agents: Sequence[AgentSettings],
    text: str,
    strategy: Strategy,
    priority: Priority,
) -> Settings:
    """Each agent does the task once, or its part of it, in the order that the topology has: in a ring one after the
    other, each given what the one before it found; under a hub, the hub first and all others with its result; else all
    side by side. Raises ConfigInvalid."""
    links = Links(kept.topology, agents)
    hub = links.hub if kept.topology in ("star", "hierarchical") and len(agents) > 1 else ""
    names = [agent.name for agent in agents]
    tasks: list[TaskSettings] = []
    for index, agent in enumerate(agents):
        needs = [hub] if hub and agent.name != hub else []
        if kept.topology == "ring" and index:
            needs = [names[index - 1]]
        said = _said(agent, names, text, "first" if agent.name == hub else "")
        tasks.append(service.task_in_words(agent.name, said, agent, needs=needs, priority=priority))
    head = next((agent for agent in agents if agent.name == hub), None)
    if head and head.brain != service.PLAYBOOK:
        said = _said(head, names, text, COLLECT)
        needs = [name for name in names if name != hub]
        tasks.append(service.task_in_words(COLLECT, said, head, needs=needs, priority=priority))
    swarm = base.swarm.model_copy(
        update={"name": kept.id, "topology": kept.topology, "strategy": strategy, "max_agents": max(1, len(agents))}
    )
    return base.model_copy(update={"swarm": swarm, "agents": tuple(agents), "tasks": tuple(tasks), "steps": ()})


def _said(agent: AgentSettings, names: Sequence[str], text: str, part: str) -> str:
    """A playbook gets the client's own text; an agent with a model is also told which others work on the task."""
    if agent.brain == service.PLAYBOOK or len(names) < 2:
        return text
    return ROLE.format(text=text, name=agent.name, count=len(names), names=", ".join(names), part=PARTS[part])


def agent_of(base: Settings, member: Member) -> AgentSettings:
    """The configured agent that a member is, with its own name and no more capabilities than it has. Raises PlanInvalid
    where it is configured no more."""
    for agent in base.agents:
        if agent.name == member.template:
            kept = tuple(one for one in agent.capabilities if one in member.capabilities)
            return agent.model_copy(update={"name": member.handle, "capabilities": kept})
    raise PlanInvalid(
        f"{member.name} is the configured agent {member.template}, which no longer exists",
        suggestion="configure it again, or terminate it",
    )


def linked(kept: StoredSwarm, members: Sequence[Member]) -> tuple[dict[str, list[str]], str]:
    """Whom each may write to, and the hub, both by id; ``""`` where the topology has none, or one agent alone."""
    if not members:
        return {}, ""
    ids = {member.handle: member.id for member in members}
    links = Links(kept.topology, [AgentSettings(name=member.handle, type=member.type) for member in members])
    hub = ids[links.hub] if kept.topology in ("star", "hierarchical") and len(members) > 1 else ""
    return {ids[one]: [ids[other] for other in links.reachable(one)] for one in ids}, hub
