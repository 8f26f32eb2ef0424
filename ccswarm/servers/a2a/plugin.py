"""A2A over HTTP: agents of other programs give the swarm tasks, by the standard or in AgentVault's dialect."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence

from agentwire.http.listening import open_listener
from agentwire.http.wire import LOOPBACK_NAMES, Site, host_of
from agentwire.system.peers import is_loopback
from ccswarm.config.settings import Settings
from ccswarm.errors import OperatorError
from ccswarm.servers.base import Admission, Listening, ServeContext, who_takes_words

PORT = 41241
PORT_VARIABLE, TOKEN_VARIABLE = "A2A_PORT", "A2A_AUTH_TOKEN"


class A2a:
    """The dialect of ``ccswarm serve --a2a``. Implements ``Dialect``."""

    name = "a2a"

    def settings(self, settings: Settings, variables: Mapping[str, str]) -> Settings:
        from ccswarm.servers.a2a.agentvault.targets import with_mapped

        return with_mapped(settings, variables)

    async def serve(self, serve_context: ServeContext, listening: Listening, stop: asyncio.Event) -> None:
        host = listening.host or "127.0.0.1"
        port = serve_context.port(listening, PORT_VARIABLE, PORT)
        tokens = serve_context.variables.get(TOKEN_VARIABLE, "").replace(",", " ").split()
        admission = await asyncio.to_thread(serve_context.admission, listening, host, TOKEN_VARIABLE, tokens)
        listener = await asyncio.to_thread(_listener, host, port)
        try:
            await self._serve(serve_context, listening, stop, listener, admission)
        finally:
            listener.close()

    async def _serve(
        self,
        serve_context: ServeContext,
        listening: Listening,
        stop: asyncio.Event,
        listener: socket.socket,
        admission: Admission,
    ) -> None:
        from starlette.applications import Starlette

        from ccswarm.servers.a2a.agentvault import jsonrpc as a2a_vault
        from ccswarm.servers.a2a.agentvault.targets import caller_of_tools
        from ccswarm.servers.a2a.context import DialectContext
        from ccswarm.servers.a2a.http import Guard, Server
        from ccswarm.servers.a2a.standard import jsonrpc as a2a_standard
        from ccswarm.servers.a2a.task_store import Tasks

        host, port = listener.getsockname()[:2]
        app = serve_context.app
        tasks = Tasks(app.state_directory / "a2a", app.settings.engine.retention_days)
        tasks.open()
        context = DialectContext(serve_context, tasks)

        def ready() -> None:
            serve_context.tell(f"A2A is served at {host} port {port}")
            serve_context.tell_admission(admission, host, TOKEN_VARIABLE, "a2a")
            for line in who_takes_words(serve_context.options.last().settings, (), self.name):
                serve_context.tell(line)
            serve_context.tell(caller_of_tools(app.settings, serve_context.options.agent))

        try:
            routes = [*a2a_vault.routes(context), *a2a_standard.routes(context)]
            guard = Guard(
                Starlette(routes=routes),
                site=site_of(listening.host, app.settings.a2a.allowed_hosts),
                admission=admission,
                open_paths={*a2a_vault.OPEN, *a2a_standard.OPEN},
                requests=listening.requests,
            )
            server = Server(
                guard, listener, stop, admission=admission, most=listening.connections, ready=ready, leave=context.close
            )
            await server.run_until_stopped()
        finally:
            await context.close()


def site_of(host: str, more: Sequence[str]) -> Site:
    """Return the names under which clients may address a server at ``host``, which is empty for the default address."""
    names = {*LOOPBACK_NAMES, *map(host_of, (host, *more))}
    if is_loopback(host or LOOPBACK_NAMES[0]):
        return Site(names)
    return Site({*names, socket.gethostname().lower()}, any_address=True)


def _listener(host: str, port: int) -> socket.socket:
    """Return a bound socket. Raises OperatorError."""
    try:
        return open_listener(host, port)
    except OSError as error:
        raise OperatorError(
            f"cannot listen on {host} port {port}: {error.strerror or error}",
            suggestion=f"use another port, or set {PORT_VARIABLE}",
        ) from None


PLUGIN = A2a()
