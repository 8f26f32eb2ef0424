"""mcp install: each client's own file gets the entry, everything else in it stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pexpect
import pytest

from agentwire.mcp import clients as mcp_clients
from agentwire.mcp.clients import ConfigLocation, locations
from ai_session.errors import ConfigInvalid
from tests.ai_session.support.command_line import CommandLine
from tests.support.bounds import BOUND_SECONDS

COMMAND, ARGS = "/opt/bin/ai-session", ["mcp-server", "--stdio"]
CLIENTS = ["claude-desktop", "claude-code", "codex", "cursor", "vscode", "gemini"]


def place_of(client: str, scope: str, home: Path) -> ConfigLocation:
    return next(
        p for p in locations("ai-session", home, home / "project", {}) if (p.client, p.scope) == (client, scope)
    )


def run(*words: str, cwd: Path | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
    """A verb of ``mcp`` in its own process; its exit code must be ``code``."""
    home = Path(os.environ["HOME"])
    return CommandLine(home).run("mcp", *words, cwd=cwd or home, code=code)


EXPECTED: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {
    ("claude-desktop", "user"): (".config/Claude/claude_desktop_config.json", {"mcpServers": {}}),
    ("claude-code", "user"): (".claude.json", {"mcpServers": {"type": "stdio"}}),
    ("claude-code", "project"): ("project/.mcp.json", {"mcpServers": {"type": "stdio"}}),
    ("codex", "user"): (".codex/config.toml", {"mcp_servers": {}}),
    ("cursor", "user"): (".cursor/mcp.json", {"mcpServers": {}}),
    ("cursor", "project"): ("project/.cursor/mcp.json", {"mcpServers": {}}),
    ("vscode", "user"): (".config/Code/User/mcp.json", {"servers": {"type": "stdio"}}),
    ("vscode", "project"): ("project/.vscode/mcp.json", {"servers": {"type": "stdio"}}),
    ("gemini", "user"): (".gemini/settings.json", {"mcpServers": {}}),
}


@pytest.mark.parametrize(("client", "scope"), EXPECTED)
def test_each_client_gets_its_own_form_in_its_own_file(client: str, scope: str, tmp_path: Path) -> None:
    location = place_of(client, scope, tmp_path)
    file, form = EXPECTED[client, scope]
    assert location.path == tmp_path / file
    text = mcp_clients.with_entry(location, "", COMMAND, ARGS)
    ((key, extra),) = form.items()
    wanted = {key: {"ai-session": {**extra, "command": COMMAND, "args": ARGS}}}
    assert (tomllib.loads(text) if file.endswith("toml") else json.loads(text)) == wanted


def test_the_local_scope_of_claude_code_is_under_its_project(tmp_path: Path) -> None:
    location = place_of("claude-code", "local", tmp_path)
    before = json.dumps({"projects": {str(tmp_path / "project"): {"allowedTools": ["x"]}, "/other": {}}})
    data = json.loads(mcp_clients.with_entry(location, before, COMMAND, ARGS))
    assert data["projects"][str(tmp_path / "project")]["allowedTools"] == ["x"]
    assert data["projects"][str(tmp_path / "project")]["mcpServers"]["ai-session"]["command"] == COMMAND
    assert data["projects"]["/other"] == {}


def test_variables_of_the_clients_move_their_files(tmp_path: Path) -> None:
    variables = {"CODEX_HOME": "/c", "CLAUDE_CONFIG_DIR": "/d", "XDG_CONFIG_HOME": "/x"}
    paths = {(p.client, p.scope): str(p.path) for p in locations("ai-session", tmp_path, tmp_path, variables)}
    assert paths["codex", "user"] == "/c/config.toml"
    assert paths["claude-code", "user"] == "/d/.claude.json"
    assert paths["vscode", "user"] == "/x/Code/User/mcp.json"


def test_other_keys_their_order_and_the_indentation_stay(tmp_path: Path) -> None:
    location = place_of("claude-desktop", "user", tmp_path)
    before = '{\n    "zeta": [1, 2.5],\n    "mcpServers": {"b": {"command": "x"}},\n    "alpha": "ü"\n}\n'
    after = mcp_clients.with_entry(location, before, COMMAND, ARGS)
    assert list(json.loads(after)) == ["zeta", "mcpServers", "alpha"]
    assert list(json.loads(after)["mcpServers"]) == ["b", "ai-session"]
    assert '\n    "alpha": "ü"\n' in after
    removed = mcp_clients.without_entry(location, after)
    assert json.loads(removed) == json.loads(before)


def test_the_persons_own_keys_in_our_entry_stay(tmp_path: Path) -> None:
    location = place_of("cursor", "user", tmp_path)
    before = '{"mcpServers": {"ai-session": {"command": "old", "args": ["x"], "env": {"A": "1"}, "disabled": true}}}'
    entry = json.loads(mcp_clients.with_entry(location, before, COMMAND, ARGS))["mcpServers"]["ai-session"]
    assert entry == {"command": COMMAND, "args": ARGS, "env": {"A": "1"}, "disabled": True}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{// comment\n}", "not valid"),
        ("[]", "is not a JSON object"),
        ('{"mcpServers": []}', "'mcpServers' is not an object"),
        ('{"mcpServers": {"ai-session": 3}}', "entry 'ai-session' is not an object"),
        ('{"a": 1, "a": 2}', "duplicate key"),
    ],
)
def test_a_file_that_cannot_be_kept_is_refused_untouched(text: str, words: str, tmp_path: Path) -> None:
    location = place_of("gemini", "user", tmp_path)
    with pytest.raises(ConfigInvalid) as caught:
        mcp_clients.with_entry(location, text, COMMAND, ARGS)
    assert words in caught.value.message
    assert "--client gemini --scope user --print" in caught.value.suggestion


CODEX = """# my settings
model = "x"  # keep me

