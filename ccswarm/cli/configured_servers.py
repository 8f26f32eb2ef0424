"""The servers of the configuration that are meant, and where they are started."""

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
    """The directory of the work: relative ones count from the configuration's."""
    named = loaded.settings.swarm.workspace
    return str((loaded.directory / Path(named).expanduser()).resolve()) if named else str(Path.cwd())


def servers_of(settings: Settings, wanted: Collection[str]) -> list[ServerSettings]:
    """Those with these names, all without any. Raises UsageInvalid for a name that no server has."""
    names = [server.name for server in settings.mcp.servers]
    for name in wanted:
        if name not in names:
            raise unknown("server", name, names)
    return [server for server in settings.mcp.servers if not wanted or server.name in wanted]


def unknown(what: str, name: str, names: Sequence[str]) -> UsageInvalid:
    """The error about a name that nothing has."""
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there is: {', '.join(names)}" if names else "ccswarm init"
    return UsageInvalid(f"there is no {what} {name!r}", suggestion=hint)
