"""The verbs init and config."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from ccswarm.config import parsing, reference_text
from tests.ccswarm.support.verbs import ROOT, Verbs, agent, server


@pytest.fixture
def verbs(home: Path) -> Verbs:
    return Verbs(home)


def test_init_writes_what_runs_and_says_what_is_next(verbs: Verbs) -> None:
    said = verbs.run("init", terminal=True)
    assert said.out.splitlines()[0] == "ccswarm.toml"
    assert "ccswarm doctor" in said.out
    assert "ccswarm run" in said.out
    assert verbs.file.read_text() == reference_text.starter()
    assert verbs.json("config", "check")["tasks"] == ["count", "look", "tell"]


def test_init_keeps_a_file_that_is_there(verbs: Verbs) -> None:
    verbs.rewrite('# mine\n[[agents]]\nname = "ada"\n')
    said = verbs.run("init", code=2)
    assert said.err.startswith("error config_invalid: ccswarm.toml exists already, and has agents\n")
    assert (said.out, verbs.file.read_text()) == ("", '# mine\n[[agents]]\nname = "ada"\n')
    assert verbs.run("init", "--force").out == "ccswarm.toml\n"
    assert verbs.file.read_text() == reference_text.starter()


def test_init_elsewhere_says_how_that_file_is_used(verbs: Verbs) -> None:
    reported = verbs.json("init", "my plans/one.toml")
    assert reported["path"] == str(verbs.home / "my plans/one.toml")
    assert reported["next"] == [f"ccswarm {verb} --config 'my plans/one.toml'" for verb in ("doctor", "run")]
    assert verbs.json("init", "my plans")["path"] == str(verbs.home / "my plans/ccswarm.toml")


def test_init_where_nothing_can_be_written(verbs: Verbs) -> None:
    (verbs.home / "file").write_text("")
    assert "cannot be written" in verbs.run("init", "file/ccswarm.toml", code=2).err


def test_check_names_every_problem_with_its_place(verbs: Verbs) -> None:
    verbs.rewrite('[swarm]\nstrategi = "parallel"\n\n[[agents]]\nname = "a b"\n')
    error = verbs.json("config", "check", code=2)["error"]
    assert error["code"] == "config_invalid"
    assert "[swarm] strategi is not known (did you mean strategy?)" in error["message"]
    assert "[agents.a b] name should be letters" in error["message"]
    assert error["suggestion"]


def test_a_file_as_editors_of_windows_write_it_is_read_and_what_is_none_is_named(verbs: Verbs) -> None:
    verbs.file.write_bytes(b"\xef\xbb\xbf" + agent("ada").replace("\n", "\r\n").encode())
    assert verbs.json("config", "check")["agents"] == ["ada"]
    for text, reported in (
        ("[swarm]\n".encode("utf-16"), "ccswarm.toml is not text in UTF-8"),
        (b"[mcpServers.x]\ncommand = 'x'\n", "mcpServers is not known: a server is a table [[mcp.servers]]"),
    ):
        verbs.file.write_bytes(text)
        assert reported in verbs.json("config", "check", code=2)["error"]["message"]


def test_check_looks_at_tasks_and_at_what_is_loaded_by_name(verbs: Verbs) -> None:
    steps = '[[tasks]]\nid = "t"\nneeds = ["u"]\nsteps = [{ id = "s", tool = "none.x" }]\n'
    verbs.rewrite(agent("ada", "*") + steps)
    said = verbs.run("config", "check", code=2).err
    assert said.startswith("error plan_invalid: ")
    assert "task t: needs u" in said
    assert "server none" in said
    verbs.rewrite(agent("ada", more='brain = "nobody"'))
    assert "no brains plugin is called 'nobody'" in verbs.run("config", "check", code=2).err
    verbs.rewrite('[engine]\nname = "nothing"\n')
    assert "no engines plugin is called 'nothing'" in verbs.run("config", "check", code=2).err


@pytest.mark.parametrize(
    ("brain", "advice"),
    [
        ("claude", 'brain = "cli" and settings = { program = "claude" }, or brain = "llm" and'),
        ("codex", 'brain = "cli" and settings = { program = "codex" }'),
        ("gemini", 'settings = { program = "gemini" }, or brain = "llm" and settings = { model = "gemini:'),
        ("anthropic", 'brain = "llm" and settings = { model = "anthropic:'),
        ("gpt-5", 'brain = "llm" and settings = { model = "openai:gpt-5" }'),
        ("claude-sonnet-5", 'brain = "llm" and settings = { model = "anthropic:claude-sonnet-5" }'),
        ("ollama", 'base_url = "http://127.0.0.1:11434/v1"'),
        ("nobody", "known: cli, guest, llm, playbook"),
    ],
)
def test_whoever_names_a_program_or_a_model_as_a_brain_is_told_how(verbs: Verbs, brain: str, advice: str) -> None:
    verbs.rewrite(agent("ada", more=f'brain = "{brain}"'))
    assert advice in verbs.run("config", "check", code=2).err


def test_what_is_of_a_brain_and_stands_beside_it_is_told_where_it_belongs(verbs: Verbs) -> None:
    verbs.rewrite(agent("ada", more='brain = "gpt-5.1"\nmodel = "gpt-5.1"'))
    said = verbs.run("config", "check", code=2).err
    assert "[agents.ada] brain should be playbook, llm or cli: a model is named in its settings" in said
    assert "[agents.ada] model is not known: it belongs in the agent's settings = { model = … }" in said


def test_check_of_a_file_that_is_named(verbs: Verbs) -> None:
    verbs.rewrite("[")
    verbs.run("config", "check", code=2)
    (verbs.home / "other.toml").write_text(agent("ada"))
    assert verbs.run("config", "check", "other.toml").rows[2] == ["agents", "ada"]
    assert "does not exist" in verbs.run("config", "check", "third.toml", code=2).err


def test_without_a_file_all_is_as_by_default(verbs: Verbs) -> None:
    assert verbs.json("config", "check") == {
        "valid": True,
        "path": None,
        "servers": [],
        "agents": [],
        "tasks": [],
        "changed": False,
    }
    assert verbs.json("config", "path", code=1) == {"path": None, "exists": False}
    assert verbs.run("config", "path", code=1).out == ""
    assert verbs.run("config", "show").out == "# no file; the defaults apply\n"


def test_path_is_the_file_that_holds(verbs: Verbs) -> None:
    verbs.rewrite("")
    assert verbs.run("config", "path").out == f"{verbs.file}\n"
    assert verbs.json("config", "path", "--config", "none.toml", code=1)["exists"] is False


SECRETS = """
[engine]
database_url = "postgresql://me:hunter2@db/x"

