"""What the swarm's server works with: a worker only while there is something to be carried out, and the configuration
as it is now."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ccswarm.config import config
from ccswarm.errors import UsageInvalid
from ccswarm.servers.base import ServerOptions
from ccswarm.servers.mcp.toolsets.swarm.calls import call
from ccswarm.servers.mcp.workbench import Workbench
from tests.ccswarm.support.runs import SMALL, TWO, step, task
from tests.ccswarm.support.verbs import agent, agreed, server
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio


async def started(verbs: Workbench, **arguments: str) -> str:
    """A run, when it is over."""
    run = (await call(verbs, "start_run", arguments)).facts["run"]
    app = await verbs.reading()
    ended = await asyncio.wait_for(app.engine.wait(run), BOUND_SECONDS)
    assert ended.result["status"] == "succeeded", ended.result
    return run


async def test_without_work_it_is_no_worker_and_becomes_one_again(home: Path) -> None:
    (home / "ccswarm.toml").write_text(SMALL + TWO)
    verbs = Workbench(ServerOptions(home / "ccswarm.toml", home), rest_seconds=0.05)
    try:
        assert verbs.worker == ""
        for _ in range(2):
            with verbs.in_use():
                run = await started(verbs)
                assert verbs.worker
            assert verbs.resting
            await asyncio.wait_for(verbs.resting, BOUND_SECONDS)
            assert verbs.worker == ""
            status = await call(verbs, "run_status", {"run": run})
            assert status.facts["status"] == "succeeded"
            assert (await (await verbs.reading()).engine.health())["workers"] == {}
    finally:
        await verbs.close()


@pytest.mark.torture
async def test_servers_that_the_configuration_names_later_are_known_to_the_next_run(home: Path) -> None:
    file = home / "ccswarm.toml"
    file.write_text(SMALL + TWO)
    verbs = Workbench(ServerOptions(file, home))
    try:
        await started(verbs)
        more = server("late", "plain") + agent("zoe", "late.*")
        file.write_text(SMALL + more + task("new", step("say", "late.echo"), more='agent = "zoe"'))
        agreed(file, home / ".local/state/ccswarm")
        run = await started(verbs)
        assert [one["agent"] for one in (await call(verbs, "run_status", {"run": run})).facts["tasks"]] == ["zoe"]
    finally:
        await verbs.close()


@pytest.mark.parametrize("named", [False, True])
def test_a_link_that_takes_the_place_of_the_workspace_is_not_followed(tmp_path: Path, named: bool) -> None:
    """Whatever way in it is: all ask for their directory here. A box above it may put a link there."""
    (tmp_path / "box/work").mkdir(parents=True)
    (tmp_path / "private").mkdir()
    file = tmp_path / "ccswarm.toml"
    file.write_text('[swarm]\nworkspace = "box/work"\n' if named else "")
    options, loaded = ServerOptions(file, None if named else tmp_path / "box/work"), config.peek(file)
    assert options.root(loaded) == tmp_path / "box/work"
    for moved, target in ((tmp_path / "box/work", "../private"), (tmp_path / "box", "gone")):
        moved.rename(tmp_path / "gone")
        moved.symlink_to(target)
        with pytest.raises(UsageInvalid, match="has been replaced by another directory"):
            options.root(loaded)
        moved.unlink()
        (tmp_path / "gone").rename(moved)
    assert options.root(loaded) == tmp_path / "box/work"
