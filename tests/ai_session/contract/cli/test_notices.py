"""A daemon that tells its person: of questions, of commands past their deadline, by a real program."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ai_session.cli import doctor
from tests.ai_session.support.asking import client, error_of, greet
from tests.ai_session.support.command_line import CommandLine
from tests.ai_session.support.mcp_client import living_in, stop_daemons
from tests.conftest import WINDOWS, environment, new_home
from tests.support.notices import NoticeReader, reading_notices

RULE = '[[policy.rules]]\nid = "ask"\ndecision = "ask"\ncommands = ["halt now"]\n'


@pytest.fixture(scope="module")
def home(homes: Path) -> Iterator[Path]:
    home = new_home(homes)
    yield home
    stop_daemons(home)


@pytest.fixture(scope="module")
def notices(home: Path) -> Iterator[NoticeReader]:
    with reading_notices(home / ".config/ai-session") as notices:
        notify = f'[notify]\ncommand = ["{notices.program}"]\ncommand_seconds = 0.2\nper_minute = 100\nseconds = 60\n'
        text = '[sandbox]\nprofile = "trusted"\n\n[policy]\nmode = "trusted"\nask_seconds = 0.1\n'
        (home / ".config/ai-session/config.toml").write_text(text + WINDOWS + RULE + notify)
        yield notices


def test_questions_and_long_commands_are_told_without_their_text(home: Path, notices: NoticeReader) -> None:
    with client(home) as peer:
        greet(peer, {})
        assert not peer.call("create_session", name="main", backend="pty")["isError"]
        begun = peer.call("execute_command", session_id="main", command="read -r held", timeout_seconds=0.05)
        running = begun["structuredContent"]["command_id"]
        overdue = notices.next()
        assert (overdue["event"], overdue["facts"]) == ("command", {"command_id": running, "session": "main"})
        assert overdue["text"] == f"{running} in session main still runs after 0.2 s"
        assert not peer.call("interrupt_command", session_id="main")["isError"]
        assert error_of(peer.call("execute_command", session_id="main", command="halt now"))["code"] == "consent_needed"
        asked = notices.next()
    assert (asked["event"], asked["facts"]["tool"], asked["facts"]["session"]) == (
        "question",
        "execute_command",
        "main",
    )
    number = asked["facts"]["question_id"]
    assert asked["text"] == f"execute_command in main waits for your answer: ai-session approve {number}"


def test_a_person_tries_the_ways(home: Path, notices: NoticeReader) -> None:
    line = CommandLine(home)
    assert json.loads(line.out("notify", "test", "--json")) == {"sent": [{"way": "command", "problem": ""}]}
    assert notices.next()["event"] == "test"
    with environment(living_in(home)):
        (finding,) = doctor.notices()
    assert (finding.state, finding.detail) == ("ok", "command; ai-session notify test tries them")
    notices.program.chmod(0o600)
    try:
        assert "is not a program that can be run" in line.run("notify", "test", code=1).stdout
        with environment(living_in(home)):
            (finding,) = doctor.notices()
        assert (finding.state, finding.detail) == ("warn", f"{notices.program} cannot be run")
    finally:
        notices.program.chmod(0o755)
