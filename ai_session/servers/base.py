"""What a server must do, and what it may use: a connection, the gate, the daemon that hosts it.

A server only translates: bytes of one client into calls at the gate, results back into bytes. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ai_session.errors import AiSessionError
from ai_session.models import Principal, ToolCall, ToolResult

if TYPE_CHECKING:
    # Loading the gate takes hundreds of milliseconds; a server must be able to answer before that.
    from asyncio import StreamReader, StreamWriter

    from ai_session.gate.api import Asker, GateApi
    from ai_session.gate.gate import Gate
    from ai_session.gate.person import PersonActions


class Host(Protocol):
    """The process in which a server runs."""

    async def gate(self) -> Gate:
        """Return the gate, started if necessary. Raises DaemonUnavailable or what prevents it from starting."""
        ...

    def status(self) -> Mapping[str, Any]:
        """Return JSON values: version, pid, directory, uptime_seconds, connections, idle."""
        ...

    def read_from(self) -> Mapping[str, Any]:
        """Return the files of the settings in force, as ``config.stamp`` described them; nothing before that."""
        ...

    def stop(self, *, sessions: bool, asked: Collection[str] | None = None) -> list[str]:
        """Ask the process to shut down and return at once. With ``sessions`` it ends them, otherwise they stay.

        Returns the names of those it ends. Raises SessionExists, and ends nothing, if there is one whose id is not
        among ``asked``.
        """
        ...


@dataclass(frozen=True, slots=True)
class Connection:
    """The connection of one client. ``hello`` is its validated first line; what it sent after it is still in
    ``reader``.

    ``version`` is the newest of the socket's protocol versions that both ends support.
    """

    reader: StreamReader
    writer: StreamWriter
    principal: Principal
    hello: Mapping[str, Any]
    daemon: Host
    version: int = 1


class Server(Protocol):
    """A server, found by name: ``ai_session/servers/<name>.py`` exports it as ``PLUGIN``."""

    name: str

    async def serve(self, connection: Connection) -> None:
        """Serve until the client disconnects; cancelled when the daemon stops. The caller closes the writer."""
        ...


async def person_of(connection: Connection) -> PersonActions:
    """Return the actions of people, once the gate answers. Raises what prevents it from starting."""
    return (await connection.daemon.gate()).person


async def call_gate(gate: Callable[[], Awaitable[GateApi]], call: ToolCall, asker: Asker | None = None) -> ToolResult:
    """Run one call, once the gate answers. Raises only UnknownTool; every other failure, also of a gate that cannot
    start, is a result with ``is_error``."""
    try:
        ready = await gate()
    except AiSessionError as error:
        return ToolResult.failure(error.code, error.message, error.suggestion, call.call_id)
    return await ready.call(call, asker)
