"""Every way out to a tool server has all of what the port names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agentwire.plugins import load
from ccswarm.clients.base import ToolClient
from ccswarm.config.settings import AgentSettings, ServerSettings, SwarmSettings
from ccswarm.plan.team import Team
from ccswarm.toolbox.mail import Mailboxes
from tests.ccswarm.support.doubles import MemoryClient
from tests.ccswarm.support.engine_double import MemoryEngine

PORT = [name for name in vars(ToolClient) if not name.startswith("_")]


def mail(_: Path) -> ToolClient:
    return Mailboxes(MemoryEngine(), Team(SwarmSettings(), [AgentSettings(name="ada")]))


def mcp(directory: Path) -> ToolClient:
    return load("ccswarm.clients", "mcp").open(
        ServerSettings(name="s", command="none"), env={}, state_directory=directory
    )


def rpc(directory: Path) -> ToolClient:
    settings = ServerSettings(name="s", url="http://127.0.0.1:1/rpc", protocol="rpc")
    return load("ccswarm.clients", "rpc").open(settings, env={}, state_directory=directory)


def memory(_: Path) -> ToolClient:
    return MemoryClient("s")


@pytest.mark.parametrize("make", [mail, mcp, rpc, memory])
def test_a_client_has_what_the_port_names_and_knows_nothing_yet(
    make: Callable[[Path], ToolClient], tmp_path: Path
) -> None:
    client = make(tmp_path)
    assert [name for name in PORT if not hasattr(client, name)] == []
    assert (client.problem, client.about, list(client.notes)) == ("", "", [])
