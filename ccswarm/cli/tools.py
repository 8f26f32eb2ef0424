"""The verbs tools, agents and tasks: what can be used, and by whom."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentwire.cli.output import EXIT_ERROR, leave, remark, say, show_json, show_rows
from agentwire.visible import visible
from ccswarm.cli.configured_servers import servers_of, unknown, workspace_of
from ccswarm.cli.output import Json
from ccswarm.cli.parameters import Config, load, peek
from ccswarm.cli.plan import PlanFile, settings_of
from ccswarm.errors import UsageInvalid

if TYPE_CHECKING:
    from ccswarm.config.settings import AgentSettings, ServerSettings
    from ccswarm.models import ToolInfo
    from ccswarm.toolbox.discovery import Listing

DESCRIPTION_CHARS = 100
"""The length of a description in a table."""


def tools(
    agent: Annotated[str, typer.Option("--agent", "-a", help="Only tools that this agent is granted.")] = "",
    server: Annotated[str, typer.Option("--server", "-s", help="Only this server's.")] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List the tools of all servers, as agents call them; servers that cannot be reached are named on standard error.

    Exit codes: 0 listed, 1 no server works, 2 no such agent or server, or no server at all, 5 the configuration changed
    since a person used it and nobody agreed.
    """
    from ccswarm.plan.check import OWN_SERVER

    loaded = load(config)
    agents = {one.name: one for one in loaded.settings.agents}
    if agent and agent not in agents:
        raise unknown("agent", agent, list(agents))
    own = bool(agents) and server in ("", OWN_SERVER)
    wanted = () if own and server else servers_of(loaded.settings, [server] if server else [])
    if not wanted and not own:
        raise UsageInvalid("no server is configured", suggestion="add one to [mcp] servers; ccswarm init shows how")
    found = asyncio.run(_list_tools(wanted, workspace_of(loaded), own))
    rows = [
        _row(tool, agents.get(agent)) for one in found for tool in one.tools if _is_granted(tool, agents.get(agent))
    ]
    if as_json:
        trusts = {one.name: one.trusted for one in wanted}
        show_json(
            {"tools": rows, "servers": [_server(one) | {"trusted": trusts.get(one.server, True)} for one in found]}
        )
    else:
        shown = [
            {**row, "description": row["description"].strip().partition("\n")[0][:DESCRIPTION_CHARS]} for row in rows
        ]
        show_rows([{**row, "tool": row["full_name"]} for row in shown], ("tool", "effect", "description"))
        for one in found:
            for note in (one.problem, *one.notes):
                if note:
                    remark(f"warning: {visible(note)}")
        for one in wanted:
            if not one.trusted and any(row["server"] == one.name for row in rows):
                remark(
                    f"note: {one.name} is not trusted about what its tools do; "
                    "to trust it: trusted = true in its [[mcp.servers]]"
                )
        if not rows:
            say("There are none." if not agent else f"{agent} is granted none of these servers' tools.")
    leave(EXIT_ERROR if wanted and all(one.problem for one in found[: len(wanted)]) else 0)


async def _list_tools(servers: Sequence[ServerSettings], directory: str, own: bool) -> list[Listing]:
    from ccswarm.toolbox.discovery import listings, own_listing

    return [*await listings(servers, directory), *([own_listing()] if own else [])]


def agents(file: PlanFile = None, config: Config = None, as_json: Json = False) -> None:
    """List the agents of the configuration, or of a plan: what they are and what they may use.

    Exit codes: 0 listed, 2 the configuration or the plan is not valid.
    """
    columns = ("name", "type", "capabilities", "brain", "grants", "approval", "workspace")
    settings = settings_of(file, peek(config))
    if as_json:
        show_json({"agents": [agent.model_dump(mode="json") for agent in settings.agents]})
        return
    show_rows([agent.model_dump(include=set(columns)) for agent in settings.agents], columns)
    if not settings.agents:
        remark("There are no agents: ccswarm init adds one.")
    elif len(settings.agents) > settings.swarm.max_agents:
        say(f"swarm.max_agents is {settings.swarm.max_agents}: later agents get no work.")


def tasks(file: PlanFile = None, config: Config = None, as_json: Json = False) -> None:
    """List the tasks of the configuration, or of a plan, in the order they run, with the agents that can do each.

    Tasks of one stage may run at the same time. Exit codes: 0 listed, 2 the configuration or the plan is not valid.
    """
    from ccswarm.plan.check import describe

    plan = describe(settings_of(file, peek(config)))
    stages = {name: number for number, names in enumerate(plan["stages"], 1) for name in names}
    columns = ("stage", "task", "agents", "priority", "needs", "steps", "text")
    rows: list[dict[str, Any]] = []
    for task in plan["tasks"]:
        facts = {"stage": stages[task["id"]], "task": task["id"], "steps": len(task["steps"])}
        rows.append({"needs": [], "text": "", **task, **facts})
    if as_json:
        show_json({"tasks": [{name: row[name] for name in columns} for row in rows]})
        return
    show_rows(rows, columns)
    if not rows:
        remark(
            'There are no tasks: add [[tasks]], pass a plan file, or give a task in words: ccswarm run "list the files"'
        )


def _is_granted(tool: ToolInfo, agent: AgentSettings | None) -> bool:
    return agent is None or any(fnmatchcase(tool.full_name, grant) for grant in agent.grants)


def _row(tool: ToolInfo, agent: AgentSettings | None) -> dict[str, Any]:
    """Return a row; ``effect`` is what a call may do, by what the server says, and whether it needs approval."""
    effects = ["read-only" if tool.read_only else "may destroy" if tool.destructive else "changing"]
    effects += ["keyed"] if tool.keyed else []
    asked = agent is not None and (agent.approval == "all" or (agent.approval == "destructive" and not tool.read_only))
    effects += ["asks a person"] if asked else []
    return {**asdict(tool), "full_name": tool.full_name, "effect": effects, "asks_person": asked}


def _server(one: Listing) -> dict[str, Any]:
    facts: dict[str, Any] = {"server": one.server, "tools": len(one.tools), "seconds": round(one.seconds, 3)}
    facts |= {"about": one.about} if one.about else {}
    facts |= {"notes": list(one.notes)} if one.notes else {}
    return facts | ({"problem": one.problem, "suggestion": one.suggestion} if one.problem else {})
