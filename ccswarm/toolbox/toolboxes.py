"""Servers started where an agent works, and a toolbox for each run's agents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from agentwire import plugins
from ccswarm.clients.base import ToolClient
from ccswarm.config.files import clone_around
from ccswarm.config.masks import Masks
from ccswarm.config.settings import ServerSettings
from ccswarm.journal.files import directory_of
from ccswarm.journal.writer import Journal, persons_journal
from ccswarm.models import CallOutcome, CallRequest, ToolInfo
from ccswarm.telemetry.base import Telemetry
from ccswarm.toolbox.claims import Claims
from ccswarm.toolbox.mail import Mailboxes, MessageStore
from ccswarm.toolbox.scope import ToolScope
from ccswarm.toolbox.toolbox import Toolbox


class Toolboxes:
    """Those of a process. ``writer`` is who records its calls in the journal, else the person of this machine;
    ``environ`` is what the servers may be given of. Raises as ``Journal``.

    A server that names no directory is started once for each directory that agents work in: what it may touch by
    default is that directory, an agent's own clone or the run's workspace. ``servers_of`` reads those that the files
    of a run named when it was started, for runs that were begun by another process. Agents of a team have the server
    ``swarm`` where ``messages`` are stored.
    """

    def __init__(
        self,
        servers: Sequence[ServerSettings],
        state_directory: Path,
        environ: Mapping[str, str],
        writer: str = "",
        servers_of: Callable[[tuple[str, ...]], Sequence[ServerSettings]] = lambda _: (),
        telemetry: Telemetry | None = None,
        messages: MessageStore | None = None,
    ) -> None:
        self.claims = Claims()
        self._servers = {server.name: server for server in servers}
        self._servers_of = servers_of
        self._state = state_directory
        self._environ = environ
        self._telemetry = telemetry
        self._messages = messages
        self._clients: dict[tuple[str, str], ToolClient] = {}
        self._toolboxes: dict[tuple[str, str], Toolbox] = {}
        self._mask = Masks(environ)
        directory = directory_of(state_directory)
        self._journal = Journal(directory, writer) if writer else persons_journal(directory)

    def toolbox(self, scope: ToolScope) -> Toolbox:
        """The one of this scope. Raises ConfigInvalid for files that are wrong."""
        agents, directory, team = scope.agents, scope.directory, scope.team
        those = [agent.model_dump(mode="json") for agent in agents.values()]
        who = json.dumps([team and team.key, list(scope.files), *those], sort_keys=True)
        if (who, directory) not in self._toolboxes:
            reached = self._reached(directory, tuple(scope.files))
            if team and self._messages:
                mail = Mailboxes(self._messages, team, list(reached))
                reached[mail.name] = mail
            self._toolboxes[who, directory] = Toolbox(
                reached, agents, self._journal, mask=self._mask, process=self.claims.process, telemetry=self._telemetry
            )
        return self._toolboxes[who, directory]

    async def call(self, scope: ToolScope) -> Callable[[CallRequest], Awaitable[CallOutcome]]:
        toolbox = self.toolbox(scope)

        async def send(request: CallRequest) -> CallOutcome:
            return await toolbox.call(request, budget=None, approved=lambda one: bool(one.approval))

        return send

    async def tools(self, scope: ToolScope, agent: str) -> list[ToolInfo]:
        return list(await self.toolbox(scope).discover_tools(agent))

    async def release(self, directory: str) -> None:
        self._toolboxes = {key: box for key, box in self._toolboxes.items() if key[1] != directory}
        gone = [self._clients.pop(key) for key in [key for key in self._clients if key[1] == directory]]
        await asyncio.gather(*(client.close() for client in gone), return_exceptions=True)

    async def close(self) -> None:
        """Ends every server that was started here, then the journal."""
        self._toolboxes.clear()
        clients = self._clients
        self._clients = {}
        await asyncio.gather(*(client.close() for client in clients.values()), return_exceptions=True)
        self._journal.close()

    def _reached(self, directory: str, files: tuple[str, ...]) -> dict[str, ToolClient]:
        found: dict[str, ToolClient] = {}
        servers = self._servers | {server.name: server for server in self._servers_of(files)}
        for server in servers.values():
            own = bool(server.command or server.args) and not server.cwd
            key = (server.model_dump_json(), directory if own else "")
            if key not in self._clients:
                settings = self._placed(server, directory) if own and directory else server
                self._clients[key] = plugins.load("ccswarm.clients", server.protocol).open(
                    settings, env=self._environ, state_directory=self._state
                )
            found[server.name] = self._clients[key]
        return found

    def _placed(self, server: ServerSettings, directory: str) -> ServerSettings:
        """Where a run works has no links; the state directory may lie behind those that the person made."""
        at = Path(directory)
        if not at.is_relative_to(self._state):
            return server.placed_in(directory)
        at = self._state.resolve() / at.relative_to(self._state)
        return server.placed_in(str(at), str(clone_around(self._state.resolve(), at) or ""))
