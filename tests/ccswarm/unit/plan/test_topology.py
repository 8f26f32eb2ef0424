"""Who may write to whom in each topology, and to whom work is offered first."""

from __future__ import annotations

import pytest

from ccswarm.config.settings import AgentSettings
from ccswarm.errors import ConfigInvalid, MessageForbidden
from ccswarm.plan.topology import Links

AGENTS = [
    AgentSettings(name="ada", type="coder"),
    AgentSettings(name="bob", type="coder"),
    AgentSettings(name="cleo", type="coordinator"),
    AgentSettings(name="dan", type="analyst"),
]
REACHED = {
    "mesh": {
        "ada": ["bob", "cleo", "dan"],
        "bob": ["ada", "cleo", "dan"],
        "cleo": ["ada", "bob", "dan"],
        "dan": ["ada", "bob", "cleo"],
    },
    "star": {"ada": ["cleo"], "bob": ["cleo"], "cleo": ["ada", "bob", "dan"], "dan": ["cleo"]},
    "hierarchical": {"ada": ["bob", "cleo"], "bob": ["ada", "cleo"], "cleo": ["ada", "bob", "dan"], "dan": ["cleo"]},
    "ring": {"ada": ["bob"], "bob": ["cleo"], "cleo": ["dan"], "dan": ["ada"]},
}


@pytest.mark.parametrize("topology", REACHED)
def test_who_reaches_whom(topology: str) -> None:
    links = Links(topology, AGENTS)  # type: ignore[arg-type]
    assert {agent.name: links.reachable(agent.name) for agent in AGENTS} == REACHED[topology]


@pytest.mark.parametrize("topology", REACHED)
def test_nobody_writes_to_itself_or_to_who_is_not_there(topology: str) -> None:
    links = Links(topology, AGENTS)  # type: ignore[arg-type]
    for sender, receiver in (("ada", "ada"), ("ada", "eve"), ("eve", "ada"), ("eve", "eve"), ("", "ada")):
        with pytest.raises(MessageForbidden):
            links.check(sender, receiver)


def test_a_refusal_names_who_may_be_written_to() -> None:
    with pytest.raises(MessageForbidden, match="'ada' may not write to 'dan' in a swarm of topology star") as refused:
        Links("star", AGENTS).check("ada", "dan")
    assert refused.value.suggestion == "it may write to: cleo"


def test_the_hub_is_the_coordinator_or_the_first() -> None:
    assert Links("star", AGENTS).hub == "cleo"
    assert Links("star", AGENTS[:2]).hub == "ada"


def test_work_goes_to_the_hub_last_and_round_the_ring() -> None:
    assert Links("mesh", AGENTS).order("bob") == ["ada", "bob", "cleo", "dan"]
    assert Links("star", AGENTS).order("bob") == ["ada", "bob", "dan", "cleo"]
    assert Links("hierarchical", AGENTS).order("") == ["ada", "bob", "dan", "cleo"]
    assert Links("ring", AGENTS).order("") == ["ada", "bob", "cleo", "dan"]
    assert Links("ring", AGENTS).order("bob") == ["cleo", "dan", "ada", "bob"]


def test_a_swarm_without_agents_is_refused() -> None:
    with pytest.raises(ConfigInvalid):
        Links("mesh", [])
