"""What a way in asks of the gate, whether it is in this process, still starting, or in another process."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ai_session.models import Answer, Principal, Question, ToolCall, ToolResult

if TYPE_CHECKING:
    # A way in answers its first lines before anything heavy is imported.
    from ai_session.models import Change, ChangeKind


class Asker(Protocol):
    """A client's own way to put a question to its person."""

    @property
    def deferred(self) -> bool:
        """The question is answered by calling again: it is returned, not awaited."""
        ...

    async def ask(self, question: Question) -> Answer | None:
        """The person's word; None when none could be had. A denial with a ``reason`` is a form that nobody filled in:
        it is a denial, but others may still answer the question."""
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
    """What one watcher has not heard of yet. ``close`` it when it hears no more."""

    async def next(self) -> frozenset[Change]:
        """All that changed since the last answer, as soon as there is something; nothing once closed."""
        ...

    def close(self) -> None:
        """Hear no more; a waiting ``next`` returns nothing. Idempotent."""
        ...


class GateApi(Protocol):
    """The one door, as clients' ways in use it. What has not been started yet starts with the first use."""

    async def call(self, call: ToolCall, asker: Asker | None = None) -> ToolResult:
        """Run one call. Raises UnknownTool only; every other failure is a result with ``is_error``.

        A result with a ``question`` ran nothing: the caller's person is to answer it. Cancelling the wait never ends a
        command.
        """
        ...

    async def list_tools(self, principal: Principal, also: Collection[str] = ()) -> Sequence[ListedTool]:
        """The tools that are listed, or named by ``also``, and that this principal may ever use, sorted by name. Raises
        what keeps the gate from starting, DaemonUnavailable."""
        ...

    async def watch_changes(
        self, principal: Principal, agent: str = "", run: str = "", kinds: Collection[ChangeKind] | None = None
    ) -> Watched:
        """What changes from now on in the sessions this caller sees; all ``kinds`` where none is named.

        Raises InsufficientScope, Denied, RateLimited, StorageFull, DaemonUnavailable.
        """
        ...
