"""Runs as people and programs ask for them: begun, gone on with, stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ccswarm.config import config, parsing
from ccswarm.config.settings import PLAYBOOK, AgentSettings, Settings, SwarmSettings, TaskSettings
from ccswarm.config.trust import PLANS, Source, look
from ccswarm.errors import ConfigInvalid, PlanInvalid, ServerUnavailable, UsageInvalid
from ccswarm.models import Priority, RunStatus
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
"""The one task of a run that was begun with words."""

OWN_STEPS = "steps"
"""The setting of an agent that follows a playbook: what it does with a task in words."""

CLIENTS_TABLES = ("tasks", "steps", "swarm")
CLIENTS_SWARM = ("name", "strategy")
"""What a client's plan may say, and what of the swarm. All else is what the person allows: agents, grants, servers,
limits, and where telemetry goes."""

CHECKER = "checker"
"""Who looks at all tools there are before a run starts."""


def in_words(text: str, settings: Settings) -> Settings:
    """With one task in words, for the first agent that takes them: one that thinks before one that goes by the words,
    a coordinator before others. Raises UsageInvalid, ConfigInvalid."""
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
    """A task that is only said, for that agent: one that follows a playbook does the steps it has of its own, in which
    ``${task.text}`` is what was said. Raises ConfigInvalid where these are none."""
    steps = agent.settings.get(OWN_STEPS, ()) if agent.brain == PLAYBOOK else ()
    try:
        return TaskSettings.model_validate({"id": name, "text": text, "agent": agent.name, "steps": steps, **more})
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5])
        raise ConfigInvalid(
            f"agent {agent.name}: settings.{problems}", suggestion="fix its [[agents.settings.steps]]"
        ) from None


def named(settings: Settings, name: str) -> Settings:
    """With ``name`` instead of swarm.name, where one is given. Raises UsageInvalid."""
    if not name:
        return settings
    try:
        swarm = SwarmSettings.model_validate({**settings.swarm.model_dump(), "name": name})
    except ValidationError:
        raise UsageInvalid(
            f"{name[:80]!r} cannot name a run", suggestion="use letters, digits, - and _, at most 63"
        ) from None
    return settings.model_copy(update={"swarm": swarm})


def planned(text: str, own: Settings, where: str = "the plan") -> Settings:
    """The configuration ``own`` with a client's plan, which has tasks and leaves alone what is the person's to say.
    Raises ConfigInvalid; PlanInvalid, also where its gates would do what the agents that may do the task may not."""
    said = parsing.plan_tables(text, where)
    settings = parsing.parse_plan(text, own, where=where)
    more = [f"[{name}]" for name in said if name not in CLIENTS_TABLES]
    more += [f"[swarm] {name}" for name in said.get("swarm", ()) if name not in CLIENTS_SWARM]
    if more:
        raise PlanInvalid(
            "; ".join(f"{where}: {name} can only be set in the person's configuration" for name in more),
            suggestion="leave it out: list_agents shows the configured agents",
        )
    if not said.get("tasks") and not said.get("steps"):
        raise PlanInvalid(f"{where}: there are no tasks", suggestion="add [[tasks]] with steps, or [[steps]]")
    require_gates(settings)
    return settings


def require_gates(settings: Settings) -> None:
    """Raises PlanInvalid where gates that no person wrote could not act for an agent that may do the task."""
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


def kept(app: App, run_id: str, plan: str) -> str:
    """The file in which a client's plan is kept, as a source of its run for whoever goes on with it; those of old runs
    go."""
    folder = app.state_directory / PLANS
    oldest = time.time() - 2 * 86400 * app.settings.engine.retention_days
    folder.mkdir(mode=0o700, exist_ok=True)
    for file in folder.glob("run_*.toml"):
        with suppress(FileNotFoundError):  # another process removes them, too
            if file.stat().st_mtime < oldest:
                file.unlink()
    file = folder / f"{run_id}.toml"
    file.touch(mode=0o600)
    file.write_text(plan)
    return str(Source(file, look(file).digest))


def refuse(problems: Sequence[str]) -> None:
    """Raises PlanInvalid where there are any."""
    if problems:
        raise PlanInvalid("; ".join(problems), suggestion="fix the problems listed above")


async def check(
    opened: App, settings: Settings, directory: str, files: Sequence[str] = (), grants: Sequence[str] = ("*",)
) -> list[str]:
    """What the servers' tools and the brains make impossible is found before anything starts, with the servers of
    ``files`` beside those of this process; servers that none of ``grants`` reaches are not asked. Returns which servers
    that are not needed do not work; raises PlanInvalid, ServerUnavailable, LoginNeeded."""
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


async def submit(
    opened: App,
    settings: Settings,
    directory: str,
    sources: Sequence[str],
    run_id: str = "",
    priority: Priority = "medium",
    *,
    origin: Origin,
    by: str = "",
) -> Execution:
    """Queue a run; a second time with its id does nothing. ``origin`` is who wrote its tasks, ``by`` the person who
    began it, where one did."""
    run_id = run_id or new_run_id()
    await opened.swarm.submit(settings, run_id, directory, sources, priority, origin=origin, by=by)
    return await opened.engine.status(run_id)


async def go_on(opened: App, text: str) -> Awaitable[Execution]:
    """Looks whether the run that is meant can continue; what is returned makes it go on, or, of one that is over,
    begins a new run of what did not succeed, as its files say it now. Raises RunNotFound, UsageInvalid; and then,
    before there is that run, ConfigInvalid, ConfigChanged."""
    run_id = await run_id_of(opened.engine, text, opened.project)
    found = await opened.engine.status(run_id)
    if found.status is RunStatus.SUCCEEDED:
        return _again(opened, found)

    async def begin() -> Execution:
        if found.status is RunStatus.RUNNING and ended_here(found.worker):
            await opened.engine.recover(found.worker)
        await opened.engine.resume(run_id)
        return found

    return begin()


async def _again(opened: App, found: Execution) -> Execution:
    """As the plan's files say it now, where the plan is theirs."""
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
    """The plan of a run as its files say it now, and these as sources; None where it stays the one it had. Raises
    ConfigInvalid, ConfigChanged; PlanInvalid where a client's plan says what the person has not allowed it since."""
    sources: Sequence[str] = found.payload.get("files", ())
    (first, *others) = found.payload["plan"]["tasks"]
    origin = Author.of(found.payload).origin
    if origin is Origin.CLIENT and len(sources) > 1:
        own, now = config.settings_of(sources[:1])
        kept = Source.parse(sources[1])
        plan = planned(config.text_of(kept.path), own) if own and kept.path.is_file() else None
        now = [*now, str(kept)]
    else:
        plan, now = config.settings_of(sources)
    plan = plan if plan and plan.agents else None  # agents that no file names were those to begin with
    if plan and first["id"] == MAIN and not others and not any(task.id == MAIN for task in plan.tasks):
        return in_words(first["text"], plan), now  # it was a task in words, which no file says
    return (plan, now) if plan and (origin is Origin.PERSON or len(sources) > 1) else (None, sources)


@dataclass(frozen=True, slots=True)
class Stopped:
    """``attended``: a worker carries the run out, and ends or interrupts what it has open. Where none does, how many
    ``terminals`` that was done to here, and why there may be others."""

    run: Execution
    attended: bool = False
    terminals: int = 0
    problems: Sequence[str] = ()


async def stop(opened: App, text: str, how: str) -> Stopped:
    """``how`` is pause or cancel. Raises RunNotFound, UsageInvalid where the run is over."""
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
