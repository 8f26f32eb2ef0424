"""ai-session among the servers of a client: its file keeps what it says."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING

import pytest

from ai_session.tools.integration.plans import PRESENT
from tests.ai_session.support.integration_planning import TOKEN, judged, planned
from tests.ai_session.support.integration_projects import CLIENTS, Project, apply_plan

if TYPE_CHECKING:
    from pathlib import Path


ENTRY = {"command": "ai-session", "args": ["mcp-server", "--stdio"]}


EXISTING = {
    "none": None,
    "empty object": "{}",
    "blank": "\n",
    "empty table": '{\n    "KEY": {}\n}\n',
    "another": '{\n\t"KEY": {\n\t\t"other": {\n\t\t\t"command": "x"\n\t\t}\n\t}\n}\n',
    "one line": '{"KEY": {"other": {"command": "x"}}, "theme": "dark"}',
    "other keys": '{\n  "theme": "dark",\n  "list": [{"a": 1}, {"a": 1}]\n}',
    "windows": '\ufeff{\r\n  "KEY": {\r\n    "other": {"command": "x"}\r\n  }\r\n}\r\n',
    "alike": '{"a": {"KEY": {}}, "KEY": {"x": {"KEY": {}}}}',
}


@pytest.mark.parametrize("state", EXISTING)
@pytest.mark.parametrize("client", [name for name, (path, _) in CLIENTS.items() if path.endswith(".json")])
def test_a_client_s_file_keeps_what_it_says(home: Path, client: str, state: str) -> None:
    path, keys = CLIENTS[client]
    text = EXISTING[state]
    given = {} if text is None else {path: text.replace("KEY", keys[0])}
    root = Project(client, {"README": "", **given}).write(home / "p")
    plan = planned(root, client)
    assert judged(root, plan)["issues"] == []
    apply_plan(root, plan)
    after = (root / path).read_bytes().decode()
    data = json.loads(after.removeprefix("\ufeff"))
    entry = data[keys[0]].pop("ai-session")
    assert {name: entry[name] for name in ENTRY} == ENTRY
    expected = json.loads((given.get(path) or "").strip().removeprefix("\ufeff") or "{}")
    assert data == {keys[0]: {}, **expected}
    if state == "windows":
        assert after.count("\n") == after.count("\r\n")
    repeated = planned(root, client)
    assert (repeated["edits"], PRESENT in repeated["warnings"][0]) == ([], True)
    assert all(PRESENT in warning for warning in judged(root, plan)["warnings"])


@pytest.mark.parametrize(
    "text", [None, "", 'model = "x"', "[mcp_servers.other]\ncommand = 'x'\n", "\r\n[a]\r\nb = 1\r\n"]
)
def test_codex_keeps_what_its_file_says(home: Path, text: str | None) -> None:
    path = CLIENTS["codex"][0]
    root = Project("codex", {"README": "", **({} if text is None else {path: text})}).write(home / "p")
    plan = planned(root, "codex")
    assert judged(root, plan)["issues"] == []
    apply_plan(root, plan)
    after = (root / path).read_bytes().decode()
    assert after.startswith(text or "")
    assert tomllib.loads(after)["mcp_servers"]["ai-session"] == ENTRY
    assert planned(root, "codex")["edits"] == []


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("vscode", '{\n  // mine\n  "servers": {}\n}\n'),
        ("claude-code", "[]"),
        ("claude-code", '{"mcpServers": []}'),
        ("claude-code", '{"a": 1'),
        ("cursor", "[" * 100_000),
        ("codex", 'mcp_servers = { other = { command = "x" } }\n'),
        ("codex", "model = \n"),
        ("ccswarm", 'mcp = { servers = [{ name = "other", command = "x" }] }\n'),
    ],
)
def test_a_file_that_cannot_be_edited_is_left_alone(home: Path, client: str, text: str) -> None:
    path = {**{name: path for name, (path, _) in CLIENTS.items()}, "ccswarm": "ccswarm.toml"}[client]
    root = Project(client, {path: text}).write(home / "p")
    plan = planned(root, client)
    assert plan["edits"] == []
    assert plan["warnings"]
    assert PRESENT not in plan["warnings"][0]


def test_the_place_of_an_entry_is_not_named_by_somebody_s_token(home: Path) -> None:
    text = json.dumps({"mcpServers": {"other": {"command": "x", "env": {"TOKEN": TOKEN}}}})
    root = Project("", {".mcp.json": text}).write(home / "p")
    plan = planned(root, "claude-code")
    assert TOKEN not in json.dumps(plan)
    assert judged(root, plan)["issues"] == []
    apply_plan(root, plan)
    data = json.loads((root / ".mcp.json").read_text())["mcpServers"]
    assert data["other"]["env"] == {"TOKEN": TOKEN}
    assert data["ai-session"]["command"] == "ai-session"


@pytest.mark.parametrize("before", [None, "", '[swarm]\nname = "mine"\n', '[[mcp.servers]]\nname = "a"\ncommand = "b"'])
def test_a_swarm_gets_terminals(home: Path, before: str | None) -> None:
    root = Project("", {"README": "", **({} if before is None else {"ccswarm.toml": before})}).write(home / "p")
    plan = planned(root, "ccswarm")
    assert judged(root, plan)["issues"] == []
    apply_plan(root, plan)
    servers = tomllib.loads((root / "ccswarm.toml").read_text())["mcp"]["servers"]
    assert servers[-1] == {"name": "ai-session", "command": "ai-session mcp-server --stdio"}
    assert planned(root, "ccswarm")["edits"] == []
