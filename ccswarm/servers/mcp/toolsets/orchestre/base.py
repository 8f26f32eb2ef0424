"""What every Orchestre tool is made of. The wire adds the envelope, so a tool only answers or refuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from ccswarm.servers.mcp.toolsets.workbench import Workbench
from ccswarm.toolbox.schemas import Schema

Facts = dict[str, Any]
Given = Mapping[str, Any]
Work = Callable[[Workbench, Given], Awaitable[Given]]

PARTIAL: ContextVar[Callable[[str], None]] = ContextVar("PARTIAL", default=lambda _: None)
"""Takes what a call of a tool knows before it ends, for a client that asked for progress."""

LEAST_REQUIREMENTS, MOST_REQUIREMENTS = 10, 5000
"""Characters, white space around them not counted."""

REQUIREMENTS: Facts = {
    "type": "string",
    "minLength": LEAST_REQUIREMENTS,
    "maxLength": MOST_REQUIREMENTS,
    "description": "What is to be built, in words.",
}
"""The schema of ``requirements``, for every tool that takes them."""


class Refusal(Exception):
    """A tool's own no. The client gets it as a result with ``isError``: JSON with ``error``, ``code`` (as in
    TEMPLATE_NOT_FOUND), ``suggestion`` and whatever is in ``more``."""

    def __init__(self, error: str, code: str, suggestion: str = "", more: Given | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.code = code
        self.suggestion = suggestion
        self.more = dict(more or {})


@dataclass(frozen=True, slots=True)
class OrchestreTool:
    """One tool. ``input_schema`` is flat: an object without references and alternatives; further names in the arguments
    are reported as ignored. ``run`` gets arguments that fit it, without those that were null, where the schema names a
    type, and with ``requirements`` stripped; it answers with what stands beside ``success`` and ``metadata``, as in
    ``{"analysis": {...}}``, all of it JSON, or raises Refusal or SwarmError. An answer with ``status: in_progress`` is
    not reported as a success."""

    name: str
    title: str
    description: str
    input_schema: Facts
    run: Work
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    output_schema: None = None
    arguments: Schema = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", Schema(self.input_schema))


def takes(properties: Facts, required: tuple[str, ...] = ()) -> Facts:
    """The input schema of an object with these properties."""
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}
