"""The verbs mcp install, uninstall and status; and where a server works that is started nowhere in particular."""

from __future__ import annotations

import json
from contextlib import chdir
from pathlib import Path

import pytest

from ccswarm.config import config
from ccswarm.servers.base import ServerOptions
from tests.ccswarm.support.verbs import Desk


@pytest.fixture
def desk(home: Path) -> Desk:
    (home / "shop").mkdir()
    return Desk(home)


def test_a_client_is_set_up_and_the_rest_of_its_file_stays(desk: Desk) -> None:
    file = desk.home / ".cursor/mcp.json"
    file.parent.mkdir()
    file.write_text('{"mcpServers": {"other": {"command": "x"}}, "theme": "dark"}')
    said = desk.json("mcp", "install", "--client", "cursor")
    assert (said["changed"], said["backup"]) == (True, f"{file}.before-ccswarm")
    written = json.loads(file.read_text())
    assert (written["theme"], written["mcpServers"]["other"]) == ("dark", {"command": "x"})
    assert written["mcpServers"]["ccswarm"]["args"][-2:] == ["mcp-server", "--stdio"]
    states = {(row["client"], row["scope"]): row["state"] for row in desk.json("mcp", "status")}
    assert states["cursor", "user"] == "installed"
    desk.run("mcp", "uninstall", "--client", "cursor")
    assert "ccswarm" not in json.loads(file.read_text())["mcpServers"]


def test_a_desktop_client_is_told_the_workspace_and_its_configuration(desk: Desk) -> None:
    (desk.home / "shop/ccswarm.toml").write_text("")
    shop = Desk(desk.home / "shop")
    entry = json.loads(shop.run("mcp", "install", "--client", "claude-desktop", "--print").out)
    args = entry["mcpServers"]["ccswarm"]["args"]
    assert args[-4:] == ["--config", str(shop.home / "ccswarm.toml"), "--workspace", str(shop.home.resolve())]
    assert "--workspace" not in shop.run("mcp", "install", "--client", "codex", "--print").out
    assert "no scope 'local'" in shop.run("mcp", "install", "--client", "codex", "--scope", "local", code=2).err


def test_a_server_that_is_started_in_the_root_works_in_a_workspace_of_its_own(desk: Desk) -> None:
    with chdir("/"):
        root = ServerOptions().root(config.peek())
    assert root == desk.home.resolve() / "ccswarm-workspace"
    assert root.is_dir()
