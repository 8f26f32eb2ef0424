"""What verbs share: options, reading the configuration, opening the store, and the name of the person."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from agentwire.cli.options import Argument, Option
from agentwire.cli.output import remark
from agentwire.visible import visible
from ccswarm.config.files import is_own
from ccswarm.errors import ApprovalNeeded
from ccswarm.system.ancestry import in_session

if TYPE_CHECKING:
    from ccswarm.config.config import Loaded
    from ccswarm.config.project import Project
    from ccswarm.config.trust import Change
    from ccswarm.runs.app import App

MOST_RUNS = 10_000

Config = Annotated[
    Path | None,
    Option("--config", "-c", help="Configuration; else $CCSWARM_CONFIG, ./ccswarm.toml, config/ccswarm.toml…"),
]
RunName = Annotated[str, Argument(metavar="RUN", help="ID of a run, the beginning of one, or: last.")]
LastRun = Annotated[str, Argument(metavar="[RUN]", help="ID of a run, or its beginning; default: the last one here.")]
"""A run that a verb shows or continues; its default is ``LAST``."""


def load(config: Path | None, *, executes: bool = False, workspace: Path | None = None) -> Loaded:
    """Return the configuration that a verb works with. If it has changed since a person used it, the person at this
    terminal is asked. The first use of one that was not named explicitly is reported. ``executes``: agents work in the
    meantime and may create one. Raises ConfigInvalid and ConfigChanged."""
    from ccswarm.cli.trust import asker
    from ccswarm.config import config as files

    loaded = files.load(config, confirm=asker(), remember_absent=executes, workspace=workspace)
    if loaded.begun and loaded.path:
        report_first_use(loaded.path, [server.command for server in loaded.settings.mcp.servers])
    return loaded


def with_agents(loaded: Loaded, types: Sequence[str] = ()) -> Loaded:
    """Return the configuration, with starter agents if it has none, which is reported. Raises ConfigInvalid."""
    from ccswarm.config import config, starters

    found = config.supplied(loaded.settings, types or starters.TYPES[:1], config.server_environment())
    if found.note:
        remark(visible(found.note))
    return replace(loaded, settings=found.settings)


def report_first_use(path: Path, commands: Iterable[str]) -> None:
    """Report on standard error the first use of a configuration that was found, not named, and what it starts."""
    programs = dict.fromkeys(command.split()[0] for command in commands if command.strip())
    what = f"it starts {', '.join(programs)}" if programs else "it starts no program"
    remark(visible(f"{path} is used for the first time: {what}"))


def peek(config: Path | None) -> Loaded:
    """Return the current configuration, approved or not, for a verb that shows it and starts nothing of it."""
    from ccswarm.config import config as files

    return files.peek(config)


@asynccontextmanager
async def open_app(config: Path | None) -> AsyncGenerator[App]:
    """Open the engine that the configuration, as a person used it last, names, to stop runs and answer their questions.
    Raises ConfigInvalid and EngineUnavailable."""
    import asyncio

    await asyncio.to_thread(import_module, "ccswarm.runs.app")  # a fifth of a second
    from ccswarm.config import config as files
    from ccswarm.runs import app

    loaded = files.load_last(config)
    if loaded.changed:
        report_last_used(loaded.changed, loaded.path)
    async with app.submitting(loaded.settings, files.state_directory()) as opened:
        yield replace(opened, project=project_of(loaded, config))


def report_last_used(changed: Change, applied: Path | None) -> None:
    """Report that a file has changed, and what applies instead: its version that was used before, another
    configuration, ``applied``, or the defaults if that is None."""
    instead = f"{applied} applies" if applied else "the defaults apply"
    if applied == changed.now.path:
        instead = "the version used before applies"
    remark(visible(f"{changed.what()}; {instead} until a person agrees: {changed.remedy()}"))


def project_of(loaded: Loaded, config: Path | None) -> Project:
    """Return the project whose runs ``last`` means; ``config`` is the configuration that was named, if any."""
    from ccswarm.config.project import Project

    own = bool(config) or bool(loaded.path and is_own(loaded.path))
    return Project.at(loaded.path, loaded.settings.swarm.workspace, own=own)


def check_person() -> None:
    """Raise ApprovalNeeded in a session of ai-session, where an agent may be typing."""
    from ccswarm.config import config as files

    if in_session(files.server_environment()):
        raise ApprovalNeeded(
            "inside a session of ai-session a person's agreement or message is not accepted: an agent may work here",
            suggestion="run the same command in a terminal of your own",
        )
