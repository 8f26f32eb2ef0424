"""The bundle for Claude Desktop: the official tool takes it, and its uv starts it for an official client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.ai_session.support.mcp_client import stop_daemons
from tests.clients.installing import ROOT, SECONDS, TOOLS, TRUST, Installer, new_environment
from tests.clients.node import Person, program

pytestmark = [pytest.mark.clients, pytest.mark.timeout(2 * SECONDS)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle") / "made"
    command = [sys.executable, str(ROOT / "scripts/bundle.py"), "--output", str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
    return folder


def mcpb(*words: str) -> str:
    ran = Person().run(*program("mcpb"), *words)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def contents(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as packed:
        return {name: packed.read(name) for name in packed.namelist()}


def test_the_official_tool_validates_and_packs_the_same(made: Path, tmp_path: Path) -> None:
    assert "Manifest schema validation passes" in mcpb("validate", str(made / "manifest.json"))
    mcpb("pack", str(made), str(tmp_path / "packed.mcpb"))
    ours = contents(made.with_suffix(".mcpb"))
    assert contents(tmp_path / "packed.mcpb") == {name: data for name, data in ours.items() if name != ".mcpbignore"}
    mcpb("unpack", str(made.with_suffix(".mcpb")), str(tmp_path / "unpacked"))
    assert (tmp_path / "unpacked/manifest.json").read_bytes() == (made / "manifest.json").read_bytes()


def test_what_the_manifest_says_starts_it_for_the_inspector(made: Path, home: Path, tmp_path: Path) -> None:
    """With uv and an empty cache, as on the first day; nobody but uv knows of Python."""
    new_environment(tmp_path / "tools", *TOOLS, home=home)
    (home / ".config/ai-session/config.toml").write_text("")  # sessions are boxed, as by default
    installed, chosen = home / "bundle", home / "chosen"
    zipfile.ZipFile(made.with_suffix(".mcpb")).extractall(installed)
    config: dict[str, Any] = json.loads((installed / "manifest.json").read_text())["server"]["mcp_config"]
    values = {"${__dirname}": str(installed), "${user_config.workspace}": str(chosen)}
    words = [str(tmp_path / "tools/bin" / config["command"]), *config["args"]]
    for name, value in values.items():
        words = [word.replace(name, value) for word in words]
    person = Person([], {**Installer(tmp_path / "tools", home).environment, **TRUST})
    person.run(words[0], "sync", "--quiet", "--project", str(installed), seconds=SECONDS)
    passed_on = [word for name in TRUST for word in ("-e", f"{name}={TRUST[name]}")]
    inspector = [*program("mcp-inspector"), "--cli", "--format", "json", *passed_on, *words]

    def call(tool: str, **arguments: Any) -> dict[str, Any]:
        given = ["--tool-name", tool, "--tool-args-json", json.dumps(arguments)]
        ran = person.run(*inspector, "--method", "tools/call", *given, cwd=Path(os.sep))
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)["result"]["structuredContent"]

    assert call("create_session", name="desktop")["working_directory"] == str(chosen)
    facts = call("execute_command", session_id="desktop", command=f"pwd; touch {installed}/changed")
    assert facts["output"].splitlines()[0] == str(chosen)
    assert facts["exit_code"] == 1, "a session must not write to the bundle"
    stop_daemons(home)
    left_out = [name for name in ("dbos", "sqlalchemy") if list(installed.glob(f".venv/lib/*/site-packages/{name}"))]
    assert left_out == []
