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
def swarm_home(homes: Path) -> Iterator[SwarmHome]:
    with open_swarm_home(homes, AI_SESSION + QUICK, UNBOXED) as swarm_home:
        yield swarm_home


def task_of(run: Execution, name: str) -> dict[str, Any]:
    return run.result["tasks"][name]


async def test_two_programs_work_with_what_each_is_granted(swarm_home: SwarmHome) -> None:
    sneaky = agent("sneak", execute("touch sneaked"), "finish:succeeded:tried", grants=["ai-session.list_sessions"])
    async with swarm_home.client() as app, swarm_home.worker():
        run_id = await submit(app, swarm_home.plan(agent("ada", *WORK) + sneaky), swarm_home)
        started = await event(app, f"{run_id}.ada", "program.started")
        run = await over(app, run_id)
    assert task_of(run, "ada")["summary"] == "made it"
    assert swarm_home.lines("made.txt") == ["42"]
    assert not (swarm_home.project / "sneaked").exists()
    assert task_of(run, "ada")["usage"]["dollars"] == 0.25
    assert started["session"].startswith("ada-")
    refused = [record.facts for record in swarm_home.records() if record.event == "call.refused"]
    assert [(facts["agent"], facts["tool"], facts["code"]) for facts in refused] == [
        ("sneak", "ai-session.execute_command", "not_granted")
    ]
    report = swarm_home.joined()
    assert (report.problems, report.open) == ([], [])
    log = (swarm_home.home / "workers.log").read_text()
    assert "Traceback" not in log, log
    token = bridge_directory(swarm_home.state, f"{run_id}.ada").token("1").encode()
    files = [path for path in swarm_home.home.rglob("*") if path.is_file() and path.name != "socket"]
    assert len(files) > 5
    assert [path for path in files if token in path.read_bytes()] == []


@pytest.mark.torture
async def test_a_person_is_asked_for_each_call_of_a_program(swarm_home: SwarmHome) -> None:
    careful = agent("careful", OPEN, CLOSE, "finish:succeeded:asked", more='approval = "all"')
    async with swarm_home.client() as app, swarm_home.worker():
        run_id = await submit(app, swarm_home.plan(careful), swarm_home)
        for word, tool in (("yes", "create_session"), ("yes", "close_session")):
            async with asyncio.timeout(BOUND_SECONDS):
                async for one in app.engine.events(f"{run_id}.careful") if await started(app, run_id) else ():
                    if one["event"] == "approval.asked" and one["tool"] == f"ai-session.{tool}":
                        break
            assert len(await asyncio.to_thread(swarm_home.answer, word, "ann")) == 1
        run = await over(app, run_id)
    assert task_of(run, "careful")["summary"] == "asked"


async def started(app: Any, run_id: str) -> bool:
    return bool(await event(app, run_id, "task.started"))


@pytest.mark.torture
async def test_a_worker_is_killed_and_the_program_goes_on(swarm_home: SwarmHome) -> None:
    long = execute("echo begun >> made.txt; read line < go; echo $line >> made.txt")
    plan = swarm_home.plan(agent("ada", OPEN, long, CLOSE, "finish:succeeded:both lines"))
    os.mkfifo(swarm_home.project / "go")
    async with swarm_home.client() as app:
        async with swarm_home.worker() as worker:
            run_id = await submit(app, plan, swarm_home)
            await event(app, f"{run_id}.ada", "program.started")
            fd = await asyncio.to_thread(os.open, swarm_home.project / "go", os.O_WRONLY)
            worker.send_signal(signal.SIGKILL)
            await worker.wait()
        async with swarm_home.worker():
            await asyncio.to_thread(os.write, fd, b"gone on\n")
            os.close(fd)
            run = await over(app, run_id)
    assert (task_of(run, "ada")["status"], task_of(run, "ada")["summary"]) == ("succeeded", "both lines")
    assert swarm_home.lines("made.txt") == ["begun", "gone on"]
    programs = [record.facts for record in swarm_home.records() if record.facts.get("step") == "opened 1"]
    assert {facts["tool"] for facts in programs} == {"ai-session.create_session"}


READABLE = json.dumps([str(ROOT), str(Path(sys.executable).resolve().parents[1]), sys.prefix])
BOXED = f'[sandbox]\nworkspaces = ["~/.local/state/ccswarm/guests"]\nreadable = {READABLE}\n'


@pytest.mark.torture
async def test_a_program_works_in_a_box_of_its_own(homes: Path) -> None:
    with open_swarm_home(homes, AI_SESSION + QUICK, BOXED) as swarm_home:
        async with swarm_home.client() as app, swarm_home.worker():
            run_id = await submit(app, swarm_home.plan(agent("ada", *WORK)), swarm_home)
            run = await over(app, run_id)
        assert task_of(run, "ada")["summary"] == "made it"
        assert swarm_home.lines("made.txt") == ["42"]


@pytest.mark.torture
async def test_a_program_has_a_server_of_terminals_of_its_own(homes: Path) -> None:
    """With another home there is another daemon, which may be configured for programs alone."""
    with open_swarm_home(homes, "", UNBOXED) as other, open_swarm_home(homes, AI_SESSION + QUICK, "") as swarm_home:
        swarm_home.add(
            f'''
[[mcp.servers]]
name = "terminals"
command = "{sys.executable} -m ai_session mcp-server --stdio"
env = {{ PYTHONPATH = "{ROOT}", HOME = "{other.home}" }}
'''
        )
        given = agent("ada", "length:HOME", *WORK).replace("settings = {", 'settings = { shell = "terminals",')
        given = given.replace("resume =", f'environment = {{ HOME = "{swarm_home.home}" }}, resume =')
        async with swarm_home.client() as app, swarm_home.worker():
            run_id = await submit(app, swarm_home.plan(given), swarm_home)
            run = await over(app, run_id)
            started = await event(app, f"{run_id}.ada", "program.started")
            said = await event(app, f"{run_id}.ada", "agent.said")
        assert task_of(run, "ada")["summary"] == "made it"
        assert (started["server"], said["text"]) == ("terminals", str(len(str(swarm_home.home))))
        assert swarm_home.lines("made.txt") == ["42"]


KEPT_OUT = {
    "": "consent_needed: create_session needs a person's consent",
    BOXED.partition("readable")[0]: "scripted cannot be started in its terminal (exit code 127)",
}


@pytest.mark.torture
@pytest.mark.parametrize("config", KEPT_OUT)
async def test_a_box_that_keeps_a_program_out_is_named(homes: Path, config: str) -> None:
    with open_swarm_home(homes, AI_SESSION + QUICK, config) as swarm_home:
        async with swarm_home.client() as app, swarm_home.worker():
            run_id = await submit(app, swarm_home.plan(agent("ada", *WORK)), swarm_home)
            task = task_of(await over(app, run_id), "ada")
    assert task["status"] == RunStatus.FAILED
    assert KEPT_OUT[config] in task["summary"]
    assert "ai-session" in task["summary"].rpartition("; ")[2]
