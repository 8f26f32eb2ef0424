"""What a person or program wants done: the file of a plan, a task in words, or the tasks of the configuration."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from ccswarm.clones.clones import Workspaces
from ccswarm.config import config
from ccswarm.config.config import Confirm, Loaded
from ccswarm.config.files import clones_directory
from ccswarm.config.settings import Settings
from ccswarm.errors import PlanInvalid, UsageInvalid
from ccswarm.plan.check import grant_problems, plan_problems
from ccswarm.runs.checks import brain_problems, tree_problems
from ccswarm.runs.service import with_task
from ccswarm.toolbox.discovery import called_tools

HINT = 'ccswarm run "list the files" takes a task in words; ccswarm init writes a configuration with tasks'


def load_tasks(
    what: str | None,
    loaded: Loaded,
    *,
    confirm: Confirm | None = None,
    workspace: Path | None = None,
    only_look: bool = False,
) -> Loaded:
    """Return the settings with the tasks that ``what`` names, and the files they are from. With ``only_look``, the
    person need not have agreed to these files. Raises PlanInvalid, UsageInvalid, ConfigInvalid and ConfigChanged."""
    if what is None:
        if not loaded.settings.tasks:
            source = loaded.path or "there is no configuration, and so"
            raise PlanInvalid(
                f"{source}: there are no tasks", suggestion='ccswarm init, or ccswarm run "list the files"'
            )
        return loaded
    if not what.strip():
        raise UsageInvalid("there is nothing to do", suggestion='ccswarm run "list the files"')
    if Path(what).exists():
        if only_look:
            return replace(loaded, settings=config.peek_plan(Path(what), loaded.settings))
        guessed = os.sep not in what and Path(what).suffix not in (".toml", ".json")
        return config.load_plan(Path(what), loaded.settings, confirm=confirm, workspace=workspace, guessed=guessed)
    one_word = not any(char.isspace() for char in what)
    if (one_word and (_near(what) or os.sep in what)) or what.endswith(".toml"):
        raise no_file(what)
    return replace(loaded, settings=with_task(what, loaded.settings))


def no_file(name: str) -> UsageInvalid:
    """Return the error about a plan's file that does not exist."""
    near = _near(name)
    return UsageInvalid(f"there is no file {name}", suggestion=f"did you mean {near[0]}?" if near else HINT)


def _near(name: str) -> list[str]:
    return get_close_matches(name, [path.name for path in Path().glob("*.toml")], n=1)


def directory(given: Path | None, settings: Settings, loaded: Loaded) -> str:
    """Return the absolute directory of the work, relative to a configuration's file. Raises UsageInvalid."""
    configured = loaded.directory / Path(settings.swarm.workspace).expanduser() if settings.swarm.workspace else None
    found = (given or configured or Path.cwd()).expanduser().absolute()
    if not found.is_dir():
        raise UsageInvalid(f"the workspace {found} is not a directory", suggestion="create it, or pass --workspace")
    return str(found.resolve())


def sources(loaded: Loaded, plan: Loaded) -> list[str]:
    """Return the files from which a run of ``plan``, read over ``loaded``, is started."""
    return list(dict.fromkeys([*loaded.sources, *plan.sources]))


async def problems(settings: Settings, workspace: str) -> list[str]:
    """Return all problems that can be known before a run, without asking a model. Raises ServerUnavailable."""
    tools = await called_tools(settings, workspace)
    workspaces = Workspaces(Path(workspace), clones_directory(config.state_directory()), config.server_environment())
    wrong = [*plan_problems(settings, tools), *grant_problems(settings, tools)]
    wrong += await asyncio.to_thread(brain_problems, settings)
    return [*wrong, *await tree_problems(settings, workspaces, ready=True)]
