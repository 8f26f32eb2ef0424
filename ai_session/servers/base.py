"""What a way in must do, and what it may use: a connection, the gate, the daemon that hosts it.

A server only translates: bytes of one peer into calls at the gate, results back into bytes. It decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ai_session.models import ExitStatus, Principal, ToolCall, ToolResult

Progress = Callable[[float, str], Awaitable[None]]


class Tool(Protocol):
    """A tool as a server shows it."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def destructive(self) -> bool: ...
    @property
    def idempotent(self) -> bool: ...
    @property
    def open_world(self) -> bool: ...
    @property
    def always_load(self) -> bool: ...
    @property
    def input_schema(self) -> Mapping[str, Any]: ...
    @property
    def output_schema(self) -> Mapping[str, Any]: ...


class Viewer(Protocol):
    """A person's window on a session. ``ended`` is None while the session lives."""

    @property
    def ended(self) -> ExitStatus | None: ...
    def output(self) -> AsyncIterator[bytes]: ...
    def write(self, data: bytes) -> None: ...
    async def resize(self, rows: int, cols: int) -> None: ...
    def close(self) -> None: ...


class Gate(Protocol):
    """The one door. ``call`` and ``attach`` wait for a daemon that is still starting; ``list_tools`` cannot."""

    async def call(self, call: ToolCall, progress: Progress | None = None) -> ToolResult: ...
    def list_tools(self, principal: Principal) -> Sequence[Tool]: ...
    async def attach(
        self, principal: Principal, session_ref: str, *, rows: int, cols: int, read_only: bool
    ) -> Viewer: ...


class Host(Protocol):
    """The process a server runs in."""

    async def started(self) -> None:
        """Returns once the gate answers; raises what kept it from starting (AiSessionError for a known reason)."""
        ...

    def status(self) -> Mapping[str, Any]:
        """Plain JSON values: version, pid, directory, uptime_seconds, connections, idle."""
        ...

    def stop(self, *, sessions: bool) -> None:
        """Asks the process to leave; returns at once. With ``sessions`` it ends them, else they stay."""
        ...


@dataclass(frozen=True, slots=True)
class Connection:
    """One peer. ``hello`` is its validated first line; whatever it sent after that line is still in ``reader``."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    principal: Principal
    hello: Mapping[str, Any]
    host: Host


class Server(Protocol):
    """A way in, found by name: ``ai_session/servers/<name>.py`` exports it as ``PLUGIN``."""

    name: str

    async def serve(self, gate: Gate, connection: Connection) -> None:
        """Serves until the peer is gone; cancelled when the daemon stops. The caller closes the writer."""
        ...
