"""The facts about swarms, agents and tasks in responses. Every number is counted from what the engine has; what is not
measured is left out."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ccswarm.models import RunStatus
from ccswarm.runs.status import facts_of
from ccswarm.servers.visionflow.plans import links_of
from ccswarm.servers.visionflow.store import Assigned, Member, StoredSwarm
from ccswarm.servers.visionflow.swarms import Swarms
from ccswarm.toolbox.questions import command_for

Facts = dict[str, Any]
Statuses = Mapping[str, RunStatus]

MOST_RESULT_CHARS = 60_000
NAMES = {RunStatus.SUCCEEDED: "completed", RunStatus.EXHAUSTED: "failed", RunStatus.BLOCKED: "failed"}
"""The protocol's names of statuses, if they differ."""


def name_of(status: RunStatus) -> str:
    """Return a task's status: queued, running, waiting_approval, paused, completed, failed, cancelled."""
    return NAMES.get(status, status.value)


def time_of(seconds: float) -> str:
    """Return a time in ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def swarm_facts(swarms: Swarms, swarm: StoredSwarm, statuses: Statuses) -> Facts:
    """Return the documented status of a swarm."""
    found = list(statuses.values())
    return {
        "swarmId": swarm.id,
        "topology": swarm.topology,
        "activeAgents": len(swarms.active(swarm)),
        "maxAgents": swarm.most,
        "pendingTasks": sum(not status.over for status in found),
        "completedTasks": sum(status is RunStatus.SUCCEEDED for status in found),
    }


def topology_facts(swarms: Swarms, swarm: StoredSwarm) -> Facts:
    """Return the structure of a swarm; ``coordination_layers`` is 2 if a hub delegates to the other agents."""
    active = swarms.active(swarm)
    hub = swarm.topology in ("star", "hierarchical") and len(active) > 1
    return {"topology_type": swarm.topology, "total_agents": len(active), "coordination_layers": 2 if hub else 1}


def performance_facts(statuses: Statuses) -> Facts:
    """Return counts of tasks; ``efficiency_score`` is the share of completed ones among those that are over."""
    over = [status for status in statuses.values() if status.over]
    completed = sum(status is RunStatus.SUCCEEDED for status in over)
    facts: Facts = {"tasks_over": len(over), "tasks_failed": len(over) - completed}
    return {**facts, **({"efficiency_score": round(completed / len(over), 3)} if over else {})}


def agent_facts(swarms: Swarms, swarm: StoredSwarm, member: Member, statuses: Statuses, *, metadata: bool) -> Facts:
    """Return an entry of ``agent_list``."""
    own = [task for task in swarm.tasks.values() if member.id in task.members or member.handle in task.shares]
    active = sum(member.id in task.members and not statuses[task.id].over for task in own)
    agent_loop = swarms.loop_of(member)
    alive = agent_loop is not None and agent_loop.alive and not member.ended
    waiting = "starting" if agent_loop is None or not agent_loop.problem else "stopped"
    status = "terminated" if member.ended else waiting if not alive else "busy" if active else "active"
    facts: Facts = {
        "id": member.id,
        "name": member.name,
        "type": member.type,
        "status": status,
        "swarm_id": swarm.id,
        "capabilities": member.capabilities,
        "performance": _performance(member, own, active),
    }
    if not metadata:
        return facts
    links, hub = links_of(swarm, swarm.living())
    position = {
        "layer": int(bool(hub) and member.id != hub),
        "connections": links.get(member.id, []),
        "is_coordinator": member.id == hub,
    }
    about: Facts = {
        "configured_agent": member.template,
        "called": member.handle,
        "spawned_at": time_of(member.spawned),
        "uptime_seconds": round((member.ended or time.time()) - member.spawned, 1),
        "task_queue_size": active,
        "error_count": facts["performance"]["tasks_failed"],
        "topology_position": position,
        "coordination_role": "coordinator" if member.id == hub else "member",
    }
    problem = {"problem": agent_loop.problem} if agent_loop and agent_loop.problem else {}
    return {**facts, "metadata": {**about, **problem}}


def _performance(member: Member, own: list[Assigned], active: int) -> Facts:
    """Return counts of finished tasks; an agent has no process of its own whose processor time could be reported."""
    shares = [task.shares[member.handle] for task in own if member.handle in task.shares]
    completed = sum(share.status == RunStatus.SUCCEEDED for share in shares)
    calls = sum(share.calls for share in shares)
    seconds = sum(share.seconds for share in shares)
    facts: Facts = {
        "tasks_active": active,
        "tasks_completed": completed,
        "tasks_failed": len(shares) - completed,
        "tool_calls": calls,
        "token_usage": sum(share.tokens for share in shares),
        "tool_seconds": round(seconds, 3),
    }
    facts |= {"success_rate": round(100 * completed / len(shares), 1)} if shares else {}
    return facts | ({"tool_call_ms": round(1000 * seconds / calls, 1)} if calls else {})


def task_facts(swarm: StoredSwarm, task: Assigned, status: RunStatus) -> Facts:
    """Return a task as an entry of a list."""
    ended = {"endedAt": time_of(task.ended)} if task.over else {}
    return {
        "taskId": task.id,
        "swarmId": swarm.id,
        "task": task.text,
        "status": name_of(status),
        "strategy": task.strategy,
        "priority": task.priority,
        "assignedAgents": len(task.members),
        "createdAt": time_of(task.created),
        **ended,
    }


async def whole_task(swarms: Swarms, swarm: StoredSwarm, task: Assigned, status: RunStatus) -> Facts:
    """Return a task with the results of its parts. Raises RunNotFound if its run is no longer stored."""
    facts = await facts_of(swarms.engine, task.runs[-1])
    if not status.over and facts["status"] == RunStatus.WAITING_APPROVAL:
        status = RunStatus.WAITING_APPROVAL
    parts = [
        {
            "agent": part["agent"] or name,
            "status": name_of(RunStatus(part["status"])),
            "summary": part["summary"],
            "result": _bounded(part["result"]),
        }
        for name, part in facts["tasks"].items()
        if "." not in name
    ]
    commands = [command_for(one) for one in facts["approvals"]]
    more = {"waitsFor": commands} if commands else {}
    return {**task_facts(swarm, task, status), "run": task.runs[-1], "parts": parts, "usage": facts["usage"], **more}


def _bounded(result: Any) -> Any:
    text = json.dumps(result, ensure_ascii=False)
    return result if len(text) <= MOST_RESULT_CHARS else f"{text[:MOST_RESULT_CHARS]}…"
