"""Runs started, resumed and stopped for people and programs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from agentwire.validation import requirements
from ccswarm.config import config, parsing
from ccswarm.config.settings import PLAYBOOK, AgentSettings, Settings, SwarmSettings, TaskSettings
from ccswarm.config.trust import PLANS, Source, look
from ccswarm.errors import ConfigInvalid, PlanInvalid, ServerUnavailable, UsageInvalid
from ccswarm.models import RunStatus
from ccswarm.plan.check import grant_problems, plan_problems
from ccswarm.plan.origin import Author, Origin, gate_problems
from ccswarm.runs import checks, terminals
from ccswarm.runs.app import new_run_id
from ccswarm.runs.status import MOST_TASKS, ended_here, run_id_of, short, status_of
from ccswarm.toolbox.scope import ToolScope

if TYPE_CHECKING:
    from ccswarm.models import Execution
    from ccswarm.runs.app import App

MAIN = "main"
"""The only task of a run that was started in words."""

OWN_STEPS = "steps"
"""The setting of an agent with a playbook that holds its steps for a task in words."""

CLIENTS_TABLES = ("tasks", "steps", "swarm")
CLIENTS_SWARM = ("name", "strategy")
"""What a client's plan may set, and what of ``swarm``. All else is for the person to set: agents, grants, servers,
limits, and where telemetry goes."""

CHECKER = "checker"
"""The agent that lists all tools before a run starts."""


def with_task(text: str, settings: Settings) -> Settings:
    """Return the settings with a task in words, for the first agent that accepts one: rather a model than a playbook,
    and rather a coordinator. Raises UsageInvalid and ConfigInvalid."""
    able = [agent for agent in settings.agents if agent.takes_words]
    able.sort(key=lambda agent: (agent.follows_words, agent.type != "coordinator"))
    if not able:
        why = "all agents here only follow the steps of a plan" if settings.agents else "there is no agent"
        raise UsageInvalid(
            f"a task in words needs an agent that takes words, and {why}",
            suggestion="write the steps: a file with [[steps]] (id, tool, args), then ccswarm run FILE; or add an "
            "agent: ccswarm init --with claude, or openai, local, none…",
        )
    return settings.model_copy(update={"tasks": (task_in_words(MAIN, text, able[0]),)})


def task_in_words(name: str, text: str, agent: AgentSettings, **more: Any) -> TaskSettings:
    """Return a task in words for that agent. A playbook does its own steps, in which ``${task.text}`` is ``text``.
    Raises ConfigInvalid if they are not valid steps."""
    steps = agent.settings.get(OWN_STEPS, ()) if agent.brain == PLAYBOOK else ()
    try:
        return TaskSettings.model_validate({"id": name, "text": text, "agent": agent.name, "steps": steps, **more})
    except ValidationError as error:
        problems = requirements({**one, "loc": ("settings", *one["loc"])} for one in error.errors()[:5])
        raise ConfigInvalid(f"agent {agent.name}: {problems}", suggestion="fix its [[agents.settings.steps]]") from None


def with_name(settings: Settings, name: str) -> Settings:
    """Return the settings with ``name`` as swarm.name, if it is not empty. Raises UsageInvalid."""
    if not name:
        return settings
    try:
        swarm = SwarmSettings.model_validate({**settings.swarm.model_dump(), "name": name})
    except ValidationError:
        raise UsageInvalid(
            f"{name[:80]!r} is not a valid run name", suggestion="use letters, digits, - and _, at most 63"
        ) from None
    return settings.model_copy(update={"swarm": swarm})


def with_client_plan(text: str, own: Settings, where: str = "the plan") -> Settings:
    """Return the configuration ``own`` with a client's plan. Raises ConfigInvalid; PlanInvalid if the plan has no
    tasks, sets what only the person may set, or has gates that do what its agents may not."""
    tables = parsing.plan_tables(text, where)
    settings = parsing.parse_plan(text, own, where=where)
    forbidden = [f"[{name}]" for name in tables if name not in CLIENTS_TABLES]
    forbidden += [f"[swarm] {name}" for name in tables.get("swarm", ()) if name not in CLIENTS_SWARM]
    if forbidden:
        raise PlanInvalid(
            "; ".join(f"{where}: {name} can only be set in the person's configuration" for name in forbidden),
            suggestion="leave it out: list_agents shows the configured agents",
        )
    if not tables.get("tasks") and not tables.get("steps"):
        raise PlanInvalid(f"{where}: there are no tasks", suggestion="add [[tasks]] with steps, or [[steps]]")
    require_gates(settings)
    return settings


def require_gates(settings: Settings) -> None:
    """Raise PlanInvalid for gates of a client that could not act for an agent that may do the task."""
    wrong = [
        f"task {task.id}: {problem}"
        for task in settings.tasks
        for problem in gate_problems(task.gates, settings.agents_for(task), settings.swarm.shell)
    ]
    if wrong:
        raise PlanInvalid(
            "; ".join(wrong),
            suggestion="leave the gates out, or name an agent that may run commands: list_agents shows their grants",
        )


def store_plan(app: App, run_id: str, plan: str) -> str:
    """Write a client's plan to a file, and return it as a source of the run. Delete the files of old runs."""
    folder = app.state_directory / PLANS
    oldest = time.time() - 2 * 86400 * app.settings.engine.retention_days
    folder.mkdir(mode=0o700, exist_ok=True)
    for file in folder.glob("run_*.toml"):
        with suppress(FileNotFoundError):  # another process deletes them, too
            if file.stat().st_mtime < oldest:
                file.unlink()
    file = folder / f"{run_id}.toml"
    file.touch(mode=0o600)
    file.write_text(plan)
    return str(Source(file, look(file).digest))


