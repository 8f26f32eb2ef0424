"""The interface of telemetry for calls, and its empty implementation for when no collector is configured."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol

from ai_session.models import ToolCall, ToolResult

Ended = Callable[[ToolResult], ToolResult]
"""Accepts a call's result and returns it."""


class CallRecord(Protocol):
    """What the gate knows about a call once it has ended; see ``gate.trace.Trace``."""

    outcome: str
    rule: str
    code: str
    facts: dict[str, Any]


class Telemetry:
    """Exports nothing; ``spans`` has the implementation that does."""

    def call(self, call: ToolCall, trace: CallRecord) -> AbstractContextManager[Ended]:
        """Surround one call; call what is yielded with its result, if it has one. ``trace`` is read at the end."""
        return NOTHING

    def part(self, name: str) -> AbstractContextManager[object]:
        """Surround a part of a call that may take long."""
        return NOTHING

    def start(self) -> None:
        """Start on the running loop, before the first call."""

    async def close(self) -> None:
        """Send what is left, within a limited time."""


class _Nothing:
    def __enter__(self) -> Ended:
        return _same

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        pass


def _same(result: ToolResult) -> ToolResult:
    return result


NOTHING = _Nothing()
