"""What keeps the agents of a plan from working, as far as it can be known before a run."""

from __future__ import annotations

from ccswarm.clones.clones import Workspaces
from ccswarm.config import config, starters
from ccswarm.config.settings import Settings
from ccswarm.errors import ConfigInvalid, Conflict, WorkspaceUnusable


def brain_problems(settings: Settings) -> list[str]:
    """Return what keeps the brains of a plan's agents from working here: packages, keys, programs, prices."""
    money = [settings.swarm.budget, *(task.budget for task in settings.tasks)]
    found: list[str] = []
    for agent in settings.agents[: settings.swarm.max_agents]:
        try:
            brain = starters.load_brain(agent.brain)
        except ConfigInvalid as error:
            found.append(f"agent {agent.name}: {error.message}; {error.suggestion}")
            continue
        priced = any(budget.dollars for budget in (*money, agent.budget))
        problems = brain.problems(agent, config.secret, priced=priced)
        found += [f"agent {agent.name}: {problem}" for problem in problems]
    return found


async def tree_problems(settings: Settings, workspaces: Workspaces, *, ready: bool = False) -> list[str]:
    """Return what keeps the agents that may do a task from having clones: no repository, no commit in it; with
    ``ready`` also why nothing could be merged into it."""
    doers = [agent for task in settings.tasks for agent in settings.agents_for(task) if agent.workspace == "clone"]
    if not doers:
        return []
    names = ", ".join(dict.fromkeys(agent.name for agent in doers))
    if not await workspaces.is_repository():
        what = f"agent {names}: works in a clone, and {workspaces.repository} is not a git repository with a commit"
        return [f'{what} (git init && git add -A && git commit -m Begin, or workspace = "shared")']
    try:
        await workspaces.require_ready(merges=settings.swarm.merge != "branch") if ready else None
    except (Conflict, WorkspaceUnusable) as error:
        return [f"agent {names}: works in a clone: {error.message}"]
    return []
