"""What a way in must do, and what it may use: a connection, the gate, the daemon that hosts it.

A server only translates: bytes of one peer into calls at the gate, results back into bytes. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
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
    """The process a server runs in."""

    async def gate(self) -> Gate:
        """The gate, started where nobody did yet. Raises what kept it from starting, DaemonUnavailable."""
        ...

    def status(self) -> Mapping[str, Any]:
        """Plain JSON values: version, pid, directory, uptime_seconds, connections, idle."""
        ...

    def read_from(self) -> Mapping[str, Any]:
        """The files that the settings in force are from, as ``config.stamp`` had them then; nothing before that."""
        ...

    def stop(self, *, sessions: bool) -> None:
        """Asks the process to leave; returns at once. With ``sessions`` it ends them, else they stay."""
        ...


@dataclass(frozen=True, slots=True)
class Connection:
    """One peer. ``hello`` is its validated first line; what it sent after that line is still in ``reader``.

    ``version`` is the newest of the socket's protocol that both ends know.
    """

    reader: StreamReader
    writer: StreamWriter
    principal: Principal
    hello: Mapping[str, Any]
    daemon: Host
    version: int = 1


class Server(Protocol):
    """A way in, found by name: ``ai_session/servers/<name>.py`` exports it as ``PLUGIN``."""

    name: str

    async def serve(self, connection: Connection) -> None:
        """Serves until the peer is gone; cancelled when the daemon stops. The caller closes the writer."""
        ...


async def person_of(connection: Connection) -> PersonActions:
    """What a person may do, once the gate answers. Raises what keeps it from starting."""
    return (await connection.daemon.gate()).person


async def call_gate(gate: Callable[[], Awaitable[GateApi]], call: ToolCall, asker: Asker | None = None) -> ToolResult:
    """As ``GateApi.call``; a gate that cannot start is a result with ``is_error``, too."""
    try:
        ready = await gate()
    except AiSessionError as error:
        return ToolResult.failure(error.code, error.message, error.suggestion, call.call_id)
    return await ready.call(call, asker)
