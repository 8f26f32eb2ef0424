"""Which agents use tools, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ccswarm.config.settings import AgentSettings
from ccswarm.plan.team import Team


@dataclass(frozen=True, slots=True)
class ToolScope:
    """The ``agents``, by name, that work in ``directory``. Those of a ``team`` also have the tools for messages and
    delegation; the servers in ``files`` are added to those of the process."""

    agents: Mapping[str, AgentSettings]
    directory: str
    team: Team | None = None
    files: Sequence[str] = ()