[mcp_servers.other]
command = "o"

[profiles.p]
model = "y"
"""

FORMS = {
    "with options and comments": """
[mcp_servers.ai-session]  # ours
# how long to wait
startup_timeout_sec = 20
command = "old"
args = [
  "a", # [why]
  "b",
]
[mcp_servers.ai-session.env]
A = "1"

[other]
text = '''
[mcp_servers.ai-session]
'''
""",
    "quoted": '\n[mcp_servers."ai-session"]\nargs = []\ncommand = "old"\n',
    "last line without end": '\n[mcp_servers.ai-session]\ncommand = "old"',
    "heading only": "\n[mcp_servers.ai-session]",
}


def test_codex_gets_one_more_table_and_nothing_else_changes(tmp_path: Path) -> None:
    location = place_of("codex", "user", tmp_path)
    after = mcp_clients.with_entry(location, CODEX, COMMAND, ARGS)
    assert after.replace(f'[mcp_servers.ai-session]\ncommand = "{COMMAND}"\nargs = {json.dumps(ARGS)}\n', "") == CODEX
    assert tomllib.loads(after)["mcp_servers"] == {
        "other": {"command": "o"},
        "ai-session": {"command": COMMAND, "args": ARGS},
    }
    assert mcp_clients.with_entry(location, after, COMMAND, ARGS) == after
    assert mcp_clients.without_entry(location, after) == CODEX
    assert mcp_clients.without_entry(location, CODEX) == CODEX


@pytest.mark.parametrize("form", FORMS)
def test_codex_entry_of_any_form_is_replaced_in_place(form: str, tmp_path: Path) -> None:
    location = place_of("codex", "user", tmp_path)
    before = CODEX + FORMS[form]
    after = mcp_clients.with_entry(location, before, COMMAND, ARGS)
    expected = tomllib.loads(before)
    expected["mcp_servers"]["ai-session"] |= {"command": COMMAND, "args": ARGS}
    assert tomllib.loads(after) == expected
    assert [line for line in before.splitlines() if "#" in line and "[why]" not in line] == [
        line for line in after.splitlines() if "#" in line
    ]
    assert mcp_clients.with_entry(location, after, COMMAND, ARGS) == after


@pytest.mark.parametrize(
    "before", ['mcp_servers = {ai-session = {command = "x"}}\n', 'mcp_servers.ai-session.command = "x"\n# more\n']
)
def test_codex_entry_without_a_table_is_edited_as_it_is_written(before: str, tmp_path: Path) -> None:
    location = place_of("codex", "user", tmp_path)
    after = mcp_clients.with_entry(location, before, COMMAND, ARGS)
    assert mcp_clients.entry(location, after) == {"command": COMMAND, "args": ARGS}
    assert after.partition("ai-session")[0] == before.partition("ai-session")[0]
    assert not mcp_clients.entry(location, mcp_clients.without_entry(location, after))


def test_codex_forms_that_cannot_be_edited_are_refused(tmp_path: Path) -> None:
    location = place_of("codex", "user", tmp_path)
    with pytest.raises(ConfigInvalid, match="cannot be edited"):
        mcp_clients.with_entry(location, "mcp_servers = {}\n", COMMAND, ARGS)


@pytest.mark.parametrize("client", CLIENTS)
def test_install_is_idempotent_keeps_a_backup_and_can_be_undone(client: str, home: Path) -> None:
    location = place_of(client, "user", home)
    old = CODEX if client == "codex" else '{\n  "theme": "dark"\n}\n'
    location.path.parent.mkdir(parents=True, exist_ok=True)
    location.path.write_text(old)
    location.path.chmod(0o640)
    assert run("install", "--client", client).stdout == f"changed\t{location.path}\n"
    backup = location.path.with_name(location.path.name + ".before-ai-session")
    assert backup.read_text() == old
    assert {path.stat().st_mode & 0o777 for path in (location.path, backup)} == {0o640}
    entry = mcp_clients.entry(location, location.path.read_text())
    assert entry is not None
    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-2:] == ARGS
    assert run("install", "--client", client).stdout == f"unchanged\t{location.path}\n"
    assert backup.read_text() == old
    run("uninstall", "--client", client)
    after = location.path.read_text()
    assert (after == old) if client == "codex" else (json.loads(after)["theme"] == "dark")
    assert mcp_clients.entry(location, after) is None


def test_relative_writes_the_form_of_the_protocol(home: Path) -> None:
    run("install", "--client", "claude-desktop", "--relative")
    example = Path(__file__).parents[4] / "config/claude_desktop_config.json"
    written = home / ".config/Claude/claude_desktop_config.json"
    assert json.loads(written.read_text()) == json.loads(example.read_text())


def test_dry_run_shows_the_difference_and_writes_nothing(home: Path) -> None:
    shown = run("install", "--client", "codex", "--dry-run").stdout
    assert "+[mcp_servers.ai-session]\n" in shown
    assert not (home / ".codex").exists()
    facts = json.loads(run("install", "--client", "codex", "--dry-run", "--json").stdout)
    assert facts["changed"] is True
    assert facts["diff"] == shown


def test_print_gives_what_to_add_by_hand(home: Path) -> None:
    shown = json.loads(run("install", "--client", "vscode", "--print", "--relative").stdout)
    assert shown == {"servers": {"ai-session": {"type": "stdio", "command": "ai-session", "args": ARGS}}}
    assert [path.name for path in home.iterdir()] == [".config"]


@pytest.mark.parametrize("client", CLIENTS)
def test_the_printed_entry_is_one_document_for_programs(home: Path, client: str) -> None:
    shown = json.loads(run("install", "--client", client, "--print", "--json").stdout)
    assert shown == {
        "client": client,
        "path": shown["path"],
        "text": run("install", "--client", client, "--print").stdout,
    }


def test_what_codex_needs_with_nobody_to_ask_is_said_and_not_done(home: Path) -> None:
    shown = run("install", "--client", "codex", "--print").stdout
    assert set(tomllib.loads(shown)["mcp_servers"]["ai-session"]) == {"command", "args"}
    mended = tomllib.loads(shown.replace("# default_tools", "default_tools"))
    assert mended["mcp_servers"]["ai-session"]["default_tools_approval_mode"] == "approve"
    line = ["-m", "ai_session", "mcp", "install", "--client"]
    for client, reported in (("codex", True), ("cursor", False)):
        terminal: pexpect.spawn[bytes] = pexpect.spawn(
            sys.executable, [*line, client], timeout=BOUND_SECONDS, dimensions=(24, 200)
        )
        said = terminal.read()
        terminal.close()
        assert (b'add to the entry: default_tools_approval_mode = "approve"' in said) is reported
    assert "approval" not in (home / ".codex/config.toml").read_text()


def test_a_link_is_kept_and_its_target_changed(home: Path) -> None:
    target = home / "dotfiles/cursor.json"
    target.parent.mkdir()
    target.write_text("{}")
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").symlink_to(target)
    run("install", "--client", "cursor")
    assert (home / ".cursor/mcp.json").is_symlink()
    assert "ai-session" in target.read_text()


def test_project_scope_writes_where_it_is_called(home: Path, tmp_path: Path) -> None:
    run("install", "--client", "claude-code", "--scope", "project", cwd=tmp_path)
    assert json.loads((tmp_path / ".mcp.json").read_text())["mcpServers"]["ai-session"]["type"] == "stdio"
    assert [path.name for path in home.iterdir()] == [".config"]


def test_an_invalid_file_is_left_as_it_is(home: Path) -> None:
    file = home / ".gemini/settings.json"
    file.parent.mkdir()
    file.write_text("{ // mine\n}")
    result = run("install", "--client", "gemini", code=1)
    assert result.stderr.startswith(f"error: {file} is not valid")
    assert file.read_text() == "{ // mine\n}"
    assert [path.name for path in file.parent.iterdir()] == ["settings.json"]


@pytest.mark.parametrize(
    ("words", "hint"), [(("emacs",), "claude-desktop"), (("codex", "--scope", "local"), "user, project")]
)
def test_unknown_clients_and_scopes_are_named(words: tuple[str, ...], hint: str) -> None:
    result = run("install", "--client", *words, code=2)
    assert hint in result.stderr


def test_status_tells_each_file(home: Path) -> None:
    run("install", "--client", "cursor")
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text('[mcp_servers.ai-session]\ncommand = "/gone/ai-session"\n')
    (home / ".claude.json").write_text("{}")
    (home / ".gemini").mkdir()
    (home / ".gemini/settings.json").write_text("{")
    rows = {(row["client"], row["scope"]): row["state"] for row in json.loads(run("status", "--json").stdout)}
    assert rows["cursor", "user"] == "installed"
    assert rows["codex", "user"] == "broken"
    assert rows["claude-code", "user"] == "absent"
    assert rows["gemini", "user"] == "invalid"
    assert rows["vscode", "user"] == "no file"


def test_what_a_project_holds_in_place_of_a_clients_file_keeps_nobody_busy(tmp_path: Path) -> None:
    """Boxes may make these where they are absent."""

    def endless(path: Path) -> None:
        path.symlink_to("/dev/zero")

    def large(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(1 << 40)

    def nested(path: Path) -> None:
        path.write_text(("a = " if path.suffix == ".toml" else "") + "[" * 100_000)

    cases = (
        (os.mkfifo, "not a regular file"),
        (endless, "not a regular file"),
        (large, "more than"),
        (Path.mkdir, "Is a directory"),
        (nested, "recursion|Stack overflow"),
    )
    for number, (make, said) in enumerate(cases):
        here = tmp_path / str(number)
        for location in mcp_clients.locations("ai-session", tmp_path / "home", here, {}):
            if location.path.name in (".mcp.json", "config.toml") and location.path.is_relative_to(here):
                location.path.parent.mkdir(parents=True, exist_ok=True)
                make(location.path)
                with pytest.raises(ConfigInvalid, match=said):
                    mcp_clients.entry(location, mcp_clients.read(location))
