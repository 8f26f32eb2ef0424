"""One trace from a run of ccswarm over its tasks and calls into the daemon that carries them out, at a collector."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from typing import TextIO

import pytest

from ccswarm.models import RunStatus
from ccswarm.toolbox.telemetry.spans import span_id_of, trace_id_of
from tests.conftest import UNBOXED, environment
from tests.support.collector import Collector, Seen
from tests.together.support.swarms import AI_SESSION, QUICK, open_swarm_home, over, submit

pytestmark = pytest.mark.anyio
CLIENT, SERVER = 3, 2
SECRET = "correct-Horse-77aXq"
CREW = """
[[agents]]
name = "ada"
grants = ["ai-session.*"]
"""
PLAN = f"""
[[tasks]]
id = "make"

[[tasks.steps]]
id = "open"
tool = "ai-session.create_session"
args = {{ name = "s", backend = "pty", env = {{ DB_PASSWORD = "{SECRET}" }} }}

[[tasks.steps]]
id = "say"
tool = "ai-session.execute_command"
args = {{ session_id = "s", command = "echo $DB_PASSWORD {SECRET}" }}

[[tasks.steps]]
id = "close"
tool = "ai-session.close_session"
args = {{ session_id = "s" }}
"""


async def test_one_trace_from_the_run_to_the_daemon(homes: Path) -> None:
    with Collector() as collector:
        reported = f'[telemetry]\nendpoint = "{collector.url}"\nmetrics_seconds = 0.3\n'
        with open_swarm_home(homes, AI_SESSION + QUICK + reported + CREW, UNBOXED + reported) as swarm_home:
            async with swarm_home.client() as app, swarm_home.worker():
                run_id = await submit(app, swarm_home.plan(PLAN), swarm_home)
                run = await over(app, run_id)
            assert run.result["status"] == RunStatus.SUCCEEDED, run.result
        # Both have ended, and have sent what was left.
        people = "ai_session.principal.kind"  # who ended the daemon asked what was open
        spans = collector.until(lambda: [one for one in collector.spans if one.trace == f"{trace_id_of(run_id):032x}"])
        others = [one for one in collector.spans if one not in spans and not one.parent]
        assert {one.attributes[people] for one in others} <= {"person"}
    of: dict[str, Seen] = {span.id: span for span in spans}
    assert len(spans) == 1 + 1 + 3 * (1 + 1 + 2)
    (whole,) = [span for span in spans if not span.parent]
    assert (whole.name, whole.id) == ("invoke_workflow", f"{span_id_of(run_id):016x}")
    served = [span for span in spans if span.kind == SERVER]
    assert {span.resource["service.name"] for span in served} == {"ai-session"}
    for span in served:
        sent = of[span.parent]
        assert (sent.kind, sent.resource["service.name"]) == (CLIENT, "ccswarm")
        assert sent.name.partition(".")[2] == span.attributes["gen_ai.tool.name"]
        assert sent.attributes["ai_session.call.id"] == span.attributes["ai_session.call.id"]
        assert sent.attributes["ccswarm.call.id"] == span.attributes["ai_session.client.call_id"]
        task = of[sent.parent]
        assert (task.name, task.parent) == ("invoke_agent ada", whole.id)
        assert sent.seconds >= span.seconds
    assert [span.name.split("_")[0] for span in served] == [
        "tools/call create",
        "tools/call execute",
        "tools/call close",
    ]
    assert {span.name for span in spans if span.parent in {one.id for one in served}} == {"audit.begin", "tool.run"}
    (ran,) = [span for span in served if span.attributes["gen_ai.tool.name"] == "execute_command"]
    assert ran.attributes["process.exit.code"] == 0
    assert collector.total("ccswarm.run.duration") == 1
    assert collector.total("mcp.client.operation.duration") == 3
    assert collector.total("mcp.server.operation.duration", **{"mcp.method.name": "tools/call"}) == 3
    assert not [body for body in collector.bodies if SECRET.encode() in body]


HELD = """
[[tasks]]
id = "make"

[[tasks.steps]]
id = "open"
tool = "ai-session.create_session"
args = { name = "s", backend = "pty" }

[[tasks.steps]]
id = "before"
tool = "ai-session.execute_command"
args = { session_id = "s", command = "echo before >> lines" }

[[tasks.steps]]
id = "held"
tool = "ai-session.execute_command"
args = { session_id = "s", command = "read line < pipe; echo $line >> lines", timeout_seconds = 50 }
"""


@pytest.mark.torture
async def test_a_killed_workers_calls_and_those_after_it_are_one_trace_and_none_is_told_twice(homes: Path) -> None:
    with Collector() as collector:
        reported = f'[telemetry]\nendpoint = "{collector.url}"\n'
        with open_swarm_home(homes, AI_SESSION + QUICK + reported + CREW, UNBOXED + reported) as swarm_home:
            os.mkfifo(swarm_home.project / "pipe")
            soon = {**os.environ, "OTEL_BSP_SCHEDULE_DELAY": "50"}
            async with swarm_home.client() as app:
                with environment(soon):
                    async with swarm_home.worker() as first:
                        run_id = await submit(app, swarm_home.plan(HELD), swarm_home)
                        pipe = await asyncio.to_thread(open, swarm_home.project / "pipe", "w")
                        calls = "tools/call ai-session.execute_command"
                        await asyncio.to_thread(collector.until, lambda: collector.named(calls))
                        first.kill()
                    async with swarm_home.worker():
                        await asyncio.to_thread(write, pipe)
                        run = await over(app, run_id)
            assert run.result["status"] == RunStatus.SUCCEEDED, run.result
            assert swarm_home.lines("lines") == ["before", "go on"]
        spans = [span for span in collector.spans if span.trace == f"{trace_id_of(run_id):032x}"]
    names = Counter(span.name for span in spans if span.resource["service.name"] == "ccswarm")
    # The held one was sent twice, with one key; what the killed worker would have told of it is lost.
    assert names == {
        "invoke_workflow": 1,
        "invoke_agent ada": 1,
        "tools/call ai-session.create_session": 1,
        "tools/call ai-session.execute_command": 2,
        "tools/call ai-session.list_sessions": 1,
        "tools/call ai-session.close_session": 1,
    }
    assert len({span.id for span in spans}) == len(spans)
    assert len({span.resource["service.instance.id"] for span in spans if span.kind == CLIENT}) == 2


def write(pipe: TextIO) -> None:
    pipe.write("go on\n")
    pipe.close()
