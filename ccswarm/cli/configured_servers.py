"""The configured servers that a verb names, and the directory in which they start."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ccswarm.errors import UsageInvalid

if TYPE_CHECKING:
    from ccswarm.config.config import Loaded
    from ccswarm.config.settings import ServerSettings, Settings


def workspace_of(loaded: Loaded) -> str:
    """Return the directory of the work; a relative one is relative to the configuration's directory. Raises
    UsageInvalid if it is not a directory."""
    named = loaded.settings.swarm.workspace
    found = (loaded.directory / Path(named).expanduser()).resolve() if named else Path.cwd()
    if not found.is_dir():
        raise UsageInvalid(
            f"the workspace {found} is not a directory", suggestion="create it, or correct swarm.workspace"
        )
    return str(found)


def servers_of(settings: Settings, wanted: Collection[str]) -> list[ServerSettings]:
    """Return the servers with these names, or all if none is given. Raises UsageInvalid for an unknown name."""
    names = [server.name for server in settings.mcp.servers]
    for name in wanted:
        if name not in names:
            raise unknown("server", name, names)
    return [server for server in settings.mcp.servers if not wanted or server.name in wanted]


def unknown(what: str, name: str, names: Sequence[str]) -> UsageInvalid:
    """Return the error about an unknown name."""
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"use one of: {', '.join(names)}" if names else "ccswarm init"
    return UsageInvalid(f"there is no {what} {name!r}", suggestion=hint)