[[tasks]]
id = "t"
text = "several\\nlines \\u007f \\"quoted\\""

[[tasks.steps]]
id = "s"
tool = "web.look"
args = { nested = { "a b" = [1, { c = true }] }, text = "ü" }
"""


def test_show_is_the_file_without_its_secrets(verbs: Verbs) -> None:
    web = 'env = { TOKEN = "hunter2" }\nheaders = { Authorization = "Bearer $TOKEN", X-Key = "hunter2" }'
    verbs.rewrite(server("web", "plain", more=web) + agent("ada", "web.*") + SECRETS)
    shown = verbs.run("config", "show").out
    assert "hunter2" not in shown
    read = tomllib.loads(shown)
    written = tomllib.loads(verbs.file.read_text())
    hidden = read["mcp"]["servers"][0]
    assert hidden["headers"] == {"Authorization": "Bearer $TOKEN", "X-Key": "[not shown]"}
    assert hidden["env"] == {"TOKEN": "[not shown]"}
    assert read["engine"] == {"database_url": "postgresql://[not shown]"}
    assert (read["tasks"], read["agents"]) == (written["tasks"], written["agents"])


def test_show_hides_secrets_wherever_they_are(verbs: Verbs) -> None:
    own = verbs.home / ".config/ccswarm/config.toml"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(
        """[notify]
ntfy = "https://ntfy.sh/hunter2"
webhook = "https://hooks.example/services/hunter2?key=hunter2"
[telemetry]
endpoint = "https://hunter2@collector.example/otlp?key=hunter2"
headers = { api-key = "hunter2" }
[[mcp.servers]]
name = "web"
url = "https://web.example/mcp?token=hunter2"
[[agents]]
name = "ada"
brain = "llm"
[agents.settings]
headers = { api-key = "hunter2" }
models = [{ base_url = "https://hunter2@x.example/v1", env = { A = "hunter2" } }]
"""
    )
    for words in (["show"], ["show", "--json"]):
        assert "hunter2" not in (shown := verbs.run("config", *words, str(own)).out)
        for place in ("ntfy.sh/", "hooks.example/", "collector.example/otlp?", "web.example/mcp?", "x.example/v1"):
            assert place in shown


@pytest.mark.parametrize("text", [reference_text.starter(), (ROOT / "config/ccswarm.toml").read_text()])
def test_what_show_prints_is_a_configuration_that_says_the_same(verbs: Verbs, text: str) -> None:
    verbs.rewrite(text)
    assert parsing.parse(verbs.run("config", "show").out) == parsing.parse(text)


def test_show_as_json_has_the_defaults_too(verbs: Verbs) -> None:
    verbs.rewrite(server("web", "plain", more='env = { TOKEN = "hunter2" }'))
    said = verbs.run("config", "show", "--json").out
    assert "hunter2" not in said
    assert json.loads(said)["settings"]["swarm"]["max_agents"] == 8


def test_reference_explains_every_setting(verbs: Verbs) -> None:
    said = verbs.run("config", "reference").out
    assert said == reference_text.reference()
    assert "mcp" in verbs.json("config", "reference")["properties"]
