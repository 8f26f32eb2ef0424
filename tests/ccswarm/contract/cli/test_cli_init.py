"""The verb init with --with and --for, and agents that are there although no configuration names any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ccswarm.config import config, starters
from ccswarm.config.settings import Settings
from ccswarm.runs import service
from ccswarm.servers.visionflow.swarms import TYPES
from tests.ccswarm.support.verbs import Desk

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "CODEX_API_KEY", "GEMINI_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN")
DOCUMENT = '[mcp]\nservers = [\n  { name = "ai-session", command = "ai-session mcp-server --stdio" }\n]\n'


@pytest.fixture
def desk(home: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Where no program that thinks is installed, and no key is set."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    (home / "bin").mkdir()
    monkeypatch.setenv("PATH", str(home / "bin"))
    return Desk(home)


def installed(desk: Desk, name: str) -> None:
    (desk.home / "bin" / name).write_text("#!/bin/sh\n")
    (desk.home / "bin" / name).chmod(0o755)


@pytest.mark.parametrize(
    ("who", "purpose"),
    [*((who, "") for who in starters.WITH), *(("none", purpose) for purpose in starters.FOR), ("claude", "visionflow")],
)
def test_every_choice_is_a_configuration_that_is_right(desk: Desk, who: str, purpose: str) -> None:
    told = desk.json("init", "--with", who, *(("--for", purpose) if purpose else ()))
    settings = config.peek(desk.file).settings
    assert [agent.name for agent in settings.agents] == told["agents"]
    assert all(agent.takes_words for agent in settings.agents)
    if purpose == "visionflow":
        assert {agent.type for agent in settings.agents} == set(TYPES)
    assert desk.json("config", "check")["valid"]
    assert bool(told["missing"]) == (who not in ("none", "local"))


def test_what_it_adds_leaves_what_is_there_to_the_letter(desk: Desk) -> None:
    before = f"# mine\n{DOCUMENT}  # kept\n[swarm]\nname = 'shop'\n"
    desk.rewrite(before)
    said = desk.run("init", "--with", "claude", terminal=True)
    assert "added: agent coder (claude; at most 2,000,000 tokens and 30 minutes a run)" in said.out + said.err
    assert "missing: claude is not installed: npm install -g @anthropic-ai/claude-code" in said.err
    text = desk.file.read_text()
    first, rest = before.split("servers = [")
    assert text.startswith(f"{first}servers = [")
    assert rest.rstrip() in text
    settings = config.peek(desk.file).settings
    assert {server.name for server in settings.mcp.servers} == {"ai-session", "programs"}
    home = starters.programs_home(desk.state)
    assert 'profile = "trusted"' in (home / ".config/ai-session/config.toml").read_text()
    assert desk.run("init", "--with", "claude", code=2).err.startswith("error config_invalid: ccswarm.toml has such")


def test_a_program_behind_a_gateway_is_given_its_variables_and_not_their_values(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, f"https://gateway.example/{name}")
    desk.run("init", "--with", "claude")
    (coder,) = config.peek(desk.file).settings.agents
    given = coder.settings["environment"]
    assert given["ANTHROPIC_BASE_URL"] == "$ANTHROPIC_BASE_URL"
    assert given["ANTHROPIC_AUTH_TOKEN"] == "$ANTHROPIC_AUTH_TOKEN"
    assert "gateway.example" not in desk.file.read_text()


def test_a_file_without_agents_gets_some_without_being_asked(desk: Desk) -> None:
    desk.rewrite(DOCUMENT)
    assert desk.json("init")["agents"] == ["coder"]
    refused = desk.run("init", code=2).err
    assert "exists already, and has agents" in refused
    assert desk.json("init", "--for", "visionflow")["agents"] == ["researcher", "analyst", "optimizer", "coordinator"]


def test_who_thinks_is_added_beside_who_goes_by_words_and_is_who_takes_a_task(desk: Desk) -> None:
    desk.run("init")
    installed(desk, "claude")
    said = desk.run("init", "--with", "claude", terminal=True)
    assert "added: agent coder (claude; " in said.out + said.err
    assert "note: [swarm] budget limits a whole run, too: seconds = 300, calls = 100" in said.err
    settings = config.peek(desk.file).settings
    (task,) = service.with_task("make the tests pass", settings).tasks
    assert (task.agent, settings.swarm.merge) == ("coder", "ask")
    assert desk.json("init", "--with", "none", "--for", "a2a", code=2)["error"]["code"] == "config_invalid"
    desk.rewrite("")
    desk.run("init", "--for", "a2a", "--with", "none")
    assert desk.json("init", "--with", "claude")["agents"] == ["coder-claude"]
    assert desk.run("init", "--with", "claude", code=2).err.startswith("error config_invalid: ccswarm.toml has such")


def test_a_file_that_somebody_changed_is_agreed_to_before_it_is_added_to(desk: Desk) -> None:
    desk.rewrite(DOCUMENT)
    desk.file.write_text(DOCUMENT.replace("ai-session mcp-server", "sh planted"))
    assert desk.run("init", "--with", "none", code=5).err.startswith("error config_changed")
    assert "planted" in desk.file.read_text()
    assert "[[agents]]" not in desk.file.read_text()


def test_what_cannot_be_added_is_there_to_be_pasted(desk: Desk) -> None:
    desk.rewrite(f"agents = []\n{DOCUMENT}")
    said = desk.run("init", "--with", "none", code=2)
    assert '[[agents]]\nname = "coder"' in said.out
    assert desk.file.read_text().startswith("agents = []\n")


def test_a_key_or_a_program_is_enough_and_neither_is_too(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def supplied() -> tuple[str, str]:
        found = config.supplied(Settings(), ["coder"], config.server_environment())
        (agent,) = found.settings.agents
        return agent.brain, found.note

    assert supplied()[0] == "playbook"
    assert "no agent is configured (there is no key, and neither claude nor codex is installed)" in supplied()[1]
    installed(desk, "codex")
    assert supplied()[0] == "cli"
    assert "codex is installed" in supplied()[1]
    assert supplied()[1].endswith(f"\nnote: {starters.RIGHTS['codex']}")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    brain, told = supplied()
    assert (brain, "at most $2 and 30 minutes a run" in told, "sk-test" in told) == ("llm", True, False)


def test_whoever_configures_agents_or_tasks_gets_no_others(desk: Desk) -> None:
    desk.rewrite(f'{DOCUMENT}\n[[agents]]\nname = "ada"\n')
    settings = config.peek(desk.file).settings
    assert config.supplied(settings, ["coder"], config.server_environment()).settings == settings
    assert desk.run("run", "list the files", code=2).err.startswith("error usage_invalid: a task in words needs")


def test_a_key_that_is_in_the_environment_is_named_and_never_written(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    installed(desk, "claude")
    assert desk.json("init", "--with", "claude")["missing"] == ""
    text = desk.file.read_text()
    assert 'ANTHROPIC_API_KEY = "$ANTHROPIC_API_KEY"' in text
    assert "sk-secret" not in text
    assert json.dumps(str(desk.home)) in text
