"""The verbs mcp install, uninstall and status; and where a server works that is started nowhere in particular."""

from __future__ import annotations

import json
from contextlib import chdir
from pathlib import Path

import pytest

from ccswarm.config import config
from ccswarm.servers.base import ServerOptions
from tests.ccswarm.support.verbs import Verbs


@pytest.fixture
def verbs(home: Path) -> Verbs:
    (home / "shop").mkdir()
    return Verbs(home)


def test_a_client_is_set_up_and_the_rest_of_its_file_stays(verbs: Verbs) -> None:
    file = verbs.home / ".cursor/mcp.json"
    file.parent.mkdir()
    file.write_text('{"mcpServers": {"other": {"command": "x"}}, "theme": "dark"}')
    said = verbs.json("mcp", "install", "--client", "cursor")
    assert (said["changed"], said["backup"]) == (True, f"{file}.before-ccswarm")
    written = json.loads(file.read_text())
    assert (written["theme"], written["mcpServers"]["other"]) == ("dark", {"command": "x"})
    assert written["mcpServers"]["ccswarm"]["args"][-2:] == ["mcp-server", "--stdio"]
    states = {(row["client"], row["scope"]): row["state"] for row in verbs.json("mcp", "status")}
    assert states["cursor", "user"] == "installed"
    verbs.run("mcp", "uninstall", "--client", "cursor")
    assert "ccswarm" not in json.loads(file.read_text())["mcpServers"]


def test_a_desktop_client_is_told_the_workspace_and_its_configuration(verbs: Verbs) -> None:
    (verbs.home / "shop/ccswarm.toml").write_text("")
    shop = Verbs(verbs.home / "shop")
    entry = json.loads(shop.run("mcp", "install", "--client", "claude-desktop", "--print").out)
    printed = shop.json("mcp", "install", "--client", "claude-desktop", "--print")
    assert json.loads(printed["text"]) == entry
    args = entry["mcpServers"]["ccswarm"]["args"]
    assert args[-4:] == ["--config", str(shop.home / "ccswarm.toml"), "--workspace", str(shop.home.resolve())]
    assert "--workspace" not in shop.run("mcp", "install", "--client", "codex", "--print").out
    assert "no scope 'local'" in shop.run("mcp", "install", "--client", "codex", "--scope", "local", code=2).err


def test_a_server_that_is_started_in_the_root_works_in_a_workspace_of_its_own(verbs: Verbs) -> None:
    with chdir("/"):
        root = ServerOptions().root(config.peek())
    assert root == verbs.home.resolve() / "ccswarm-workspace"
    assert root.is_dir()
