"""The tools of all servers by full name. Only tools may have dots in their names: a full name is unambiguous."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ccswarm.clients.base import ToolClient, Unlisted
from ccswarm.errors import ConfigInvalid, LoginNeeded, ServerUnavailable, SwarmError, UnknownTool
from ccswarm.models import ToolInfo


class Catalogue:
    """The tools of ``clients``, requested when needed. Raises ConfigInvalid for a server whose name has a dot."""

    def __init__(self, clients: Mapping[str, ToolClient]) -> None:
        for name in clients:
            if not name or "." in name:
                raise ConfigInvalid(
                    f"a server cannot be named {name!r}: the part after a dot names a tool",
                    suggestion="use letters, digits, - and _",
                )
        self._clients = clients
        self._seen: dict[str, tuple[Sequence[ToolInfo], dict[str, ToolInfo]]] = {}
        self._broken: dict[str, str] = {}
        self._locked: dict[str, LoginNeeded] = {}

    async def all(self, wanted: Callable[[str], bool]) -> list[ToolInfo]:
        """Return the tools of the servers whose names are ``wanted``, in the order of the configuration, then of the
        server. A server that cannot be reached contributes none, and ``problems`` says why."""
        names = [name for name in self._clients if wanted(name)]
        listings = await asyncio.gather(*(self._of(name) for name in names), return_exceptions=True)
        found: list[ToolInfo] = []
        for listing in listings:
            if isinstance(listing, dict):
                found += listing.values()
            elif not isinstance(listing, ServerUnavailable):
                raise listing
        return found

    async def of(self, server: str) -> list[ToolInfo]:
        """Return the tools of one server. Raises ServerUnavailable."""
        return list((await self._of(server)).values())

    async def find(self, tool: str) -> ToolInfo:
        """Return the tool with that full name. Raises UnknownTool and ServerUnavailable."""
        server, _, name = tool.partition(".")
        if server not in self._clients:
            raise UnknownTool(f"there is no server {server[:80]!r}")
        found = (await self._of(server)).get(name)
        if found is None:  # a server is not required to report a new tool
            found = (await self._of(server, fresh=True)).get(name)
        client = self._clients[server]
        if found is None and isinstance(client, Unlisted):
            found = client.unlisted(name)
        if found is None:
            raise UnknownTool(f"server {server} has no tool {name[:80]!r}")
        return found

    def known(self) -> list[str]:
        """Return the full names of all tools listed so far."""
        return [info.full_name for _, index in self._seen.values() for info in index.values()]

    def problems(self) -> dict[str, str]:
        """Return what is wrong, by server or by a tool's full name."""
        found = {name: client.problem for name, client in self._clients.items() if client.problem}
        return {**self._broken, **found}

    def locked(self) -> dict[str, LoginNeeded]:
        """Return the servers that required a login when last used, with the errors they gave."""
        return dict(self._locked)

    async def _of(self, server: str, *, fresh: bool = False) -> dict[str, ToolInfo]:
        try:
            listing = await self._clients[server].list_tools(fresh=fresh)
        except Exception as error:  # a failure of one server must not cost the tools of the others
            self._seen.pop(server, None)
            problem = error.message if isinstance(error, SwarmError) else f"{type(error).__name__}: {error}"
            self._broken[server] = problem[:2000]
            if isinstance(error, LoginNeeded):
                self._locked[server] = error
            if isinstance(error, ServerUnavailable):
                raise
            raise ServerUnavailable(f"the tools of server {server} cannot be listed: {problem[:2000]}") from error
        self._broken.pop(server, None)
        self._locked.pop(server, None)
        seen, index = self._seen.get(server, ((), {}))
        if seen is not listing:
            index = self._index(server, listing)
            self._seen[server] = (listing, index)
        return index

    def _index(self, server: str, listing: Sequence[ToolInfo]) -> dict[str, ToolInfo]:
        for name in [name for name in self._broken if name.startswith(f"{server}.")]:
            del self._broken[name]
        index: dict[str, ToolInfo] = {}
        for info in listing:
            if info.name in index:
                self._broken[f"{server}.{info.name}"] = "the server lists it more than once; the first one is used"
            else:
                index[info.name] = info if info.server == server else replace(info, server=server)
        return index
