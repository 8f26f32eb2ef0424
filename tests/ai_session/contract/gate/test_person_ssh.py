"""Over ssh a real person signs, after one command; an agent that can log in as well is nobody's person."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

from tests.ai_session.support import asking
from tests.ai_session.support.asking import client, error_of, greet
from tests.ai_session.support.mcp_client import Client, stop_daemons
from tests.conftest import new_home
from tests.support.ssh_host import SshHost, ssh_host

CONFIG = """
[sandbox]
profile = "trusted"

[consent]
from_remote = "{}"

[[policy.rules]]
id = "openings"
decision = "allow"
tools = ["create_session"]
"""
PASSPHRASE = "correct horse battery"


@pytest.fixture
def home(homes: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    made = new_home(homes, CONFIG.format(getattr(request, "param", "signed")))
    yield made
    stop_daemons(made)


@pytest.fixture
def host(home: Path, tmp_path: Path) -> Iterator[SshHost]:
    with ssh_host(tmp_path, home) as found:
        yield found


def asked(peer: Client, home: Path, command: str = "echo done") -> str:
    """The id of the question that this command leaves."""
    given = {"session_id": "main", "command": command}
    assert error_of(peer.call("execute_command", **given))["code"] == "consent_needed"
    return asking.approvals(home)["questions"][-1]["question_id"]


def opened(peer: Client) -> None:
    greet(peer, {}, name="wire")
    assert not peer.call("create_session", name="main", backend="pty")["isError"]


def ran(peer: Client, command: str = "echo done") -> str:
    return peer.call("execute_command", session_id="main", command=command)["structuredContent"]["output"].strip()


def enrol(host: SshHost, passphrase: str = PASSPHRASE) -> str:
    """What it says in the end."""
    window = host.typed("person", "enrol")
    for prompt in ("New passphrase", "Repeat it"):
        window.expect_exact(prompt)
        window.expect_exact(": ")
        window.sendline(passphrase)
    window.expect(pexpect.EOF)
    return window.before or ""


def test_a_newcomer_over_ssh_is_told_what_to_do_and_it_works(home: Path, host: SshHost) -> None:
    with client(home) as peer:
        opened(peer)
        question_id = asked(peer, home)
        code, said = host.result("approve", question_id)
        assert code == 1
        assert "came in through sshd" in said.replace("\r\n", "")
        assert (
            f"choose a passphrase, once, with: ai-session person enrol; then: ai-session approve {question_id}" in said
        )
    assert "what you sign with this passphrase counts as your answer" in enrol(host)
    with client(home) as peer:
        greet(peer, {}, name="wire")
        question_id = asked(peer, home, "echo signed")
        window = host.typed("approve", question_id)
        window.expect_exact("echo signed")
        window.expect_exact("Your answer: yes (once).")
        window.expect_exact("Passphrase: ")
        window.sendline(PASSPHRASE)
        window.expect_exact("Allowed (once):")
        window.expect(pexpect.EOF)
        assert PASSPHRASE not in (window.before or "")
        assert ran(peer, "echo signed") == "signed"


@pytest.mark.torture  # by day test_person_check.py has the key of such a window refused
def test_nobody_enrols_from_afar_while_an_agent_is_connected(home: Path, host: SshHost) -> None:
    with client(home) as peer:
        opened(peer)
        question_id = asked(peer, home)
        assert "end the agents that use ai-session here, then run: ai-session person enrol" in enrol(host)
        assert "signature_needed" in str(asking.control(home, "approve", question_id=question_id))


@pytest.mark.torture  # above the newcomer's answer is refused without one
def test_nothing_but_a_terminal_takes_the_passphrase(home: Path, host: SshHost) -> None:
    enrol(host)
    with client(home) as peer:
        opened(peer)
        question_id = asked(peer, home)
        for words in (
            ("approve", question_id),
            ("policy", "mode", "trusted"),
            ("person", "enrol"),
            ("person", "remove"),
        ):
            code, said = host.run(*words, given=f"{PASSPHRASE}\n{PASSPHRASE}\n")
            assert code != 0, said
            assert "terminal" in said
        assert [question["question_id"] for question in asking.approvals(home)["questions"]] == [question_id]
        code, said = host.run("reject", question_id)
        assert code == 0, said  # it lets nothing happen


@pytest.mark.torture  # test_person_terminals.py has it without ssh
def test_another_passphrase_takes_the_old_one(home: Path, host: SshHost) -> None:
    enrol(host)
    window = host.typed("person", "enrol")
    for _ in range(2):
        window.expect_exact(": ")
        window.sendline("another passphrase")
    window.expect_exact("Passphrase: ")
    for _ in range(3):
        window.sendline("another passphrase")
        window.expect_exact("That is not the passphrase.")
    window.expect_exact("nothing was signed")
    window.expect(pexpect.EOF)
    window = host.typed("policy", "mode", "trusted")
    window.expect_exact("Set mode trusted for every client; it is workspace now.")
    window.expect_exact("Passphrase: ")
    window.sendline(PASSPHRASE)
    window.expect_exact("trusted\r\n")
    window.expect(pexpect.EOF)
    window = host.typed("person", "remove")
    window.expect_exact("Passphrase: ")
    window.sendline(PASSPHRASE)
    window.expect_exact("is no longer accepted")
    window.expect(pexpect.EOF)


@pytest.mark.torture  # by day test_person_check.py has it of a terminal that says where it came from
@pytest.mark.parametrize("home", ["terminal"], indirect=True)
def test_a_terminal_over_ssh_counts_where_it_is_configured_to(home: Path, host: SshHost) -> None:
    with client(home) as peer:
        opened(peer)
        question_id = asked(peer, home)
        code, said = host.run("approve", question_id)
        assert (code, "has no terminal" in said) == (1, True), said
        code, said = host.result("approve", question_id)
        assert code == 0, said
        assert ran(peer) == "done"
