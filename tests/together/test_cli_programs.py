"""Programs drive agents in real terminals of ai-session: with boxes and without, killed workers, people who answer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from ccswarm.bridge.bridge import bridge_directory
from ccswarm.models import Execution, RunStatus
from tests.conftest import UNBOXED
from tests.support.bounds import BOUND_SECONDS
from tests.together.support.swarms import AI_SESSION, DATA, QUICK, ROOT, SwarmHome, event, open_swarm_home, over, submit

pytestmark = pytest.mark.anyio

OPEN = 'call:ai-session__create_session:{"name":"work"}'
CLOSE = 'call:ai-session__close_session:{"session_id":"work"}'
GRANTS = ("ai-session.create_session", "ai-session.execute_command", "ai-session.close_session")


def execute(command: str) -> str:
    return "call:ai-session__execute_command:" + json.dumps({"session_id": "work", "command": command})


def agent(name: str, *actions: str, grants: Sequence[str] = GRANTS, more: str = "") -> str:
    words = [sys.executable, str(DATA / "scripted_agent.py"), "{mcp_config}"]
    resume = [*words, "--resume", "{session}", "say:resumed", "finish:failed:was interrupted"]
    settings = f"program = 'scripted', command = {json.dumps([*words, *actions])}, resume = {json.dumps(resume)}"
    return (
        f'[[agents]]\nname = "{name}"\nbrain = "cli"\ngrants = {json.dumps(grants)}\n'
        f"settings = {{ {settings} }}\n{more}\n"
        f'[[tasks]]\nid = "{name}"\nagent = "{name}"\ntext = "do it"\n'
    )


WORK = (OPEN, execute("echo $((6 * 7)) > made.txt; pwd"), CLOSE, "finish:succeeded:made it")


@pytest.fixture
def house(world: Path) -> Iterator[SwarmHome]:
    with open_swarm_home(world, AI_SESSION + QUICK, UNBOXED) as house:
        yield house


def task_of(run: Execution, name: str) -> dict[str, Any]:
    return run.result["tasks"][name]


async def test_two_programs_work_with_what_each_is_granted(house: SwarmHome) -> None:
    sneaky = agent("sneak", execute("touch sneaked"), "finish:succeeded:tried", grants=["ai-session.list_sessions"])
    async with house.client() as app, house.worker():
        run_id = await submit(app, house.plan(agent("ada", *WORK) + sneaky), house)
        started = await event(app, f"{run_id}.ada", "program.started")
        run = await over(app, run_id)
    assert task_of(run, "ada")["summary"] == "made it"
    assert house.lines("made.txt") == ["42"]
    assert not (house.project / "sneaked").exists()
    assert task_of(run, "ada")["usage"]["dollars"] == 0.25
    assert started["session"].startswith("ada-")
    refused = [record.facts for record in house.records() if record.event == "call.refused"]
    assert [(facts["agent"], facts["tool"], facts["code"]) for facts in refused] == [
        ("sneak", "ai-session.execute_command", "not_granted")
    ]
    report = house.joined()
    assert (report.problems, report.open) == ([], [])
    log = (house.home / "workers.log").read_text()
    assert "Traceback" not in log, log
    token = bridge_directory(house.state, f"{run_id}.ada").token("1").encode()
    files = [path for path in house.home.rglob("*") if path.is_file() and path.name != "desk"]
    assert len(files) > 5
    assert [path for path in files if token in path.read_bytes()] == []


@pytest.mark.torture
async def test_a_person_is_asked_for_each_call_of_a_program(house: SwarmHome) -> None:
    careful = agent("careful", OPEN, CLOSE, "finish:succeeded:asked", more='approval = "all"')
    async with house.client() as app, house.worker():
        run_id = await submit(app, house.plan(careful), house)
        for word, tool in (("yes", "create_session"), ("yes", "close_session")):
            async with asyncio.timeout(BOUND_SECONDS):
                async for one in app.engine.events(f"{run_id}.careful") if await started(app, run_id) else ():
                    if one["event"] == "approval.asked" and one["tool"] == f"ai-session.{tool}":
                        break
            assert len(await asyncio.to_thread(house.answer, word, "ann")) == 1
        run = await over(app, run_id)
    assert task_of(run, "careful")["summary"] == "asked"


async def started(app: Any, run_id: str) -> bool:
    return bool(await event(app, run_id, "task.started"))


@pytest.mark.torture
async def test_a_worker_is_killed_and_the_program_goes_on(house: SwarmHome) -> None:
    long = execute("echo begun >> made.txt; read line < go; echo $line >> made.txt")
    plan = house.plan(agent("ada", OPEN, long, CLOSE, "finish:succeeded:both lines"))
    os.mkfifo(house.project / "go")
    async with house.client() as app:
        async with house.worker() as worker:
            run_id = await submit(app, plan, house)
            await event(app, f"{run_id}.ada", "program.started")
            fd = await asyncio.to_thread(os.open, house.project / "go", os.O_WRONLY)
            worker.send_signal(signal.SIGKILL)
            await worker.wait()
        async with house.worker():
            await asyncio.to_thread(os.write, fd, b"gone on\n")
            os.close(fd)
            run = await over(app, run_id)
    assert (task_of(run, "ada")["status"], task_of(run, "ada")["summary"]) == ("succeeded", "both lines")
    assert house.lines("made.txt") == ["begun", "gone on"]
    programs = [record.facts for record in house.records() if record.facts.get("step") == "opened 1"]
    assert {facts["tool"] for facts in programs} == {"ai-session.create_session"}


READABLE = json.dumps([str(ROOT), str(Path(sys.executable).resolve().parents[1]), sys.prefix])
BOXED = f'[sandbox]\nworkspaces = ["~/.local/state/ccswarm/guests"]\nreadable = {READABLE}\n'


@pytest.mark.torture
async def test_a_program_works_in_a_box_of_its_own(world: Path) -> None:
    with open_swarm_home(world, AI_SESSION + QUICK, BOXED) as house:
        async with house.client() as app, house.worker():
            run_id = await submit(app, house.plan(agent("ada", *WORK)), house)
            run = await over(app, run_id)
        assert task_of(run, "ada")["summary"] == "made it"
        assert house.lines("made.txt") == ["42"]


@pytest.mark.torture
async def test_a_program_has_a_server_of_terminals_of_its_own(world: Path) -> None:
    """With another home there is another daemon, which may be configured for programs alone."""
    with open_swarm_home(world, "", UNBOXED) as other, open_swarm_home(world, AI_SESSION + QUICK, "") as house:
        house.add(
            f'''
[[mcp.servers]]
name = "terminals"
command = "{sys.executable} -m ai_session mcp-server --stdio"
env = {{ PYTHONPATH = "{ROOT}", HOME = "{other.home}" }}
'''
        )
        given = agent("ada", "length:HOME", *WORK).replace("settings = {", 'settings = { shell = "terminals",')
        given = given.replace("resume =", f'environment = {{ HOME = "{house.home}" }}, resume =')
        async with house.client() as app, house.worker():
            run_id = await submit(app, house.plan(given), house)
            run = await over(app, run_id)
            started = await event(app, f"{run_id}.ada", "program.started")
            said = await event(app, f"{run_id}.ada", "agent.said")
        assert task_of(run, "ada")["summary"] == "made it"
        assert (started["server"], said["text"]) == ("terminals", str(len(str(house.home))))
        assert house.lines("made.txt") == ["42"]


KEPT_OUT = {
    "": "consent_needed: create_session needs a person's consent",
    BOXED.partition("readable")[0]: "scripted cannot be started in its terminal (exit code 127)",
}


@pytest.mark.torture
@pytest.mark.parametrize("config", KEPT_OUT)
async def test_a_box_that_keeps_a_program_out_is_named(world: Path, config: str) -> None:
    with open_swarm_home(world, AI_SESSION + QUICK, config) as house:
        async with house.client() as app, house.worker():
            run_id = await submit(app, house.plan(agent("ada", *WORK)), house)
            task = task_of(await over(app, run_id), "ada")
    assert task["status"] == RunStatus.FAILED
    assert KEPT_OUT[config] in task["summary"]
    assert "ai-session" in task["summary"].rpartition("; ")[2]
