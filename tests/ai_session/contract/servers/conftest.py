"""Daemons and connections that several tests of the ways in begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ai_session.support.entries import DaemonHome, daemon_home
from tests.ai_session.support.mcp_client import Client, double, living_in
from tests.ai_session.support.person_client import Person
from tests.conftest import new_home


@pytest.fixture(scope="module")
def warm(homes: Path) -> Iterator[dict[str, str]]:
    """The environment of a daemon that has everything imported; its heartbeat is 0.01 s."""
    home = new_home(homes)
    with double(home=home):
        with Client(env=living_in(home)) as client:
            client.call("echo")
        yield living_in(home)


@pytest.fixture
def person(daemon_home: Path) -> Iterator[Person]:
    """A person's program, whose sessions end with the test."""
    with Person(daemon_home) as person:
        yield person
        for row in person.call("list_sessions")["structured"]["sessions"]:
            person.call("close_session", session_id=row["session_id"])


@pytest.fixture(scope="module")
def shut_house(homes: Path) -> Iterator[DaemonHome]:
    """With a third session ``u``; nothing can be changed any more."""
    with daemon_home(new_home(homes)) as made:
        with made.line.client() as client:
            client.call("create_session", name="u", backend="pty", working_directory=str(made.home))
        made.shut()
        yield made
