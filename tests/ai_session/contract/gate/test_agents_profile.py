"""A looser profile than is configured is a person's choice, also where an agent runs the verb."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ai_session.support.command_line import CommandLine
from tests.ai_session.support.mcp_client import Client, living_in, stop_daemons
from tests.conftest import new_home

CONFIG = "[policy]\nask_seconds = 0.01\n"


@pytest.fixture
def line(homes: Path) -> Iterator[CommandLine]:
    home = new_home(homes, CONFIG)
    yield CommandLine(home)
    stop_daemons(home)


def test_a_person_is_asked_if_an_agent_chooses_a_looser_profile(line: CommandLine) -> None:
    with Client(env=living_in(line.home), cwd=line.home) as relay:
        relay.initialize()
        assert "ap_" in line.run("new", "free", "--profile", "trusted", code=1).stderr
        assert line.json("new", "tight", "--profile", "read-only")["sandbox"].startswith("read-only")
        assert line.json("new", "usual")["sandbox"].startswith("workspace")
        assert [row["name"] for row in line.json("ls")] == ["tight", "usual"]
        assert [row["tool"] for row in line.json("approvals")["questions"]] == ["create_session"]
    records = [json.loads(one) for one in line.out("audit", "export").splitlines()]
    made = [one["actor"] for one in records if one["event"] == "tool.start" and one["tool"] == "create_session"]
    who = [(actor["kind"], actor.get("client", "")) for actor in made]
    assert who == [("mcp", "ai-session"), ("person", ""), ("person", "")]


def test_nobody_is_asked_where_no_agent_runs(line: CommandLine) -> None:
    assert line.json("new", "free", "--profile", "trusted")["sandbox"] == "none"
