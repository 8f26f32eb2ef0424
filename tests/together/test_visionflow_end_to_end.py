"""Swarms of VisionFlow whose agents work in real ai-sessions: what they do is done; terminated they leave nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.ccswarm.support.runs import RunVerbs
from tests.ccswarm.support.visionflow_server import Served, Wire, served
from tests.conftest import processes
from tests.together.support.swarms import AI_SESSION, QUICK, SwarmHome, open_swarm_home

AGENT = """
[[agents]]
name = "{name}"
type = "{kind}"
grants = ["ai-session.*_session", "ai-session.execute_command"]
[[agents.settings.steps]]
id = "open"
tool = "ai-session.create_session"
args = {{ name = "${{run.id}}-${{agent.name}}-${{task.attempt}}", working_directory = "${{workspace}}" }}
gate = true
[[agents.settings.steps]]
id = "work"
tool = "ai-session.execute_command"
args = {{ session_id = "${{steps.open.session_id}}", {command} }}
[[agents.settings.steps]]
id = "close"
tool = "ai-session.close_session"
args = {{ session_id = "${{steps.open.session_id}}" }}
"""
NOTE = "command = 'cat >> notes', stdin = \"${agent.name}: ${task.text}\\n\""
HANG = "command = 'sleep 1000 & echo $! > pipe; wait', timeout_seconds = 45"
CREW = (
    AGENT.format(name="ada", kind="researcher", command=NOTE)
    + AGENT.format(name="bob", kind="coder", command=NOTE)
    + AGENT.format(name="eve", kind="coordinator", command=NOTE)
    + AGENT.format(name="ann", kind="analyst", command=HANG)
)
TRUSTED = '[sandbox]\nprofile = "trusted"\n\n[policy]\nmode = "trusted"\n'


@pytest.fixture
def swarm_home(homes: Path) -> Iterator[SwarmHome]:
    with open_swarm_home(homes, AI_SESSION + QUICK + CREW, TRUSTED) as swarm_home:
        os.mkfifo(swarm_home.project / "pipe")
        yield swarm_home


@contextmanager
def serving(swarm_home: SwarmHome) -> Iterator[tuple[Served, Wire]]:
    words = ("--config", str(swarm_home.file), "--workspace", str(swarm_home.project))
    with served(RunVerbs(swarm_home.home), *words) as server, Wire(server.port) as wire:
        yield server, wire


def orchestrated(wire: Wire, swarm: str, task: str, **more: Any) -> str:
    return wire.ask("task_orchestrate", swarmId=swarm, task=task, strategy="parallel", **more)["taskId"]


def is_there(pid: int) -> bool:
    return pid in [one for one, _ in processes()]


@pytest.mark.torture  # test_visionflow_page.py, test_visionflow_swarms.py
def test_agents_do_in_their_terminals_what_a_client_says(swarm_home: SwarmHome) -> None:
    with serving(swarm_home) as (_, wire):
        swarm, agents = wire.swarm("ring", "researcher", "coder", "coordinator")
        done = wire.over(orchestrated(wire, swarm, 'It\'s $(whoami) & "co"; `id`'))
        assert (done["status"], done["usage"]["calls"]) == ("completed", 9)
        reported = 'It\'s $(whoami) & "co"; `id`'
        assert swarm_home.lines("notes") == [f"{name}: {reported}" for name in ("ada", "bob", "eve")]
        found = wire.tool("agent_list", swarmId=swarm)["agents"]
        assert [one["performance"]["tool_calls"] for one in found] == [3, 3, 3]
        status = wire.ask("swarm_status", swarmId=swarm)
        assert (status["pendingTasks"], status["completedTasks"], status["activeAgents"]) == (0, 1, 3)
        for agent in agents:
            wire.ask("agent_terminate", agentId=agent)
    report = swarm_home.joined()
    assert (report.problems, report.joined) == ([], report.calls)
    assert report.calls >= 9


@pytest.mark.torture  # contract/test_visionflow_swarms.py has it without terminals
def test_terminated_in_the_middle_of_a_command_an_agent_leaves_no_process(swarm_home: SwarmHome) -> None:
    with serving(swarm_home) as (_, wire):
        swarm, (ann, bob) = wire.swarm("mesh", "analyst", "coder")
        task = orchestrated(wire, swarm, "go")
        sleeper = int((swarm_home.project / "pipe").read_text())  # its command runs
        assert is_there(sleeper)
        wire.ask("agent_terminate", agentId=ann)
        assert not is_there(sleeper)
        done = wire.over(task)
        assert (done["status"], [one["agent"] for one in done["parts"]]) == ("completed", ["bob"])
        assert swarm_home.lines("notes") == ["bob: go"]
        wire.ask("agent_terminate", agentId=bob)
    closed = [one.facts for one in swarm_home.records() if one.event == "call.end" and one.facts["agent"] == "cleaner"]
    assert ("ai-session.close_session", "ok") in [(one["tool"], one["status"]) for one in closed]
