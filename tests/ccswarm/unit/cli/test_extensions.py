"""A brain and a dialect that another distribution brings, found by their entry points."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentwire import plugins
from ccswarm.cli.serve import serve
from ccswarm.errors import ConfigInvalid, UsageInvalid
from ccswarm.models import RunStatus
from tests.ccswarm.support.swarms import MemoryWorker
from tests.support import distributions

MODULE = """
from ccswarm.brains.base import CallTool, Finish

class Thinking:
    async def decide(self, flow, ended):
        return [Finish("succeeded", ended["one"].text)] if ended else [CallTool("one", "srv.do", {})]

class Own:
    name, wants_tools, visits = "own", False, 1

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


def test_a_dialect_is_served_by_its_name(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageInvalid, match="guest does not listen on a port"):
        serve(["guest"])
    (home / "swarm.toml").write_text('agents = [{ name = "ada", brain = "own" }]\nmcp.servers = []\n')
    serve(["speech"], port=7, config=home / "swarm.toml")
    assert "speech at 7" in capsys.readouterr().err
