"""``ccswarm mcp-server --agent NAME`` as a person's client starts it: one agent's tools, in a run of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ccswarm.config import config
from ccswarm.journal.writer import read
from ccswarm.models import Execution
from ccswarm.runs.app import App, submitting
from tests.ccswarm.support.guest_client import GuestClient, guest, words
from tests.ccswarm.support.verbs import Verbs, agent, server
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio

QUICK = "[engine]\npoll_seconds = 0.05\n"


@pytest.fixture
def verbs(home: Path) -> Verbs:
    return Verbs(home, QUICK + server("small", "plain") + agent("ada", "small.echo", "small.facts"))


async def runs(app: App) -> list[Execution]:
    return list(await app.engine.list(kind="run"))


async def handshake(client: GuestClient) -> list[str]:
    await client.shake_hands()
    return [tool["name"] for tool in (await client.request("tools/list"))["tools"]]


async def test_a_client_has_one_agents_tools(verbs: Verbs) -> None:
    async with guest("", "--config", str(verbs.file)) as client:
        assert await handshake(client) == ["small__echo", "small__facts", "finish", "await_call"]
        assert words(await client.call("small__echo", text="hello")) == "hello"
        assert "not_granted" in words(await client.call("small__big", size=1))
        assert await client.leave() == 0
    async with submitting(config.peek(verbs.file).settings, verbs.state) as app:
        (run,) = await runs(app)
        assert run.result["status"] == "succeeded"
        assert run.result["tasks"]["guest"]["summary"] == "the client has disconnected"
    records = [record for record in read(verbs.state / "journal") if record.event in ("call.end", "call.refused")]
    assert [(record.event, record.facts["tool"]) for record in records] == [
        ("call.end", "small.echo"),
        ("call.refused", "small.big"),
    ]


async def test_a_person_agrees_elsewhere(verbs: Verbs) -> None:
    verbs.rewrite(verbs.file.read_text() + 'approval = "all"\n')
    async with guest("", "--config", str(verbs.file)) as client:
        await handshake(client)
        call = client.begin_call("small__echo", text="may I")
        async with submitting(config.peek(verbs.file).settings, verbs.state) as app:
            (run,) = await runs(app)
            async with asyncio.timeout(BOUND_SECONDS):
                async for event in app.engine.events(f"{run.id}.guest"):
                    if event["event"] == "approval.asked":
                        await app.swarm.answer(str(event["id"]), approved=True, by="grace")
                        break
        assert words((await asyncio.wait_for(call, BOUND_SECONDS))["result"]) == "may I"


@pytest.mark.torture
async def test_a_client_that_ends_its_server_leaves_no_run(verbs: Verbs) -> None:
    async with guest("", "--config", str(verbs.file)) as client:
        await handshake(client)
        client.process.send_signal(signal.SIGTERM)
        assert await client.leave() == 0
    async with submitting(config.peek(verbs.file).settings, verbs.state) as app:
        (run,) = await runs(app)
        assert run.status.over


async def test_an_agent_that_is_not_there(verbs: Verbs) -> None:
    verbs.rewrite(verbs.file.read_text().replace('"ada"', '"bob"'))
    async with guest("", "--config", str(verbs.file)) as client:
        assert await client.leave() == 2
        assert client.process.stderr
        assert b"there is no agent 'ada'" in await client.process.stderr.read()


def test_the_relay_of_a_program_loads_nothing_heavy() -> None:
    code = "import sys, json, ccswarm.bridge.relay, ccswarm.bridge.keeper; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=BOUND_SECONDS)
    heads = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert heads <= {*sys.stdlib_module_names, "ccswarm", *_always()}


def _always() -> set[str]:
    """What this Python loads by itself."""
    code = "import sys, json; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=BOUND_SECONDS)
    return {name.partition(".")[0] for name in json.loads(done.stdout)}
