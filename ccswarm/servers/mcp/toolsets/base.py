"""What a set of tools of the MCP server is. A new one is a folder with a ``plugin.py``, listed after the swarm's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from ccswarm.servers.mcp.workbench import Workbench

Facts = dict[str, Any]
Given = Mapping[str, Any]

PARTIAL: ContextVar[Callable[[str], None]] = ContextVar("PARTIAL", default=lambda _: None)
"""Receives what a tool call knows before it ends, for a client that asked for progress."""


class Tool(Protocol):
    """A tool as clients list it, with MCP's annotations. ``output_schema`` is that of the facts of its answers."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def input_schema(self) -> Facts: ...
    @property
    def output_schema(self) -> Facts | None: ...
    @property
    def read_only(self) -> bool: ...
    @property
    def destructive(self) -> bool: ...
    @property
    def idempotent(self) -> bool: ...
    @property
    def open_world(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """A tool's answer: ``facts`` that match its output schema, and the same as ``text``."""

    text: str
    facts: Facts


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call failed, as ``text``, and as ``error`` for programs."""

    text: str
    error: Facts | None = None


class MissingFields(Exception):
    """Required arguments are missing; ``details`` names all of them. The call was not made, and not counted."""

    def __init__(self, details: str) -> None:
        super().__init__(details)
        self.details = details


class Toolset(Protocol):
    """A set of tools, by name in the order of their list. Those of ``changes_runs`` change the list of runs."""

    @property
    def tools(self) -> Mapping[str, Tool]: ...
    @property
    def changes_runs(self) -> frozenset[str]: ...

    async def call(self, workbench: Workbench, name: str, arguments: Given) -> Answer | Failure:
        """Call one of ``tools`` with what the client gave. Raises MissingFields for arguments
        that the set's document has answered by a JSON-RPC error."""
        ...
