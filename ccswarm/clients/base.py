"""The interface of clients of tool servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ccswarm.models import ServerAnswer, ToolInfo

UNKNOWN_EFFECT = "whether it had an effect is unknown: check before calling it again"
"""The suggestion for a call without an answer."""

OnProgress = Callable[[float, float | None, str], None]
"""A function called with progress, total and message, as the server reports them."""


class ToolClient(Protocol):
    """The client of one configured server. It starts on first use, and again on the next use after the server ended."""

    @property
    def name(self) -> str:
        """The server's name in the configuration."""
        ...

    @property
    def problem(self) -> str:
        """Why the server could not be used the last time, with its last output; ``""`` if it could."""
        ...

    @property
    def about(self) -> str:
        """The server's name, version and protocol as of its last start, for people; ``""`` if unknown."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """The problems of its last list of tools: which were left out, and why."""
        ...

    async def list_tools(self, *, fresh: bool = False) -> Sequence[ToolInfo]:
        """Return all tools of the server, across all pages, in its order. Cached until the server reports a change or
        restarts, or ``fresh`` is true. Raises ServerUnavailable."""
        ...

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        timeout_seconds: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ServerAnswer:
        """Make one ``tools/call`` and return the answer. The time limit covers the whole call; progress does not extend
        it. Cancelling the caller also cancels the call at the server. Raises ServerUnavailable (nothing was sent),
        ServerLost, CallTimedOut, and InvalidArguments or UnknownTool if the server rejects the request itself."""
        ...

    async def close(self) -> None:
        """Close the connection, and end the server with its whole process group if it was started here."""
        ...


@runtime_checkable
class Unlisted(Protocol):
    """A ToolClient of a server that may have tools it does not list."""

    def unlisted(self, name: str) -> ToolInfo | None:
        """Return a tool that may be called by that name without further information. None if the list is complete."""
        ...


class Person(Protocol):
    """The person who logs in."""

    def go_to(self, url: str) -> None:
        """Open or show the address where they agree."""
        ...

    def show(self, message: str) -> None:
        """Show a message."""
        ...

    async def pasted(self) -> str:
        """Return the address that their browser was redirected to, once they paste it; until then it waits."""
        ...
