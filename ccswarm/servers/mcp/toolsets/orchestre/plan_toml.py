"""A plan in JSON as a plan of the swarm: who does what after what, in TOML that ``ccswarm run`` takes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, cast

from ccswarm.config.settings import AgentSettings, Settings
from ccswarm.models import PRIORITIES
from ccswarm.plan.origin import missing_for_gates
from ccswarm.plan.shell_text import quote
from ccswarm.runs import service
from ccswarm.servers._json_values import cut
from ccswarm.servers.mcp.toolsets.orchestre.plan import KINDS
from ccswarm.servers.mcp.toolsets.orchestre.toml import comment, tables

Facts = dict[str, Any]

TYPES = {
    "study": ("researcher", "analyst", "architect", "coordinator"),
    "build": ("coder", "developer", "engineer", "backend", "frontend", "optimizer"),
    "check": ("tester", "qa", "reviewer", "analyst", "optimizer", "researcher"),
    "tell": ("writer", "coordinator", "researcher", "analyst"),
}
"""The types of agents that suit a kind of task, the best first."""

CHANGING = ("build", "check")
"""Kinds after which the repository's tests must hold."""

ROUNDS = 2
"""How often an agent that thinks may try until they do."""

MOST_TEXT = 12_000
LEAST_SHARE, MOST_SHARED = 400, 16_000
"""Characters of the requirements that every task but the first repeats, and all of them together."""


def able_agents(settings: Settings) -> list[AgentSettings]:
    """Those that can do what is only said: they think, or have steps of their own for it."""
    return [one for one in settings.agents[: settings.swarm.max_agents] if one.takes_words]


def tasks_in(plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All tasks of its phases, in their order, as they can be changed."""
    for phase in cast("Sequence[Mapping[str, Any]]", plan.get("phases") or ()):
        yield from cast("Sequence[dict[str, Any]]", phase.get("tasks") or ())


def problems_of(plan: Mapping[str, Any]) -> list[str]:
    """What keeps its tasks from being done one after the other: ids twice, needs that are not there, circles."""
    tasks = list(tasks_in(plan))
    ids = [str(task["id"]) for task in tasks]
    found = [f"task {one} is there more than once" for one in dict.fromkeys(ids) if ids.count(one) > 1]
    if not tasks:
        found.append("there are no tasks")
    names = [swarm_id(one) for one in ids]
    found += [f"task {one!r} has no usable id" for one in ids if names.count(swarm_id(one)) > 1 and ids.count(one) == 1]
    needs = {str(task["id"]): [str(one) for one in task.get("dependencies") or ()] for task in tasks}
    found += [
        f"task {task} needs {one}, which is not there" for task in needs for one in needs[task] if one not in needs
    ]
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        found.append(f"tasks need each other in a circle: {' → '.join(map(str, error.args[1]))}")
    return found


def swarm_id(task: str) -> str:
    """What a task is called in the swarm's plan: ``task-1-1`` for ``1.1``."""
    return f"task-{re.sub(r'[^A-Za-z0-9]+', '-', task).strip('-')}"[:63]


def assign(plan: Mapping[str, Any], able: Sequence[AgentSettings]) -> None:
    """Gives each task its agent: the one it names; else who is named by its words, else whose type suits its kind, of
    these who has the least to do yet. Without agents it is a role, in words."""
    loads = {agent.name: 0 for agent in able}
    for task in tasks_in(plan):
        kind = _kind(task)
        named = str(task.get("assignee") or "")
        if able and named not in loads:
            named = min(able, key=lambda one: _rank(one, task, kind, loads)).name
        task["assignee"] = named or TYPES[kind][0]
        task["swarmTask"] = swarm_id(str(task["id"]))
        if named in loads:
            loads[named] += 1


def _rank(agent: AgentSettings, task: Mapping[str, Any], kind: str, loads: Mapping[str, int]) -> tuple[bool, int, int]:
    words = f"{task.get('title', '')} {task.get('description', '')}".casefold()
    named = any(re.search(rf"\b{re.escape(one.casefold())}\b", words) for one in (agent.type, *agent.capabilities))
    suits = TYPES[kind].index(agent.type) if agent.type in TYPES[kind] else len(TYPES[kind])
    return not named, suits, loads[agent.name]


def _kind(task: Mapping[str, Any]) -> str:
    return str(task.get("kind")) if task.get("kind") in KINDS else "build"


def toml_of(plan: Mapping[str, Any], requirements: str, settings: Settings, facts: Mapping[str, Any] | None) -> str:
    """Of a plan whose tasks are assigned to agents that can do them. Raises ConfigInvalid where an agent's own steps
    are none."""
    agents = {agent.name: agent for agent in able_agents(settings)}
    gate = gate_of(settings, facts)
    tasks = list(tasks_in(plan))
    share = max(LEAST_SHARE, MOST_SHARED // len(tasks))
    said = [requirements, *[cut(requirements, share)] * len(tasks)]
    shell = settings.swarm.shell
    found = [_task(one, agents[one["assignee"]], text, gate, shell) for one, text in zip(tasks, said, strict=False)]
    head = comment(f"{plan.get('overview', '')}\nEfforts and order are by rules: look at them before you run it.")
    return head + "\n" + tables("tasks", found, ("steps", "gates"))


def gate_of(settings: Settings, facts: Mapping[str, Any] | None) -> str:
    """The command that must succeed after work: the repository's tests, where it has some, their command is known, and
    there is a server that runs commands."""
    tests: Mapping[str, Any] = (facts or {}).get("tests") or {}
    command = str(tests.get("command") or "")
    directory = str(tests.get("directory") or "")
    if not tests.get("cases") or not command or settings.swarm.shell not in [one.name for one in settings.mcp.servers]:
        return ""
    return f"cd {quote(directory)} && {command}" if directory else command


def _task(task: Mapping[str, Any], agent: AgentSettings, requirements: str, gate: str, shell: str) -> Facts:
    title, more = str(task.get("title") or ""), str(task.get("description") or "")
    text = "\n\n".join(filter(None, (title, "" if more == title else more, f"All that is wanted:\n{requirements}")))
    needs = [swarm_id(str(one)) for one in task.get("dependencies") or ()]
    facts = {"priority": task["priority"] if task.get("priority") in PRIORITIES else "medium", "needs": needs}
    made = service.task_in_words(swarm_id(str(task["id"])), text[:MOST_TEXT], agent, **facts)
    gates = [{"command": gate}] if gate and _kind(task) in CHANGING and not missing_for_gates(agent, shell) else []
    tried = {"visits": ROUNDS} if gates and agent.brain != service.PLAYBOOK else {}
    return {**made.model_dump(mode="json", exclude_defaults=True), **tried, "gates": gates}
