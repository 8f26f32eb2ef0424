"""``settings`` of an agent whose brain is ``cli``: which program thinks for it, and how it is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from agentwire.validation import requirements
from ccswarm.config.settings import Section
from ccswarm.errors import PlanInvalid

OURS = ("prompt", "round", "attempt")
"""The names that a task adds to an agent's settings."""


class CliSettings(Section):
    """An agent that is driven by a program on the command line."""

    program: str = Field(description="claude, codex, gemini, or the name of another program, which needs a command.")
    command: tuple[str, ...] = Field(
        default=(),
        description="Command line of another program, or one that replaces a known program's. {prompt_file},"
        " {mcp_config}, {directory}, {model} and {session} are replaced.",
    )
    resume: tuple[str, ...] = Field(
        default=(), description="Command line that resumes {session}; empty: another program starts over."
    )
    model: str = Field(default="", description="Its model; empty: the program's own choice.")
    base_url: str = Field(default="", description="URL of its API; empty: the vendor's.")
    environment: dict[str, str] = Field(
        default={}, description="Environment of the program; $NAME is replaced by the variable or secret of that name."
    )
    args: tuple[str, ...] = Field(default=(), description="More arguments for a known program, before its own.")
    shell: str = Field(default="", description="Terminal server it runs in; empty: the swarm's.")
    restarts: int = Field(default=2, ge=0, le=20, description="How many times it is restarted after being killed.")


def settings_of(given: Mapping[str, Any], agent: str) -> CliSettings:
    """Parse the settings. Raises PlanInvalid, naming every problem."""
    try:
        found = CliSettings.model_validate({name: value for name, value in given.items() if name not in OURS})
    except ValidationError as error:
        problems = requirements({**one, "loc": ("settings", *one["loc"])} for one in error.errors())
        known = ", ".join(CliSettings.model_fields)
        raise PlanInvalid(f"agent {agent}: {problems}", suggestion=f"settings of brain cli: {known}") from None
    return found
