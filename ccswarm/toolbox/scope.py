"""For whom tools are reached, and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ccswarm.config.settings import AgentSettings
from ccswarm.plan.team import Team


@dataclass(frozen=True, slots=True)
class ToolScope:
    """``agents``, by name, that work in ``directory``. Those of a ``team`` have what its members have with each other,
    too; the servers of ``files`` stand beside those of the process."""

    agents: Mapping[str, AgentSettings]
    directory: str
    team: Team | None = None
    files: Sequence[str] = ()
