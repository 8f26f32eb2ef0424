"""The author of a plan, and the agent that its gates act for because of that. Does no input or output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from ccswarm.config.settings import AgentSettings, Gate

GATE_TOOLS = ("create_session", "execute_command", "read_output", "close_session")
"""The tools of the swarm's shell server that an agent must be granted for gates to act for it."""


class Origin(StrEnum):
    """The kind of a plan's author. ``server``: ccswarm made it for a client's call, as Orchestre's tools do."""

    PERSON = "person"
    CLIENT = "client"
    SERVER = "server"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a plan. ``agent`` is the delegating agent if the origin is an agent."""

    origin: Origin
    agent: str = ""

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Author:
        """Read the author from an execution's payload. The default is the origin with the least power."""
        stored: Mapping[str, str] | None = payload.get("author")
        return cls(Origin(stored["origin"]), stored["agent"]) if stored else cls(Origin.CLIENT)

    def to_json(self) -> dict[str, str]:
        """Return the value stored under ``author`` in a payload."""
        return {"origin": self.origin.value, "agent": self.agent}

    def gates_act_for(self, doer: str) -> str:
        """Return the agent whose grants, approval and budget apply to the gates of a task done by ``doer``. It is
        ``""`` if the orchestrator runs them for the person."""
        if self.origin is Origin.PERSON:
            return ""
        return (self.agent if self.origin is Origin.AGENT else "") or doer


def gate_problems(gates: Sequence[Gate], agents: Iterable[AgentSettings], shell: str) -> Iterator[str]:
    """Yield the reasons for which gates not written by the person cannot act for these agents."""
    for number, gate in enumerate(gates, 1):
        if gate.tool:
            yield f"gate {number}: only the person's configuration and plan files may use a tool: give a command"
    for agent in agents if gates else ():
        if missing := missing_for_gates(agent, shell):
            yield (
                f"gates: they are commands run on behalf of agent {agent.name}, which may not run commands: it has no"
                f" grant for {', '.join(missing)}"
            )


def missing_for_gates(agent: AgentSettings, shell: str) -> list[str]:
    """Return the tools that the agent lacks a grant for."""
    needed = [f"{shell}.{name}" for name in GATE_TOOLS]
    return [tool for tool in needed if not any(fnmatchcase(tool, grant) for grant in agent.grants)]
