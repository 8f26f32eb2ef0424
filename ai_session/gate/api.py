"""What a server needs of the gate, whether it is in this process, still starting, or in another process."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ai_session.models import Answer, Principal, Question, ToolCall, ToolResult

if TYPE_CHECKING:
    # A way in answers its first lines before anything heavy is imported.
    from ai_session.models import Change, ChangeKind


class Asker(Protocol):
    """A client's own way to ask its person a question."""

    @property
    def deferred(self) -> bool:
        """Whether the question is returned and answered by a repeated call, instead of awaited."""
        ...

    async def ask(self, question: Question) -> Answer | None:
        """Return the person's answer, or None if there is none. A denial with a ``reason`` is a form that was not
        filled in: it is a denial, but others may still answer the question."""
        ...


class ListedTool(Protocol):
    """The description of a tool for callers."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> Mapping[str, Any]: ...
    @property
    def output_schema(self) -> Mapping[str, Any]: ...
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


class Watched(Protocol):
    """The changes that one watcher has not been given yet. ``close`` it when done."""

    async def next(self) -> frozenset[Change]:
        """Return everything changed since the last call, as soon as something has; nothing once closed."""
        ...

    def close(self) -> None:
        """Stop watching; a waiting ``next`` returns nothing. May be called twice."""
        ...


class GateApi(Protocol):
    """The gate as clients' servers use it. If it has not started yet, the first use starts it."""

    async def call(self, call: ToolCall, asker: Asker | None = None) -> ToolResult:
        """Run one call. Raises only UnknownTool; every other failure is a result with ``is_error``.

        If the result has a ``question``, nothing was run, and the caller's person must answer it first. Cancelling the
        wait never ends a command.
        """
        ...

    async def list_tools(self, principal: Principal, also: Collection[str] = ()) -> Sequence[ListedTool]:
        """Return the tools that are listed, or in ``also``, and that this principal may ever use, sorted by name.
        Raises DaemonUnavailable, and any error that prevents the gate from starting."""
        ...

    async def watch_changes(
        self, principal: Principal, agent: str = "", run: str = "", kinds: Collection[ChangeKind] | None = None
    ) -> Watched:
        """Return the changes from now on in the sessions this caller sees; of all ``kinds`` if none is given.

        Raises InsufficientScope, Denied, RateLimited, StorageFull, DaemonUnavailable.
        """
        ...
