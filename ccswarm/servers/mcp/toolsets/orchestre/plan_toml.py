"""The conversion of a plan in JSON to a plan of the swarm, in TOML for ``ccswarm run``."""

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
"""The kinds of tasks after which the repository's tests must pass."""

ROUNDS = 2
"""How many attempts an agent with a model has for that."""

MOST_TEXT = 12_000
LEAST_SHARE, MOST_SHARED = 400, 16_000
"""The characters of the requirements that each task but the first repeats, and of all of them together."""


def able_agents(settings: Settings) -> list[AgentSettings]:
    """Return the agents that accept tasks in words: those with a model, or with steps of their own."""
    return [one for one in settings.agents[: settings.swarm.max_agents] if one.takes_words]


def tasks_in(plan: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield all tasks of the phases in order; they may be changed in place."""
    for phase in cast("Sequence[Mapping[str, Any]]", plan.get("phases") or ()):
        yield from cast("Sequence[dict[str, Any]]", phase.get("tasks") or ())


def problems_of(plan: Mapping[str, Any]) -> list[str]:
    """Return what keeps the tasks from being done one after the other: duplicate ids, missing needs, cycles."""
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
    """Return a task's id in the swarm's plan: ``task-1-1`` for ``1.1``."""
    return f"task-{re.sub(r'[^A-Za-z0-9]+', '-', task).strip('-')}"[:63]


def assign(plan: Mapping[str, Any], able: Sequence[AgentSettings]) -> None:
    """Assign an agent to each task in place: the one it names, else one that its words name, else one whose type suits
    its kind; of several, the one with the fewest tasks. Without agents, a role is assigned."""
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
    """Render a plan whose tasks are assigned to capable agents as TOML. Raises ConfigInvalid if an agent's own steps
    are not valid steps."""
    agents = {agent.name: agent for agent in able_agents(settings)}
    gate = gate_of(settings, facts)
    tasks = list(tasks_in(plan))
    share = max(LEAST_SHARE, MOST_SHARED // len(tasks))
    texts = [requirements, *[cut(requirements, share)] * len(tasks)]
    shell = settings.swarm.shell
    found = [_task(one, agents[one["assignee"]], text, gate, shell) for one, text in zip(tasks, texts, strict=False)]
    head = comment(f"{plan.get('overview', '')}\nEfforts and order are by rules: look at them before you run it.")
    return head + "\n" + tables("tasks", found, ("steps", "gates"))


def gate_of(settings: Settings, facts: Mapping[str, Any] | None) -> str:
    """Return the command that must succeed after work: the repository's tests, if it has some, their command is known,
    and a server runs commands; else ``""``."""
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
    settings_of_task = service.task_in_words(swarm_id(str(task["id"])), text[:MOST_TEXT], agent, **facts)
    gates = [{"command": gate}] if gate and _kind(task) in CHANGING and not missing_for_gates(agent, shell) else []
    rounds = {"rounds": ROUNDS} if gates and agent.brain != service.PLAYBOOK else {}
    return {**settings_of_task.model_dump(mode="json", exclude_defaults=True), **rounds, "gates": gates}