def refuse(problems: Sequence[str]) -> None:
    """Raise PlanInvalid if there are ``problems``."""
    if problems:
        raise PlanInvalid("; ".join(problems), suggestion="fix the problems listed above")


async def check(
    opened: App, settings: Settings, directory: str, files: Sequence[str] = (), grants: Sequence[str] = ("*",)
) -> list[str]:
    """Find what the tools and the brains make impossible, before anything starts. The servers of ``files`` are used in
    addition to those of this process; servers that none of ``grants`` covers are not asked. Return the problems of
    servers that are not needed. Raises PlanInvalid, ServerUnavailable and LoginNeeded."""
    assert opened.task_worker
    checker = AgentSettings(name=CHECKER, grants=tuple(grants))
    toolbox = opened.task_worker.toolbox(ToolScope({CHECKER: checker}, directory, files=files))
    tools = {tool.full_name: tool for tool in await toolbox.discover_tools(CHECKER)}
    wrong = [*plan_problems(settings, tools), *grant_problems(settings, tools), *checks.brain_problems(settings)]
    wrong += await checks.tree_problems(settings, opened.task_worker.workspaces(directory))
    problems = toolbox.problems()
    needed = [name for name in problems if any(one.endswith(f"server {name} offers no tools") for one in wrong)]
    toolbox.require_logins(settings.agents, needed)
    for name in needed:
        raise ServerUnavailable(f"server {name}: {problems[name]}", suggestion="ccswarm doctor")
    refuse(wrong)
    return [f"{name}: {problem}" for name, problem in problems.items()]


async def resume(opened: App, text: str) -> Awaitable[Execution]:
    """Check that the run named by ``text`` can continue. Awaiting the result resumes it, or, if it is over, starts a
    new run of what did not succeed, with the current state of its files. Raises RunNotFound and UsageInvalid; awaiting
    raises ConfigInvalid and ConfigChanged before a new run is started."""
    run_id = await run_id_of(opened.engine, text, opened.project)
    found = await opened.engine.status(run_id)
    if found.status is RunStatus.SUCCEEDED:
        return _rerun(opened, found)

    async def begin() -> Execution:
        if found.status is RunStatus.RUNNING and ended_here(found.worker):
            await opened.engine.recover(found.worker)
        await opened.engine.resume(run_id)
        return found

    return begin()


async def _rerun(opened: App, found: Execution) -> Execution:
    """Start a new run of what did not succeed, with the plan as its files have it now."""
    if found.result["status"] == RunStatus.SUCCEEDED:
        raise UsageInvalid(
            f"{found.id} is over: {status_of(found).replace('_', ' ')}",
            suggestion=f"ccswarm runs show {short(found.id)}; ccswarm run starts another one",
        )
    run_id, (plan, sources) = new_run_id(), await asyncio.to_thread(_plan_now, found)
    refuse(plan_problems(plan, None) if plan else [])
    await opened.swarm.rerun(found.id, run_id, plan, sources)
    return await opened.engine.status(run_id)


def _plan_now(found: Execution) -> tuple[Settings | None, Sequence[str]]:
    """Return the plan of a run as its files have it now, and its sources; None if the old plan stays. Raises
    ConfigInvalid and ConfigChanged; PlanInvalid if a client's plan sets what only the person may set by now."""
    sources: Sequence[str] = found.payload.get("files", ())
    (first, *others) = found.payload["plan"]["tasks"]
    origin = Author.of(found.payload).origin
    if origin is Origin.CLIENT and len(sources) > 1:
        own, now = config.settings_of(sources[:1])
        kept = Source.parse(sources[1])
        plan = with_client_plan(config.text_of(kept.path), own) if own and kept.path.is_file() else None
        now = [*now, str(kept)]
    else:
        plan, now = config.settings_of(sources)
    plan = plan if plan and plan.agents else None  # agents that no file names are the default ones
    if plan and first["id"] == MAIN and not others and not any(task.id == MAIN for task in plan.tasks):
        return with_task(first["text"], plan), now  # a task in words is in no file
    return (plan, now) if plan and (origin is Origin.PERSON or len(sources) > 1) else (None, sources)


@dataclass(frozen=True, slots=True)
class Stopped:
    """A stopped run. If ``attended``, a worker carries it out, and ends or interrupts what it has open. If not, that
    was done here to ``terminals``, and ``problems`` say why there may be more."""

    run: Execution
    attended: bool = False
    terminals: int = 0
    problems: Sequence[str] = ()


async def stop(opened: App, text: str, how: str) -> Stopped:
    """Pause or cancel (``how``) a run. Raises RunNotFound, and UsageInvalid if the run is over."""
    run_id = await run_id_of(opened.engine, text, opened.project)
    found = await opened.engine.status(run_id)
    if found.status.over:
        raise UsageInvalid(
            f"{run_id} is over: {status_of(found).replace('_', ' ')}",
            suggestion=f"ccswarm runs show {short(run_id)}",
        )
    tasks = await opened.engine.list(prefix=f"{run_id}.", limit=MOST_TASKS)
    workers = [one.worker for one in (found, *tasks) if one.status is RunStatus.RUNNING]
    await (opened.engine.pause if how == "pause" else opened.engine.cancel)(run_id)
    found = await opened.engine.status(run_id)
    if not tasks or (workers and not any(map(ended_here, workers))):
        return Stopped(found, attended=bool(workers))
    return Stopped(found, False, *await terminals.end_terminals(opened, found, only_interrupt=how == "pause"))
