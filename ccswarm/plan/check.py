"""Finds the problems of a plan before it runs, and describes what would run in which order."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from graphlib import TopologicalSorter
from types import MappingProxyType
from typing import Any

from ccswarm.config.settings import PLAYBOOK, WORD_TOOLS, AgentSettings, PlanStep, Settings, TaskSettings
from ccswarm.errors import PlanInvalid
from ccswarm.models import PRIORITIES, Json, ToolInfo
from ccswarm.plan.references import are_known, condition, holds, is_per_item, items_of, literal, parse, tokens
from ccswarm.plan.steps import cycle_problems, describe_unknown, needs_of, not_needed, predecessors, problems

OWN_SERVER = "swarm"
"""The server for messages between agents. Every swarm has it; no configuration names it."""

LOCATION = re.compile(
    r"((?:(?:task|step|gate|review) [\w.-]+: |review: )+|agent [\w-]+: |\[[^\]]*\] (?!is for |can only )\S+ )"
)


def plan_problems(settings: Settings, tools: Mapping[str, ToolInfo] | None) -> list[str]:
    """Return every problem of the plan with its location; empty if it can be carried out. ``tools`` are the available
    tools by ``server.tool``. With None, for when no server was asked, neither tools' names nor their arguments are
    checked."""
    needs = {task.id: task.needs for task in settings.tasks}
    found = cycle_problems({name: [need for need in wanted if need in needs] for name, wanted in needs.items()})
    if settings.tasks and not settings.agents:
        found.append("there are tasks but no agents: add an [[agents]]")
    tasks = {task.id: task for task in settings.tasks}
    for task in settings.tasks:
        found += [f"task {task.id}: {problem}" for problem in _task_problems(settings, task, tasks, tools)]
    return list(dict.fromkeys(found))


def grant_problems(settings: Settings, tools: Mapping[str, ToolInfo]) -> list[str]:
    """Return the grants that give an agent nothing, because of an unknown server or tool. Only agents that think are
    checked, and only tools of servers in ``tools``. Those of playbooks are checked with tasks."""
    listed, servers = {tool.server for tool in tools.values()}, _servers(settings)
    doers = {agent.name: agent for task in settings.tasks for agent in settings.agents_for(task)}
    found: list[str] = []
    for agent in doers.values():
        for grant in agent.grants if agent.brain != PLAYBOOK else ():
            server = grant.partition(".")[0]
            if not set(server) & set("*?[") and server not in servers:
                found.append(f"agent {agent.name}: grant {grant}: server {describe_unknown(server, servers)}")
            elif server in listed and not any(fnmatchcase(name, grant) for name in tools):
                names = [name for name in tools if name.startswith(f"{server}.")]
                found.append(f"agent {agent.name}: grant {describe_unknown(grant, names)}")
    return found


def split_location(problem: str) -> tuple[str, str]:
    """Split a problem into the location it begins with, or ``""``, and the rest."""
    found = LOCATION.match(problem)
    location = found[0] if found else ""
    return location.strip().removesuffix(":"), problem[len(location) :]


def describe(settings: Settings) -> dict[str, Any]:
    """Return what would run, as plain JSON. Raises PlanInvalid for needs that cannot be met. ``stages`` are the tasks
    that may run in parallel, highest priority first. ``tasks`` lists them in that order, each with its agents and
    needs."""
    tasks = {task.id: task for task in settings.tasks}
    wrong = [
        f"task {task.id} needs {describe_unknown(need, tasks)}"
        for task in settings.tasks
        for need in task.needs
        if need not in tasks
    ]
    if wrong := wrong or cycle_problems({task.id: task.needs for task in settings.tasks}):
        raise PlanInvalid("; ".join(wrong), suggestion="fix the needs of these tasks")
    ranks = {name: (PRIORITIES.index(task.priority), index) for index, (name, task) in enumerate(tasks.items())}
    sorter = TopologicalSorter({task.id: task.needs for task in settings.tasks})
    sorter.prepare()
    stages: list[list[str]] = []
    while sorter.is_active():
        stages.append(sorted(sorter.get_ready(), key=ranks.__getitem__))
        sorter.done(*stages[-1])
    return {
        "swarm": settings.swarm.name,
        "topology": settings.swarm.topology,
        "strategy": settings.swarm.strategy,
        "stages": stages,
        "tasks": [_describe_task(settings, tasks[name]) for stage in stages for name in stage],
    }


def _describe_task(settings: Settings, task: TaskSettings) -> dict[str, Any]:
    needs = needs_of(task.steps)
    facts = task.model_dump(mode="json", exclude_defaults=True, exclude={"steps"})
    steps = [
        step.model_dump(mode="json", exclude_defaults=True) | {"needs": list(needs[step.id])} for step in task.steps
    ]
    agents = [agent.name for agent in settings.agents_for(task)]
    return facts | {"priority": task.priority, "agents": agents, "steps": steps}


def _task_problems(
    settings: Settings, task: TaskSettings, tasks: Mapping[str, TaskSettings], tools: Mapping[str, ToolInfo] | None
) -> Iterator[str]:
    yield from (f"needs {describe_unknown(need, tasks)}" for need in task.needs if need not in tasks)
    doers = settings.agents_for(task)
    yield from _agent_problems(settings, task, doers)
    inputs = {need: _result_names(settings, tasks[need]) for need in task.needs if need in tasks}
    if task.attempts > 1:
        yield from _attempt_problems(task, doers)
    yield from (
        f"step {problem}" for problem in problems(task.steps, inputs, lambda name: _not_input(task, name, tasks))
    )
    for step in task.steps:
        known = {"task": {"id": task.id, "text": task.text}}
        yield from (f"step {step.id}: {problem}" for problem in _step_problems(settings, step, doers, tools, known))
    yield from (f"review: {problem}" for problem in _review_problems(settings, task, doers, tools))
    for number, gate in enumerate(task.gates, 1):
        if bool(gate.command) == bool(gate.tool):
            yield f"gate {number}: needs either a command or a tool"
        elif gate.tool:
            yield from (
                f"gate {number}: {problem}" for problem in _tool_problems(settings, gate.tool, gate.args, tools)
            )
        elif settings.swarm.shell not in _servers(settings):
            yield f"gate {number}: swarm.shell is {describe_unknown(settings.swarm.shell, _servers(settings))}"


def _not_input(task: TaskSettings, name: str, tasks: Mapping[str, TaskSettings]) -> str:
    if name not in tasks:
        return f"task {describe_unknown(name, tasks)}"
    if name == task.id:
        return "its own task: write ${steps.ID…}"
    if task.id in predecessors({other.id: other.needs for other in tasks.values()})[name]:
        return f"a task that waits for its own: {name}"
    return not_needed(name)


def _attempt_problems(task: TaskSettings, doers: Sequence[AgentSettings]) -> Iterator[str]:
    if not task.gates and not task.review.by:
        yield f"has {task.attempts} attempts, but no gate or review to decide between them"
    for agent in doers:
        if agent.workspace != "clone":
            yield f'has {task.attempts} attempts, which need clones: set workspace = "clone" for agent {agent.name}'


def _review_problems(
    settings: Settings, task: TaskSettings, doers: Sequence[AgentSettings], tools: Mapping[str, ToolInfo] | None
) -> Iterator[str]:
    review, agents = task.review, {agent.name: agent for agent in settings.agents}
    yield from (f"by {describe_unknown(name, agents)}" for name in review.by if name not in agents)
    if review.quorum > len(review.by):
        yield f"a quorum of {review.quorum} of {len(review.by)} cannot be reached"
    reviewers = [agents[name] for name in review.by if name in agents]
    if reviewers and [agent.name for agent in doers] == [reviewers[0].name]:
        yield f"{reviewers[0].name} would judge its own work"
    for agent in reviewers:
        if agent.brain == PLAYBOOK and not review.steps:
            yield f"has no steps, and the brain of {agent.name} is a playbook, which does only steps"
    shared = next((agent.name for agent in doers if agent.workspace != "clone"), "")
    for agent in reviewers if shared else ():
        if writing := _writing_tools(settings, agent, task, tools or {}):
            yield (
                f"{agent.name} could change the work in the shared workspace with {', '.join(writing[:3])}: give "
                f'{shared} workspace = "clone", or {agent.name} tools that only read'
            )
    yield from (f"step {problem}" for problem in problems(review.steps, {}, lambda _: "a task: reviews have no needs"))
    for step in review.steps:
        yield from (f"step {step.id}: {problem}" for problem in _step_problems(settings, step, reviewers, tools, {}))


def _writing_tools(
    settings: Settings, agent: AgentSettings, task: TaskSettings, tools: Mapping[str, ToolInfo]
) -> Sequence[str]:
    """Return the tools by which a reviewer may write. They are those of terminals, and those of trusted servers that
    are not marked as read-only."""
    known = {server.name for server in settings.mcp.servers if server.trusted}
    known |= {tool.server for tool in tools.values() if tool.name == WORD_TOOLS[0]}
    steps = {step.tool for step in task.review.steps}
    return [
        name
        for name, tool in sorted(tools.items())
        if tool.server in known and not tool.read_only and tool.server != OWN_SERVER
        if any(fnmatchcase(name, grant) for grant in agent.grants)
        if agent.brain != PLAYBOOK or name in steps
    ]


def _result_names(settings: Settings, task: TaskSettings) -> Collection[str] | None:
    """Return the names in ``${needs.TASK.steps…}``, or None if a brain other than a playbook may choose them."""
    doers = settings.agents_for(task)
    if any(agent.brain != PLAYBOOK for agent in doers) or (not task.steps and any(one.takes_words for one in doers)):
        return None
    return {name for step in task.steps for name in (step.id, step.save_as) if name}


def _agent_problems(settings: Settings, task: TaskSettings, doers: Sequence[AgentSettings]) -> Iterator[str]:
    names = [agent.name for agent in settings.agents]
    if task.agent and task.agent not in names:
        yield f"is for agent {describe_unknown(task.agent, names)}"
    elif task.agent in names[settings.swarm.max_agents :]:
        yield f"is for agent {task.agent}, who is beyond swarm.max_agents ({settings.swarm.max_agents})"
    elif not doers and settings.agents:
        wanted = [f"called {task.agent}"] if task.agent else []
        wanted += [f"of type {task.type}"] if task.type else []
        wanted += [f"capable of {', '.join(task.capabilities)}"] if task.capabilities else []
        yield f"no agent can do it: none is {' and '.join(wanted)}"
    if not task.steps:
        yield from (problem for agent in doers for problem in _text_problems(settings, agent))


def _text_problems(settings: Settings, agent: AgentSettings) -> Iterator[str]:
    if agent.follows_words:
        needed = [f"{settings.swarm.shell}.{tool}" for tool in WORD_TOOLS]
        missing = [tool for tool in needed if not any(fnmatchcase(tool, grant) for grant in agent.grants)]
        shell, servers = settings.swarm.shell, _servers(settings)
        if shell not in servers:
            yield f"needs a terminal server: swarm.shell is {describe_unknown(shell, servers)}"
        elif missing:
            yield f"has no steps, and to follow its text agent {agent.name} has no grant for {', '.join(missing)}"
    elif not agent.takes_words:
        yield f"has no steps, and the brain of {agent.name} is a playbook, which does only steps"


def _step_problems(
    settings: Settings,
    step: PlanStep,
    doers: Sequence[AgentSettings],
    tools: Mapping[str, ToolInfo] | None,
    known: Mapping[str, Json],
) -> Iterator[str]:
    agents = {agent.name: agent for agent in settings.agents}
    yield from _tool_problems(settings, step.tool, step.args, tools, step, known)
    if step.agent and step.agent not in agents:
        yield f"is for agent {describe_unknown(step.agent, agents)}"
        return
    if step.tool.partition(".")[0] not in _servers(settings):
        return
    for agent in [agents[step.agent]] if step.agent else doers:
        if not any(fnmatchcase(step.tool, grant) for grant in agent.grants):
            yield f"agent {agent.name} has no grant for {step.tool}"


def _tool_problems(
    settings: Settings,
    tool: str,
    arguments: Mapping[str, Any],
    tools: Mapping[str, ToolInfo] | None,
    step: PlanStep | None = None,
    known: Mapping[str, Json] = MappingProxyType({}),
) -> Iterator[str]:
    """Yield what is wrong with a call; its arguments may contain references if it is that of a ``step``."""
    server, dot, name = tool.partition(".")
    if not dot or not name:
        same = [known.full_name for known in (tools or {}).values() if known.name == tool]
        yield f"{tool!r} is not SERVER.TOOL" + (f" (did you mean {same[0]}?)" if same else "")
    elif server == OWN_SERVER and not any(known.server == server for known in (tools or {}).values()):
        return  # the server was not asked
    elif server not in _servers(settings):
        yield f"server {describe_unknown(server, _servers(settings))}"
    elif tools is not None and not any(known.server == server for known in tools.values()):
        yield f"server {server} offers no tools"
    elif tools is not None and tool not in tools:
        names = [known.name for known in tools.values() if known.server == server]
        yield f"tool {describe_unknown(name, names, within=f'{server}.')}"
    elif tools is not None:
        yield from _call_problems(tools[tool], arguments, step, known)


def _call_problems(
    tool: ToolInfo, arguments: Mapping[str, Any], step: PlanStep | None, known: Mapping[str, Json]
) -> Iterator[str]:
    from ccswarm.plan.schemas import TEXT, UNKNOWN  # slow to load, and most verbs check no arguments

    if step is None:
        yield from _argument_problems(tool, arguments)
        return
    for where, values in _calls(step, known):
        try:
            if step.when and are_known(step.when, values) and not holds(step.when, values):
                continue
            given = literal(arguments, UNKNOWN, TEXT, values)
        except PlanInvalid as error:
            yield f"{where}{error.message}"
        else:
            yield from (f"{where}{problem}" for problem in _argument_problems(tool, given))


def _calls(step: PlanStep, known: Mapping[str, Json]) -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Yield the calls that a step may make, each with its location and what is known of its references. An item counts
    as not known if it is not certain that its condition holds."""
    from ccswarm.plan.schemas import TEXT, UNKNOWN, has_unknown

    try:
        for token in tokens([step.args, step.for_each, condition(step.when) if step.when else ""]):
            parse(token)
        each = literal(step.for_each, UNKNOWN, TEXT, known)
    except PlanInvalid:  # is reported by itself
        yield "", {}
        return
    if not isinstance(each, (str, list)):
        yield "", known
        return
    for at, item in enumerate(items_of(each)):
        values = known if has_unknown(item) else {**known, "item": item}
        certain = not is_per_item(step.when) or are_known(step.when, values)
        yield (f"for_each[{at}]: ", values) if certain else ("", known)


def _argument_problems(tool: ToolInfo, arguments: Mapping[str, Any]) -> Iterator[str]:
    from ccswarm.plan.schemas import UNKNOWN, compiled

    given: dict[str, Any] = {"call_key": UNKNOWN} if tool.keyed else {}
    given |= arguments
    required: Iterable[str] = tool.input_schema.get("required") or ()
    if missing := [name for name in required if name not in given]:
        yield f"{tool.full_name} needs {', '.join(missing)}"
        given |= dict.fromkeys(missing, UNKNOWN)
    known: Mapping[str, Any] = tool.input_schema.get("properties") or {}
    if tool.input_schema.get("additionalProperties") is False and not tool.input_schema.get("patternProperties"):
        for name in arguments:
            if name not in known:
                near = difflib.get_close_matches(name, list(known), n=1)
                hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(known) or 'nothing'}"
                yield f"{tool.full_name} takes no {name} ({hint})"
                del given[name]
    schema = compiled(json.dumps(dict(tool.input_schema)))
    yield from (f"{tool.full_name}: {problem}" for problem in schema.problems(given, partial=True))


def _servers(settings: Settings) -> list[str]:
    return [*(server.name for server in settings.mcp.servers), OWN_SERVER]
