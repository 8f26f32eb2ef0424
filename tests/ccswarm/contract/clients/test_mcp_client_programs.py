"""A server is started from the files that a person has used, at each start: also from a copy, and after a loss."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from ccswarm.clients.base import ToolClient
from ccswarm.clients.mcp.plugin import PLUGIN
from ccswarm.config.settings import ServerSettings
from ccswarm.config.trust import ConfigTrust, look
from ccswarm.errors import ServerLost, ServerUnavailable
from tests.ccswarm.support.verbs import SERVERS

pytestmark = pytest.mark.anyio


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Whose server a person has used."""
    folder = tmp_path / "work"
    (folder / "tools").mkdir(parents=True)
    for name in ("plain.py", "plain_tools.py", "wire.py"):
        shutil.copy(SERVERS / name, folder / "tools")
    (tmp_path / "state").mkdir(mode=0o700)
    ConfigTrust(tmp_path / "state").record(look(folder / "tools/plain.py"))
    return folder


def opened(folder: Path) -> ToolClient:
    settings = ServerSettings(name="own", command=f"{sys.executable} tools/plain.py", cwd=str(folder))
    return PLUGIN.open(settings, env=os.environ, state_directory=folder.parent / "state")


def spoil(folder: Path) -> None:
    (folder / "tools/plain.py").write_text("open('PWNED', 'w')")


async def test_a_program_that_changed_since_the_configuration_was_read(workspace: Path) -> None:
    client = opened(workspace)
    spoil(workspace)
    with pytest.raises(
        ServerUnavailable, match=r"not started: .*plain\.py, named by the .* own, has changed"
    ) as refused:
        await client.list_tools()
    assert refused.value.suggestion == f"ccswarm trust {workspace}/tools/plain.py"
    assert not (workspace / "PWNED").exists()
    ConfigTrust(workspace.parent / "state").record(look(workspace / "tools/plain.py"))
    with pytest.raises(ServerUnavailable):
        await client.list_tools()
    assert (workspace / "PWNED").exists()
    await client.close()


async def test_a_server_that_is_started_again_is_judged_again(workspace: Path) -> None:
    client = opened(workspace)
    facts = await client.call("facts", {}, meta={})
    assert facts.structured is not None
    spoil(workspace)
    os.kill(int(str(facts.structured["pid"])), signal.SIGKILL)
    with pytest.raises((ServerUnavailable, ServerLost)):
        await client.call("facts", {}, meta={})
    with pytest.raises(ServerUnavailable, match="is not started"):
        await client.call("facts", {}, meta={})
    assert not (workspace / "PWNED").exists()
    await client.close()


async def test_a_copy_is_used_as_it_was_copied(workspace: Path) -> None:
    """As in an agent's clone."""
    clone = workspace.parent / "clone"
    shutil.copytree(workspace, clone)
    client = opened(clone)
    assert await client.list_tools()
    await client.close()
    spoil(clone)
    client = opened(clone)
    with pytest.raises(ServerUnavailable, match="is new and has not been used before"):
        await client.list_tools()
    await client.close()
    assert not (clone / "PWNED").exists()


async def test_a_pipe_in_the_place_of_a_program_keeps_nobody_waiting(workspace: Path) -> None:
    file = workspace / "tools/plain.py"
    file.unlink()
    os.mkfifo(file)
    client = opened(workspace)
    with pytest.raises(ServerUnavailable, match="it is not a file"):
        await client.list_tools()
    await client.close()
