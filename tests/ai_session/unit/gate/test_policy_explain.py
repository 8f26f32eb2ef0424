"""The policy explained: the lines of rules, what a mode decides, what would be decided about a command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ai_session.gate.policy.explain import decisions, defaults, lines, reading
from ai_session.gate.policy.mode import PolicyInForce
from ai_session.gate.policy.policy import Policy

FILE = """# a comment
[policy]
mode = "workspace"

[[policy.rules]]
id = "leave"
decision = "allow"
commands = ["ls"]

  [[ "policy" . rules ]]   # spelled otherwise
id = "no-force"
decision = "deny"
commands = ["git push --force"]
"""
RULES = (
    {"id": "leave", "decision": "allow", "commands": ["ls"]},
    {"id": "no-force", "decision": "deny", "commands": ["git push --force"]},
)
UID = os.getuid()


def test_rules_are_told_in_the_order_in_which_they_count_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    policy = Policy(UID, "workspace", RULES)
    above = Policy(UID, "trusted", RULES[1:])
    in_force = PolicyInForce(policy, tmp_path / "mode.json", above, str(file))
    file.write_text(FILE)
    found = [(rule["id"], rule["line"]) for rule in in_force.located_rules(file)]
    assert found == [("administrator:no-force", 0), ("no-force", 10), ("leave", 5)], "the administrator has other rules"
    assert {rule["file"] for rule in in_force.located_rules(file)} == {str(file)}


@pytest.mark.parametrize(
    "text",
    [
        FILE.replace("--force", "-f"),
        FILE.replace('id = "leave"', 'id = "other"'),
        FILE + '\n[[policy.rules]]\nid = "more"\ndecision = "ask"\ntools = ["*"]\n',
        FILE.replace("# a comment", 'note = """\n[[policy.rules]]\n"""'),
        "[policy",
        "policy = 3",
        "",
    ],
)
def test_a_file_that_is_another_by_now_has_no_lines(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.toml"
    file.write_text(text)
    assert lines(file, Policy(UID, "workspace", RULES).rules) == []
    assert lines(tmp_path / "none.toml", Policy(UID, "workspace", RULES).rules) == []


def test_what_a_mode_decides_is_what_the_page_on_the_policy_says() -> None:
    def column(mode: str, kind: str) -> list[str]:
        return [row[kind] for row in defaults(UID, mode)]

    assert column("read-only", "mcp") == ["allow", "deny", "deny", "allow", "deny", "deny", "deny"]
    assert column("ask-all", "mcp") == ["allow", "ask", "ask", "ask", "ask", "ask", "ask"]
    assert column("workspace", "mcp") == ["allow", "allow", "ask", "allow", "ask", "ask", "ask"]
    assert set(column("trusted", "mcp")) == {"allow"}
    assert column("read-only", "person") == ["allow", "deny", "deny", "allow", "deny", "deny", "deny"]
    assert all(set(column(mode, "person")) == {"allow"} for mode in ("ask-all", "workspace", "trusted"))


def test_a_command_is_judged_as_the_gate_judges_it() -> None:
    policy = Policy(UID, "workspace", RULES)
    judged = decisions(policy.decide, UID, "cd x && git push --force")
    assert [(one["who"], one["verdict"], one["rule"]) for one in judged] == [
        ("client", "deny", "no-force"),
        ("client", "deny", "no-force"),
        ("you", "deny", "no-force"),
        ("you", "deny", "no-force"),
    ]
    assert [one["verdict"] for one in decisions(policy.decide, UID, "ls")] == ["allow"] * 4
    assert reading("ls > x")["obscure"]
    assert reading("ls -l")["commands"] == [["ls", "-l"]]
