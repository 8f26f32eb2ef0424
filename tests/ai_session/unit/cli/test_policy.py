"""``ai-session policy``: what it prints for a right file, a wrong one and a command."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ai_session.cli.main import program
from ai_session.errors import ConfigInvalid

ROOT = Path(__file__).parents[4]
FILE = """
[policy]
mode = "workspace"

[[policy.rules]]
id = "no-force"
decision = "deny"
commands = ["git push --force"]
reason = "History is shared."
examples = { match = ["git push --force", "git push -f --forc"], not_match = ["git push"] }

[[policy.rules]]
id = "reading"
decision = "allow"
commands = ["git status", ["git", "log"]]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(FILE)
    return path


def explained(*words: str) -> dict[str, tuple[str, str]]:
    result = CliRunner().invoke(program("policy"), ["policy", "explain", "--json", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return {
        f"{row['who']} {row['where']}": (row["verdict"], row["rule"]) for row in json.loads(result.stdout)["decisions"]
    }


def test_a_right_file_is_counted(file: Path) -> None:
    result = CliRunner().invoke(program("policy"), ["policy", "check", str(file), "--json"], catch_exceptions=False)
    facts = json.loads(result.stdout)
    assert (facts["valid"], facts["mode"], facts["rules"], facts["examples"]) == (True, "workspace", 2, 3)
    assert len(facts["policy_sha256"]) == 64


def test_a_wrong_file_is_named_with_its_rule(file: Path) -> None:
    file.write_text(FILE.replace('not_match = ["git push"]', 'not_match = ["git -C x push --force"]'))
    with pytest.raises(ConfigInvalid, match=r"policy.rules\[1\] \(no-force\): the example 'git -C x push --force'"):
        CliRunner().invoke(program("policy"), ["policy", "check", str(file)], catch_exceptions=False)


def test_a_command_is_explained(file: Path) -> None:
    assert explained("--file", str(file), "--", "git", "status") == {
        "client in a box": ("allow", "default:workspace"),
        "client without a box": ("allow", "reading"),
        "you in a box": ("allow", "default:workspace"),
        "you without a box": ("allow", "default:workspace"),
    }
    assert set(explained("--file", str(file), "--", "git", "push", "--force").values()) == {("deny", "no-force")}
    assert explained("--file", str(file), "--mode", "ask-all", "--", "ls > x")["client in a box"] == (
        "ask",
        "default:ask-all",
    )


def test_a_person_reads_lines(file: Path) -> None:
    result = CliRunner().invoke(
        program("policy"), ["policy", "explain", "--file", str(file), "--", "ls > x"], catch_exceptions=False
    )
    assert "read as\tnot plain words: a redirection" in result.stdout
    assert "client\twithout a box\task\tdefault:no-box" in result.stdout


def test_the_rules_of_the_shipped_file_are_those_of_the_manual_and_hold_when_they_are_used(tmp_path: Path) -> None:
    text, mark, rules = (ROOT / "config/ai-session.toml").read_text().partition("# Rules of the policy")
    used = re.sub("(?m)^# (?!Rules|`|# )", "", mark + rules)
    path = tmp_path / "config.toml"
    path.write_text(text.replace("\nrules = []\n", "\n") + used)
    facts = json.loads(
        CliRunner().invoke(program("policy"), ["policy", "check", str(path), "--json"], catch_exceptions=False).stdout
    )
    assert (facts["rules"], facts["examples"]) == (3, 9)
    assert set(explained("--file", str(path), "--", "git", "push", "-f").values()) == {("deny", "no-force")}
    assert explained("--file", str(path), "--", "git", "push")["client in a box"] == ("ask", "push-asks")
    assert explained("--file", str(path), "--", "git", "log")["client without a box"] == ("allow", "looking-around")
    manual = {line for line in (ROOT / "docs/reference/policy.md").read_text().splitlines() if " = " in line}
    assert {line for line in used.splitlines() if " = " in line and "#" not in line} <= manual | {
        line.partition("  ")[0] for line in manual
    }
