"""The parts of all Orchestre tools. The caller adds the envelope, so a tool only answers or refuses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ccswarm.plan.schemas import Schema
from ccswarm.servers.mcp.toolsets.base import Facts, Given
from ccswarm.servers.mcp.workbench import Workbench

Work = Callable[[Workbench, Given], Awaitable[Given]]

LEAST_REQUIREMENTS, MOST_REQUIREMENTS = 10, 5000
"""In characters, without surrounding white space."""

REQUIREMENTS: Facts = {
    "type": "string",
    "minLength": LEAST_REQUIREMENTS,
    "maxLength": MOST_REQUIREMENTS,
    "description": "What is to be built, in words.",
}
"""The schema of ``requirements``, for all tools that have them."""


class Refusal(Exception):
    """A tool's refusal. The client gets it as a result with ``isError``: JSON with ``error``, ``code`` (such as
    TEMPLATE_NOT_FOUND), ``suggestion`` and the members of ``more``."""

    def __init__(self, error: str, code: str, suggestion: str = "", more: Given | None = None) -> None:
        super().__init__(error)
        self.error = error
        self.code = code
        self.suggestion = suggestion
        self.more = dict(more or {})


@dataclass(frozen=True, slots=True)
class OrchestreTool:
    """A tool.

    ``input_schema`` is an object without references and alternatives; other names in the arguments are reported as
    ignored. ``run`` gets arguments that match it, without those that are null if the schema names a type, and with
    ``requirements`` stripped. It returns the members next to ``success`` and ``metadata``, such as ``{"analysis":
    {...}}``, all of them JSON, or raises Refusal or SwarmError. A result with ``status: in_progress`` is not reported
    as a success.
    """

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
    """Return the input schema of an object with these properties."""
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}
