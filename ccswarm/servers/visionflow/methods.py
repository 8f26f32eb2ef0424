"""The methods: the parameters and the result of each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ccswarm import __version__
from ccswarm.errors import RunNotFound
from ccswarm.servers.visionflow.params import Param, Params, checked, schema_of
from ccswarm.servers.visionflow.store import Member
from ccswarm.servers.visionflow.swarms import TYPES, Swarms
from ccswarm.servers.visionflow.views import (
    Facts,
    agent_facts,
    name_of,
    performance_facts,
    swarm_facts,
    task_facts,
    topology_facts,
    whole_task,
)

Given = Mapping[str, Any]
SWARM = Param("string", "Swarm identifier", required=True, most=100)
NEWEST = Param("string", "Swarm identifier; default: the newest swarm", most=100)
AGENT = Param("string", "Agent identifier", required=True, most=100)
MOST_LISTED = 1000


@dataclass(frozen=True, slots=True)
class Method:
    """A method. ``tool`` are its parameters as a tool, if they differ: clients that call tools leave the swarm out."""

    about: str
    params: Params
    work: Callable[[Swarms, Given], Awaitable[Facts]]
    tool: Params | None = None


async def swarm_init(swarms: Swarms, given: Given) -> Facts:
    swarm = await swarms.init(given["topology"], given["maxAgents"], given["strategy"])
    return {"swarmId": swarm.id, "topology": swarm.topology, "maxAgents": swarm.most}


async def agent_spawn(swarms: Swarms, given: Given) -> Facts:
    swarm = swarms.find(given["swarmId"])
    member = await swarms.spawn(swarm, given["type"], given["capabilities"] or (), (given["name"] or "").strip())
    facts = {"agentId": member.id, "type": member.type, "status": "active"}
    if lost := [one for one in given["capabilities"] or () if one not in member.capabilities]:
        why = f"{member.template} is configured without them: only a person can give an agent capabilities"
        return {**facts, "capabilities": member.capabilities, "notGiven": lost, "note": why}
    return facts


async def task_orchestrate(swarms: Swarms, given: Given) -> Facts:
    swarm = swarms.find(given["swarmId"] or "")
    task = await swarms.orchestrate(swarm, given["task"], given["strategy"], given["priority"], given["maxAgents"])
    return {"taskId": task.id, "status": "queued", "assignedAgents": len(task.members)}


async def swarm_status(swarms: Swarms, given: Given) -> Facts:
    swarm = swarms.find(given["swarmId"] or "")
    statuses = await swarms.look(swarm)
    facts = swarm_facts(swarms, swarm, statuses)
    facts |= topology_facts(swarms, swarm) if given["include_topology"] else {}
    return facts | (performance_facts(statuses) if given["include_performance"] else {})


async def agent_terminate(swarms: Swarms, given: Given) -> Facts:
    member = await swarms.terminate(given["agentId"])
    return {"agentId": member.id, "status": "terminated"}


async def agent_list(swarms: Swarms, given: Given) -> Facts:
    found: list[Facts] = []
    for swarm in [swarms.find(given["swarmId"])] if given["swarmId"] else swarms.all():
        statuses = await swarms.look(swarm)
        for member in swarm.members.values():
            facts = agent_facts(swarms, swarm, member, statuses, metadata=given["include_metadata"])
            if _is_selected(given["filter"], member, facts["status"]):
                found.append(facts)
    return {"agents": found[-MOST_LISTED:]}


def _is_selected(selection: str, member: Member, status: str) -> bool:
    match selection:
        case "all":
            return not member.ended
        case "active":
            return status in ("active", "busy")
        case "idle":
            return status == "active"
        case _:
            return status == selection


async def task_status(swarms: Swarms, given: Given) -> Facts:
    if given["taskId"]:
        swarm, task = swarms.find_task(given["taskId"])
        status = (await swarms.look(swarm))[task.id]
        try:
            return await whole_task(swarms, swarm, task, status)
        except RunNotFound:
            return task_facts(swarm, task, status)
    found: list[Facts] = []
    for swarm in [swarms.find(given["swarmId"])] if given["swarmId"] else swarms.all():
        statuses = await swarms.look(swarm)
        found += [task_facts(swarm, task, statuses[task.id]) for task in swarm.tasks.values()]
    return {"tasks": sorted(found, key=lambda one: one["createdAt"])[-MOST_LISTED:]}


async def swarm_destroy(swarms: Swarms, given: Given) -> Facts:
    swarm = swarms.find(given["swarmId"])
    await swarms.destroy(swarm)
    return {"swarmId": swarm.id, "status": "destroyed"}


async def server_info(swarms: Swarms, given: Given) -> Facts:
    del given
    return {
        "server_id": "ccswarm",
        "server_type": "ccswarm",
        "version": __version__,
        "supported_tools": list(TOOLS),
        "agent_count": sum(len(swarms.active(swarm)) for swarm in swarms.all()),
        "swarm_count": len(swarms.all()),
    }


async def snapshot(swarms: Swarms, given: Given) -> Facts:
    del given
    agents = await agent_list(swarms, {"swarmId": None, "filter": "all", "include_metadata": True})
    tasks = await task_status(swarms, {"taskId": None, "swarmId": None})
    shown = [swarm_facts(swarms, swarm, await swarms.look(swarm)) for swarm in swarms.all()]
    return {"swarms": shown, **agents, **tasks}


async def metrics(swarms: Swarms, given: Given) -> Facts:
    del given
    every = swarms.all()
    counts: dict[str, int] = {}
    for one in every:
        for status in (await swarms.look(one)).values():
            counts[name_of(status)] = counts.get(name_of(status), 0) + 1
    agents = sum(len(swarms.active(one)) for one in every)
    return {"swarms": len(every), "active_agents": agents, "tasks": counts}


INIT: Params = {
    "topology": Param("string", "Who works with whom", True, choices=("hierarchical", "mesh", "ring", "star")),
    "maxAgents": Param("integer", "Maximum agents (default: 10)"),
    "strategy": Param(
        "string", "How agents are selected", default="adaptive", choices=("adaptive", "balanced", "specialized")
    ),
}
SPAWN: Params = {
    "swarmId": SWARM,
    "type": Param("string", "Agent type", True, choices=TYPES),
    "capabilities": Param("array", "Agent capabilities: only these of the configured ones"),
    "name": Param("string", "Custom agent name", most=100),
}
ORCHESTRATE: Params = {
    "swarmId": SWARM,
    "task": Param("string", "Task description", True),
    "strategy": Param(
        "string", "How many agents work at once", default="adaptive", choices=("parallel", "sequential", "adaptive")
    ),
    "priority": Param(
        "string", "Priority of the task", default="medium", choices=("low", "medium", "high", "critical")
    ),
    "maxAgents": Param("integer", "Maximum agents for task"),
}
MORE = {
    "include_topology": Param("boolean", "Include its structure", default=False),
    "include_performance": Param("boolean", "Include the state of its tasks", default=False),
}
STATUS: Params = {"swarmId": SWARM, **MORE}
LIST: Params = {
    "swarmId": Param("string", "Only of this swarm", most=100),
    "filter": Param(
        "string",
        "Which agents",
        default="all",
        choices=("all", "active", "idle", "busy", "starting", "stopped", "terminated"),
    ),
    "include_metadata": Param("boolean", "Include further facts", default=False),
}
TASK: Params = {
    "taskId": Param("string", "Task identifier; default: all tasks", most=100),
    "swarmId": Param("string", "Only of this swarm", most=100),
}
TOOLS: dict[str, Method] = {
    "swarm_init": Method("Initialize multi-agent swarm.", INIT, swarm_init),
    "agent_spawn": Method("Spawn agent in swarm.", SPAWN, agent_spawn),
    "task_orchestrate": Method(
        "Orchestrate task across swarm.", ORCHESTRATE, task_orchestrate, {**ORCHESTRATE, "swarmId": NEWEST}
    ),
    "swarm_status": Method("Get swarm status.", STATUS, swarm_status, {**MORE, "swarmId": NEWEST}),
    "agent_terminate": Method("Terminate an agent.", {"agentId": AGENT}, agent_terminate),
    "agent_list": Method("List the agents of all swarms, or of one.", LIST, agent_list),
    "task_status": Method("State of a task, or of all tasks.", TASK, task_status),
    "swarm_destroy": Method("End a swarm, its tasks and its agents.", {"swarmId": SWARM}, swarm_destroy),
    "server_info": Method("Facts about this server.", {}, server_info),
}
METHODS: dict[str, Method] = {
    **TOOLS,
    "agents/list": TOOLS["agent_list"],
    "swarm.initialize": TOOLS["swarm_init"],
    "visualization.snapshot": Method("All facts.", {}, snapshot),
    "metrics.get": Method("Counts of everything.", {}, metrics),
}


def list_tools() -> list[Facts]:
    """Return the tools as ``tools/list`` has them."""
    return [
        {"name": name, "description": one.about, "inputSchema": schema_of(one.params if one.tool is None else one.tool)}
        for name, one in TOOLS.items()
    ]


async def call(swarms: Swarms, method: Method, given: Given, *, as_tool: bool) -> Facts:
    """Call a method with checked parameters. Raises Fault and SwarmError."""
    params = method.tool if as_tool and method.tool is not None else method.params

    def more(name: str) -> Sequence[str]:
        return swarms.types() if name == "type" else ()

    return await method.work(swarms, checked(params, given, more))
