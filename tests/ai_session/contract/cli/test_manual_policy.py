"""Every command that the pages on policy and consent show, run as it stands there."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ai_session.support import asking
from tests.ai_session.support.asking import client, error_of, greet
from tests.ai_session.support.mcp_client import Client, living_in, stop_daemons
from tests.conftest import new_home

DOCS = Path(__file__).parents[4] / "docs"
CONFIG = '[sandbox]\nprofile = "trusted"\n\n[[policy.rules]]\ndecision = "allow"\ntools = ["create_session"]\n\n'


def shown(page: str) -> list[str]:
    """The lines of the page's shell blocks."""
    return [line for block in blocks(page, "sh") for line in block.splitlines()]


def rules(page: str) -> str:
    """The page's example of a configuration."""
    return "\n".join(blocks(page, "toml"))


def blocks(page: str, language: str) -> list[str]:
    """The texts that a page sets apart as being in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def daemon_home(homes: Path, home: Path) -> Iterator[Path]:
    """A home with the manual's rules, in which commands are asked about."""
    made = new_home(homes, CONFIG + rules("reference/policy.md"))
    yield made
    stop_daemons(made)


def run(daemon_home: Path, line: str) -> str:
    """A line as a shell reads it; what the program prints that it names."""
    script = f"ai-session() {{ printf '%s\\0' \"$@\"; }}; {line}"
    read = subprocess.run(["/bin/bash", "-c", script], capture_output=True, text=True, check=True, cwd=daemon_home)
    words = read.stdout.split("\0")[:-1]
    return asking.person(daemon_home, *words)


def test_policy(daemon_home: Path) -> None:
    said = {line.partition("#")[0].strip(): run(daemon_home, line) for line in shown("reference/policy.md")}
    assert len(said) == 9
    assert said["ai-session policy mode"] == "workspace\n"
    assert said["ai-session policy mode read-only"] == "read-only\nConfigured is workspace.\n"
    assert "no-force\tdeny\tcommands git push --force, git push -f" in said["ai-session policy show"]
    assert "is valid" in said["ai-session policy check"] or not said["ai-session policy check"]
    assert "deny\tno-force" in said["ai-session policy explain -- git push --force"]
    assert "ask\tdefault:ask-all" in said["ai-session policy explain --mode ask-all -- 'ls > x'"]


def asked(daemon_home: Path, peer: Client, command: str) -> str:
    """The id of a new question."""
    result = peer.call("execute_command", session_id="main", command=command)
    assert error_of(result)["code"] == "consent_needed", result
    return asking.approvals(daemon_home)["questions"][-1]["question_id"]


def test_consent(daemon_home: Path) -> None:
    numbers = itertools.count()
    with client(daemon_home) as peer:
        greet(peer, {})
        assert not peer.call("create_session", name="main", backend="pty")["isError"]
        for line in shown("explanation/consent.md"):
            if "--folder" in line:
                continue  # test_consent_for_a_folder
            question_id = asked(daemon_home, peer, f"head -c {next(numbers)} {'x' if '--prefix' in line else '*'}")
            grants = asking.approvals(daemon_home)["grants"]
            given = (
                line.replace("gr_ID", grants[-1]["grant_id"]) if "gr_ID" in line else line.replace("ID", question_id)
            )
            said = run(daemon_home, given)
            left = asking.approvals(daemon_home)
            if "gr_ID" in line:
                assert left["grants"] == grants[:-1]
            elif " ID" in line:
                assert question_id not in {question["question_id"] for question in left["questions"]}
                assert ("Allowed" if "approve" in line else "Denied") in said
                assert len(left["grants"]) == len(grants) + ("--" in line and "approve" in line)
            else:
                assert question_id in said
    assert next(numbers) == 8


def test_consent_for_a_folder(homes: Path) -> None:
    daemon_home = new_home(homes, "")
    for name in ("ws", "elsewhere"):
        (daemon_home / name).mkdir()
    (line,) = [line for line in shown("explanation/consent.md") if "--folder" in line]
    with Client(
        asking.FAR, env={**living_in(daemon_home), "PYTHONPATH": str(asking.ROOT)}, cwd=daemon_home / "ws"
    ) as peer:
        greet(peer, {})
        new = {"name": "s", "backend": "pty", "working_directory": str(daemon_home / "elsewhere")}
        assert error_of(peer.call("create_session", **new))["code"] == "consent_needed"
        (question,) = asking.approvals(daemon_home)["questions"]
        assert "Allowed" in run(daemon_home, line.replace("ID", question["question_id"]))
        assert not peer.call("create_session", **new)["isError"]
    stop_daemons(daemon_home)
