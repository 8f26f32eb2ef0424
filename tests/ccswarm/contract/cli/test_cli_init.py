"""The verb init with --with and --for, and agents that are there although no configuration names any."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ccswarm.config import config, starters
from ccswarm.config.settings import Settings
from ccswarm.runs import service
from ccswarm.servers.visionflow.swarms import TYPES
from tests.ccswarm.support.verbs import Verbs

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "CODEX_API_KEY", "GEMINI_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN")
DOCUMENT = '[mcp]\nservers = [\n  { name = "ai-session", command = "ai-session mcp-server --stdio" }\n]\n'


@pytest.fixture
def verbs(home: Path, monkeypatch: pytest.MonkeyPatch) -> Verbs:
    """Where no program that thinks is installed, and no key is set."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    (home / "bin").mkdir()
    monkeypatch.setenv("PATH", str(home / "bin"))
    return Verbs(home)


def installed(verbs: Verbs, name: str) -> None:
    (verbs.home / "bin" / name).write_text("#!/bin/sh\n")
    (verbs.home / "bin" / name).chmod(0o755)


@pytest.mark.parametrize(
    ("who", "purpose"),
    [*((who, "") for who in starters.WITH), *(("none", purpose) for purpose in starters.FOR), ("claude", "visionflow")],
)
def test_every_choice_is_a_configuration_that_is_right(verbs: Verbs, who: str, purpose: str) -> None:
    reported = verbs.json("init", "--with", who, *(("--for", purpose) if purpose else ()))
    settings = config.peek(verbs.file).settings
    assert [agent.name for agent in settings.agents] == reported["agents"]
    assert all(agent.takes_words for agent in settings.agents)
    if purpose == "visionflow":
        assert {agent.type for agent in settings.agents} == set(TYPES)
    assert verbs.json("config", "check")["valid"]
    assert bool(reported["missing"]) == (who not in ("none", "local"))


def test_what_it_adds_leaves_what_is_there_to_the_letter(verbs: Verbs) -> None:
    before = f"# mine\n{DOCUMENT}  # kept\n[swarm]\nname = 'shop'\n"
    verbs.rewrite(before)
    said = verbs.run("init", "--with", "claude", terminal=True)
    assert "added: agent coder (claude; at most 2,000,000 tokens and 30 minutes a run)" in said.out + said.err
    assert "missing: claude is not installed: npm install -g @anthropic-ai/claude-code" in said.err
    text = verbs.file.read_text()
    first, rest = before.split("servers = [")
    assert text.startswith(f"{first}servers = [")
    assert rest.rstrip() in text
    settings = config.peek(verbs.file).settings
    assert {server.name for server in settings.mcp.servers} == {"ai-session", "programs"}
    home = starters.programs_home(verbs.state)
    assert 'profile = "trusted"' in (home / ".config/ai-session/config.toml").read_text()
    assert verbs.run("init", "--with", "claude", code=2).err.startswith("error config_invalid: ccswarm.toml has such")


def test_a_program_behind_a_gateway_is_given_its_variables_and_not_their_values(
    verbs: Verbs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_BASE_URL", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, f"https://gateway.example/{name}")
    verbs.run("init", "--with", "claude")
    (coder,) = config.peek(verbs.file).settings.agents
    given = coder.settings["environment"]
    assert given["ANTHROPIC_BASE_URL"] == "$ANTHROPIC_BASE_URL"
    assert given["ANTHROPIC_AUTH_TOKEN"] == "$ANTHROPIC_AUTH_TOKEN"
    assert "gateway.example" not in verbs.file.read_text()


def test_a_file_without_agents_gets_some_without_being_asked(verbs: Verbs) -> None:
    verbs.rewrite(DOCUMENT)
    assert verbs.json("init")["agents"] == ["coder"]
    refused = verbs.run("init", code=2).err
    assert "exists already, and has agents" in refused
    assert verbs.json("init", "--for", "visionflow")["agents"] == ["researcher", "analyst", "optimizer", "coordinator"]


def test_who_thinks_is_added_beside_who_goes_by_words_and_is_who_takes_a_task(verbs: Verbs) -> None:
    verbs.run("init")
    installed(verbs, "claude")
    said = verbs.run("init", "--with", "claude", terminal=True)
    assert "added: agent coder (claude; " in said.out + said.err
    assert "note: [swarm] budget limits a whole run, too: seconds = 300, calls = 100" in said.err
    settings = config.peek(verbs.file).settings
    (task,) = service.with_task("make the tests pass", settings).tasks
    assert (task.agent, settings.swarm.merge) == ("coder", "ask")
    assert verbs.json("init", "--with", "none", "--for", "a2a", code=2)["error"]["code"] == "config_invalid"
    verbs.rewrite("")
    verbs.run("init", "--for", "a2a", "--with", "none")
    assert verbs.json("init", "--with", "claude")["agents"] == ["coder-claude"]
    assert verbs.run("init", "--with", "claude", code=2).err.startswith("error config_invalid: ccswarm.toml has such")


def test_a_file_that_somebody_changed_is_agreed_to_before_it_is_added_to(verbs: Verbs) -> None:
    verbs.rewrite(DOCUMENT)
    verbs.file.write_text(DOCUMENT.replace("ai-session mcp-server", "sh planted"))
    assert verbs.run("init", "--with", "none", code=5).err.startswith("error config_changed")
    assert "planted" in verbs.file.read_text()
    assert "[[agents]]" not in verbs.file.read_text()


def test_what_cannot_be_added_is_there_to_be_pasted(verbs: Verbs) -> None:
    verbs.rewrite(f"agents = []\n{DOCUMENT}")
    said = verbs.run("init", "--with", "none", code=2)
    assert '[[agents]]\nname = "coder"' in said.out
    assert verbs.file.read_text().startswith("agents = []\n")


def test_a_key_or_a_program_is_enough_and_neither_is_too(verbs: Verbs, monkeypatch: pytest.MonkeyPatch) -> None:
    def supplied() -> tuple[str, str]:
        found = config.supplied(Settings(), ["coder"], config.server_environment())
        (agent,) = found.settings.agents
        return agent.brain, found.note

    assert supplied()[0] == "playbook"
    assert "no agent is configured (there is no key, and neither claude nor codex is installed)" in supplied()[1]
    installed(verbs, "codex")
    assert supplied()[0] == "cli"
    assert "codex is installed" in supplied()[1]
    assert supplied()[1].endswith(f"\nnote: {starters.RIGHTS['codex']}")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    brain, reported = supplied()
    assert (brain, "at most $2 and 30 minutes a run" in reported, "sk-test" in reported) == ("llm", True, False)


def test_whoever_configures_agents_or_tasks_gets_no_others(verbs: Verbs) -> None:
    verbs.rewrite(f'{DOCUMENT}\n[[agents]]\nname = "ada"\n')
    settings = config.peek(verbs.file).settings
    assert config.supplied(settings, ["coder"], config.server_environment()).settings == settings
    assert verbs.run("run", "list the files", code=2).err.startswith("error usage_invalid: a task in words needs")


def test_a_key_that_is_in_the_environment_is_named_and_never_written(
    verbs: Verbs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    installed(verbs, "claude")
    assert verbs.json("init", "--with", "claude")["missing"] == ""
    text = verbs.file.read_text()
    assert 'ANTHROPIC_API_KEY = "$ANTHROPIC_API_KEY"' in text
    assert "sk-secret" not in text
    assert json.dumps(str(verbs.home)) in text
