"""Which words are offered to be allowed with whatever follows: only those that look, and never by a trick."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_session.gate.policy.policy import Action, Policy
from ai_session.gate.policy.prefix import GIT_READING, READING, offered_prefix
from ai_session.models import Effect, Principal, SandboxLevel
from tests.ai_session.support.policy_lines import HOSTILE

WORDS = [
    *sorted(READING | GIT_READING),
    *("git", "rm", "sh", "-c", "-f", "-o", "-O", "--output=x", "--exec", "-exec", "src", "/etc", "..", "~", ".env"),
    *("env", "sudo", "xargs", "python", "push", "make", "|", "&&", ";", ">x", "2>&1", "$X", "*", "'a b'", "-rn", "x"),
]


@pytest.mark.parametrize(
    ("command", "prefix"),
    [
        ("git log --oneline -5", "git log"),
        ("git -C sub log", ""),
        ("grep -rn 'two words' src", "grep"),
        ("ls", "ls"),
        ("ls 2>/dev/null", "ls"),
        ("find . -name '*.py'", "find"),
        ("git push origin main", ""),
        ("git branch -v", ""),
        ("git", ""),
        ("rm -rf build", ""),
        ("cat /etc/passwd", ""),
        ("cat ../secret", ""),
        ("cat .env", ""),
        ("find . -delete", ""),
        ("git log --output=x", ""),
        ("ls | head", ""),
        ("ls; ls", ""),
        ("ls > x", ""),
        ("A=1 ls", ""),
        ("/bin/ls", ""),
        ("", ""),
        *((f"{wrapper} ls", "") for wrapper in ("sh -c", "env", "sudo", "xargs", "python -c", "timeout 5", "command")),
    ],
)
def test_only_what_looks_is_offered(command: str, prefix: str) -> None:
    assert offered_prefix(command, "default:no-box") == prefix


@pytest.mark.parametrize("rule", ["push-asks", "default:outside-workspace", "default:loosens", "no-force", ""])
def test_what_somebody_wrote_a_rule_about_is_never_widened(rule: str) -> None:
    assert offered_prefix("git log", rule) == ""


@pytest.mark.parametrize("line", HOSTILE)
def test_no_hostile_line_is_covered(line: str) -> None:
    assert offered_prefix(line, "default:no-box") == ""


@given(st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join))
def test_what_is_covered_is_what_an_allow_rule_with_the_prefix_lets_through(line: str) -> None:
    if prefix := offered_prefix(line, "default:no-box"):
        policy = Policy(os.getuid(), rules=[{"decision": "allow", "commands": [prefix]}])
        asked = Action(
            Principal("mcp", os.getuid()),
            "execute_command",
            Effect.EXECUTE,
            profile="trusted",
            level=SandboxLevel.NONE,
            command=line,
        )
        assert policy.decide(asked).verdict == "allow"
