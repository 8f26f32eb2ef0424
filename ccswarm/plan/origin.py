"""Who wrote a plan, and for whom its gates act because of that. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from ccswarm.config.settings import AgentSettings, Gate

GATE_TOOLS = ("create_session", "execute_command", "read_output", "close_session")
"""Of the swarm's shell server: what an agent has to be granted so that gates may act for it."""


class Origin(StrEnum):
    """Whose words a plan is. ``server``: ccswarm made it for a client's call, as Orchestre's tools do."""

    PERSON = "person"
    CLIENT = "client"
    SERVER = "server"
    AGENT = "agent"


@dataclass(frozen=True, slots=True)
class Author:
    """``agent`` is who handed the work on, where the origin is an agent."""

    origin: Origin
    agent: str = ""

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Author:
        """As the payload of an execution says; where it says nothing, the one with the least power."""
        given: Mapping[str, str] | None = payload.get("author")
        return cls(Origin(given["origin"]), given["agent"]) if given else cls(Origin.CLIENT)

    def to_json(self) -> dict[str, str]:
        """What stands as ``author`` in a payload."""
        return {"origin": self.origin.value, "agent": self.agent}

    def gates_act_for(self, doer: str) -> str:
        """The agent whose grants, approval and budget hold for the gates of a task that ``doer`` does; ``""`` where the
        orchestrator runs them for the person."""
        if self.origin is Origin.PERSON:
            return ""
        return (self.agent if self.origin is Origin.AGENT else "") or doer


def gate_problems(gates: Sequence[Gate], agents: Iterable[AgentSettings], shell: str) -> Iterator[str]:
    """What keeps gates that the person did not write from acting for these agents."""
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
    """The tools that an agent would have to be granted."""
    needed = [f"{shell}.{name}" for name in GATE_TOOLS]
    return [tool for tool in needed if not any(fnmatchcase(tool, grant) for grant in agent.grants)]
