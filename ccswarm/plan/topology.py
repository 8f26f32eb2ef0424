"""Which agents may write to each other, and which one is offered work next. Does no input or output."""

from __future__ import annotations

from collections.abc import Sequence

from ccswarm.config.settings import AgentSettings, Topology
from ccswarm.errors import ConfigInvalid, MessageForbidden

COORDINATOR = "coordinator"


class Links:
    """The topology of some agents. Raises ConfigInvalid if there are none.

    - mesh: every agent writes to every other; work goes to any free one.
    - star: the hub writes to all and all to the hub; work goes to any free one but the hub.
    - hierarchical: as star, and agents of one type also write to each other.
    - ring: each agent writes to the next only, and work is passed on in the same order.

    The hub is the first agent of type coordinator, else the first agent.
    """

    def __init__(self, topology: Topology, agents: Sequence[AgentSettings]) -> None:
        if not agents:
            raise ConfigInvalid(
                "a swarm needs an agent", suggestion='add [[agents]] with name = "…" to the configuration'
            )
        self.topology = topology
        self._types = {agent.name: agent.type for agent in agents}
        self._ring = list(self._types)
        self.hub = next((agent.name for agent in agents if agent.type == COORDINATOR), agents[0].name)

    def may_write(self, sender: str, receiver: str) -> bool:
        """Report whether ``sender`` may write to ``receiver``. False for unknown agents and itself."""
        if sender == receiver or not {sender, receiver} <= self._types.keys():
            return False
        if self.topology == "mesh":
            return True
        if self.topology == "ring":
            return self.next_of(sender) == receiver
        alike = self.topology == "hierarchical" and self._types[sender] == self._types[receiver]
        return self.hub in (sender, receiver) or alike

    def check(self, sender: str, receiver: str) -> None:
        """Raise MessageForbidden if ``sender`` may not write to ``receiver``."""
        if not self.may_write(sender, receiver):
            may = ", ".join(self.reachable(sender)) or "nobody"
            raise MessageForbidden(
                f"{sender!r} may not write to {receiver!r} in a swarm of topology {self.topology}",
                suggestion=f"it may write to: {may}",
            )

    def reachable(self, sender: str) -> list[str]:
        """Return all agents that ``sender`` may write to, in configured order."""
        return [name for name in self._types if self.may_write(sender, name)]

    def next_of(self, name: str) -> str:
        """Return the agent after ``name`` in the ring."""
        return self._ring[(self._ring.index(name) + 1) % len(self._ring)]

    def order(self, last: str) -> list[str]:
        """Return the agents in the order in which open work is offered. ``last`` is the one that was given work before.
        A hub is last, so it works only if no other agent can."""
        if self.topology == "ring" and last:
            start = self._ring.index(last) + 1
            return self._ring[start:] + self._ring[:start]
        if self.topology in ("star", "hierarchical"):
            return [name for name in self._ring if name != self.hub] + [self.hub]
        return list(self._ring)
