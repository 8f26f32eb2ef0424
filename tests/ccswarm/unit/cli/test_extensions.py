"""A brain and a dialect that another distribution brings, found by their entry points."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path

import pytest

from agentwire import plugins
from ccswarm.cli.serve import serve
from ccswarm.config.settings import Settings
from ccswarm.errors import ConfigInvalid, UsageInvalid
from ccswarm.models import RunStatus
from ccswarm.servers.base import who_takes_words
from tests.ccswarm.support.swarms import MemoryWorker
from tests.support import distributions

MODULE = """
from ccswarm.brains.base import CallTool, Finish

class Thinking:
    async def decide(self, flow, ended):
        return [Finish("succeeded", ended["one"].text)] if ended else [CallTool("one", "srv.do", {})]

class Own:
    name, wants_tools, rounds = "own", False, 1

    def problems(self, agent, secret, *, priced):
        return []

    def begin(self, assignment, worker_context, before=None):
        return Thinking()

class Speech:
    name = "speech"

    def settings(self, settings, variables):
        return settings

    async def serve(self, serve_context, listening, stop):
        serve_context.tell(f"speech at {listening.port}")
        admission = serve_context.admission(listening, "127.0.0.1", "SPEECH_TOKEN", ())
        serve_context.tell_admission(admission, "127.0.0.1", "SPEECH_TOKEN", self.name)

OWN, SPEECH = Own(), Speech()
"""


@pytest.fixture(autouse=True)
def distribution(home: Path) -> Iterator[None]:
    with distributions.installed(home / "site", MODULE, ccswarm__brains="own", ccswarm__servers="speech"):
        yield


@pytest.mark.anyio
async def test_a_brain_is_found_by_the_name_that_an_agent_gives() -> None:
    worker = MemoryWorker()
    worker.tool("srv.do", text="done")
    plan = {"agents": [{"name": "ada", "grants": ["*"], "brain": "own"}], "tasks": [{"id": "main"}]}
    run = await worker.run(plan)
    assert (run.status, worker.ran) == (RunStatus.SUCCEEDED, ["one"])
    with pytest.raises(ConfigInvalid, match="no brains plugin is called 'other'"):
        plugins.load("ccswarm.brains", "other")


@pytest.fixture
def config(home: Path) -> Path:
    (home / "swarm.toml").write_text('agents = [{ name = "ada", brain = "own" }]\nmcp.servers = []\n')
    return home / "swarm.toml"


def test_a_dialect_is_served_by_its_name(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageInvalid, match="guest does not listen on a port"):
        serve(["guest"])
    serve(["speech"], port=7, config=config)
    assert "speech at 7" in capsys.readouterr().err


def test_without_a_purpose_of_its_own_a_dialect_names_the_plain_command() -> None:
    assert who_takes_words(Settings(), (), "")[-1].endswith("add it: ccswarm init")


def test_two_dialects_cannot_share_a_port(config: Path) -> None:
    with pytest.raises(UsageInvalid) as refused:
        serve(["speech", "other"], port=7, config=config)
    assert "--port for at most one other dialect" in refused.value.suggestion


def test_at_a_terminal_a_dialect_says_how_its_new_token_is_shown(config: Path) -> None:
    ours, theirs = os.openpty()
    with os.fdopen(ours, "rb", buffering=0) as shown, os.fdopen(theirs, "w") as terminal:
        with redirect_stderr(terminal):
            serve(["speech"], config=config)
        assert b"all others do: ccswarm token shows it" in shown.read(4096)
