"""What every way out to a tool server offers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ccswarm.models import ServerAnswer, ToolInfo

OnProgress = Callable[[float, float | None, str], None]
"""Progress, total, message, as the server reports them."""


class ToolClient(Protocol):
    """One configured server. Starts when first needed; after the server ended, the next use starts it again."""

    @property
    def name(self) -> str:
        """The server's name in the configuration."""
        ...

    @property
    def problem(self) -> str:
        """Why the server could not be used the last time, with its last words; ``""`` when it could."""
        ...

    @property
    def about(self) -> str:
        """What the server said of itself the last time it was started, for people: name, version, protocol; ``""``
        where it says nothing."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What was wrong with the list of tools the last time: which were left out, and why."""
        ...

    async def list_tools(self, *, fresh: bool = False) -> Sequence[ToolInfo]:
        """All its tools, every page, in the server's order; kept until the server says that they changed, was started
        again, or ``fresh``. Raises ServerUnavailable."""
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
        """One ``tools/call``; progress does not restart the time-out, which covers the whole call. Cancelling the wait
        also cancels the call at the server. Raises ServerUnavailable (nothing was sent), ServerLost, CallTimedOut,
        InvalidArguments and UnknownTool where the server refuses the request itself."""
        ...

    async def close(self) -> None:
        """End the connection, and the server with every process of its group where it was started here."""
        ...


@runtime_checkable
class Unlisted(Protocol):
    """A ToolClient of a server that may have tools it does not list."""

    def unlisted(self, name: str) -> ToolInfo | None:
        """What may be called by that name, though nothing is known of it; None where there is no more than the list
        says."""
        ...


class Person(Protocol):
    """Who logs in."""

    def go_to(self, url: str) -> None:
        """Takes them to the address where they agree, or shows it."""
        ...

    def show(self, message: str) -> None:
        """Says something to them."""
        ...

    async def pasted(self) -> str:
        """The address their browser was sent to afterwards, where they paste it; else waits for ever."""
        ...
