"""Tool servers, started where an agent works, and the toolboxes of the agents of each run."""

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
from ccswarm.toolbox.claims import Claims
from ccswarm.toolbox.mail import Mailboxes, MessageStore
from ccswarm.toolbox.scope import ToolScope
from ccswarm.toolbox.telemetry.base import Telemetry
from ccswarm.toolbox.toolbox import Toolbox


class Toolboxes:
    """All toolboxes and tool servers of a process.

    ``writer`` records its calls in the journal, by default the person who uses this machine; ``environ`` is the
    environment from which servers get their variables. ``servers_of`` reads the servers that the files of a run name,
    for runs that another process started. Raises what ``Journal`` raises.

    A server without a directory of its own is started once for each directory in which agents work: an agent's clone or
    the run's workspace. By default, that directory is what the server may touch. Agents of a team have the server
    ``swarm`` if there is a store for its ``messages``.
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
        """Return the toolbox of this scope, opened on first use. Raises ConfigInvalid if its files are wrong."""
        agents = scope.agents
        directory = scope.directory
        team = scope.team
        members = [agent.model_dump(mode="json") for agent in agents.values()]
        identity = json.dumps([team and team.key, list(scope.files), *members], sort_keys=True)
        if (identity, directory) not in self._toolboxes:
            clients = self._clients_for(directory, tuple(scope.files))
            if team and self._messages:
                mail = Mailboxes(self._messages, team, list(clients))
                clients[mail.name] = mail
            self._toolboxes[identity, directory] = Toolbox(
                clients, agents, self._journal, mask=self._mask, process=self.claims.process, telemetry=self._telemetry
            )
        return self._toolboxes[identity, directory]

    async def call(self, scope: ToolScope) -> Callable[[CallRequest], Awaitable[CallOutcome]]:
        toolbox = self.toolbox(scope)

        async def send(request: CallRequest) -> CallOutcome:
            return await toolbox.call(request, budget=None, approved=lambda one: bool(one.approval))

        return send

    async def tools(self, scope: ToolScope, agent: str) -> list[ToolInfo]:
        return list(await self.toolbox(scope).discover_tools(agent))

    async def release(self, directory: str) -> None:
        self._toolboxes = {key: box for key, box in self._toolboxes.items() if key[1] != directory}
        released = [self._clients.pop(key) for key in [key for key in self._clients if key[1] == directory]]
        await asyncio.gather(*(client.close() for client in released), return_exceptions=True)

    async def close(self) -> None:
        """End every server that was started here, then close the journal."""
        self._toolboxes.clear()
        clients = self._clients
        self._clients = {}
        await asyncio.gather(*(client.close() for client in clients.values()), return_exceptions=True)
        self._journal.close()

    def _clients_for(self, directory: str, files: tuple[str, ...]) -> dict[str, ToolClient]:
        found: dict[str, ToolClient] = {}
        servers = self._servers | {server.name: server for server in self._servers_of(files)}
        for server in servers.values():
            own = bool(server.command or server.args) and not server.cwd
            key = (server.model_dump_json(), directory if own else "")
            if key not in self._clients:
                settings = self._placed_in(server, directory) if own and directory else server
                self._clients[key] = plugins.load("ccswarm.clients", server.protocol).open(
                    settings, env=self._environ, state_directory=self._state
                )
            found[server.name] = self._clients[key]
        return found

    def _placed_in(self, server: ServerSettings, directory: str) -> ServerSettings:
        """Return the server's settings for ``directory``, with links resolved: paths of a run have none, but the state
        directory may lie behind links that the person made."""
        at = Path(directory)
        if not at.is_relative_to(self._state):
            return server.placed_in(directory)
        at = self._state.resolve() / at.relative_to(self._state)
        return server.placed_in(str(at), str(clone_around(self._state.resolve(), at) or ""))
