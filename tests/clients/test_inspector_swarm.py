"""The MCP Inspector's command line has the swarm work, strict about schemas, in each era."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.clients.node import Person, program

DATA = Path(__file__).parents[1] / "data/swarm_servers"
CONFIG = f"""
[engine]
poll_seconds = 0.05
[[mcp.servers]]
name = "small"
command = "{sys.executable} {DATA}/plain.py"
[[agents]]
name = "ada"
grants = ["small.*"]
[[steps]]
id = "say"
tool = "small.echo"
args = {{ text = "hello" }}
"""


@pytest.fixture
def person(home: Path) -> Person:
    (home / "ccswarm.toml").write_text(CONFIG)
    return Person()


def inspect(person: Person, home: Path, era: str, *words: str) -> tuple[int, dict[str, Any], str]:
    """Exit status, result and standard error of one run, which is one server process."""
    server = [str(Path(sys.executable).with_name("ccswarm")), "mcp-server", "--stdio"]
    server += ["--workspace", str(home), "--config", str(home / "ccswarm.toml")]
    line = [*program("mcp-inspector"), "--cli", "--format", "json", "--protocol-era", era, *words, "--", *server]
    ran = person.run(*line)
    return ran.returncode, json.loads(ran.stdout or "{}").get("result", {}), ran.stderr


@pytest.mark.clients
@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_every_schema_is_portable_and_calls_are_answered(person: Person, home: Path, era: str) -> None:
    status, result, complaints = inspect(person, home, era, "--method", "tools/list", "--strict")
    assert (status, complaints) == (0, "")
    assert len(result["tools"]) == 18
    status, result, _ = inspect(person, home, era, "--method", "tools/call", "--tool-name", "start_run")
    assert (status, result["structuredContent"]["run"][:4]) == (0, "run_")
    status, result, _ = inspect(person, home, era, "--method", "resources/read", "--uri", "run://list")
    assert status == 0
    assert len(json.loads(result["contents"][0]["text"])) == 1
