"""Calls of agents stand in ccswarm's journal and in ai-session's audit log: one record each way for every call."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ccswarm.clients.mcp.plugin import McpToolClient
from ccswarm.config import config
from ccswarm.config.settings import AgentSettings, ServerSettings
from ccswarm.journal.writer import Journal, join, read, verify
from ccswarm.models import CallRequest, CallStatus
from ccswarm.toolbox.toolbox import Toolbox
from tests.ccswarm.support.toolboxes import invoke_tool
from tests.conftest import UNBOXED, client_environment, end_leftovers, environment, new_home
from tests.support import forked
from tests.support.bounds import BOUND_SECONDS

ROOT = Path(__file__).parents[2]
AGENTS = {
    "coder": AgentSettings(name="coder", grants=("ai-session.*",)),
    "reader": AgentSettings(name="reader", grants=("ai-session.read_*", "ai-session.get_*")),
}
WORKER = """
import asyncio, sys
from pathlib import Path
from tests.ccswarm.support.toolboxes import invoke_tool
from tests.together.test_journal_join import toolbox
async def main():
    async with toolbox(Path(sys.argv[1]), "killed") as (tools, _):
        await invoke_tool(tools, "coder", "ai-session.create_session", {"name": "k"})
        command = f"echo started > {sys.argv[2]}; cat {sys.argv[2]}"
        await invoke_tool(tools, "coder", "ai-session.execute_command", {"session_id": "k", "command": command})
asyncio.run(main())
"""


@asynccontextmanager
async def toolbox(journal: Path, worker: str) -> AsyncGenerator[tuple[Toolbox, McpToolClient]]:
    """The tools of ai-session for two agents, as a worker has them, and the way to them."""
    server = ServerSettings(name="ai-session", command=f"{sys.executable} -m ai_session mcp-server --stdio")
    client = McpToolClient(server, env=config.server_environment(), era_cache={})
    book = Journal(journal, worker)
    try:
        yield Toolbox({"ai-session": client}, AGENTS, book), client
    finally:
        book.close()
        await client.close()


@pytest.fixture
def daemon_home(homes: Path) -> Iterator[Path]:
    """A home with a daemon and a log of its own."""
    home = new_home(homes, UNBOXED)
    with environment(client_environment(home) | {"PYTHONPATH": str(ROOT)}):
        forked.daemon(os.environ)
        yield home
        stopped = forked.run("ai_session", ["daemon", "stop", "--yes"], cwd=home, env=os.environ)
        assert stopped[0] == 0, stopped
    assert not end_leftovers(home)


def audit_lines() -> list[bytes]:
    words = ["audit", "export", "--format", "jsonl"]
    code, said, errors = forked.run("ai_session", words, cwd=ROOT, env=os.environ)
    assert code == 0, errors
    return said.splitlines(keepends=True)


def statuses(journal: Path) -> list[str]:
    return [record.facts["status"] for record in read(journal) if "status" in record.facts]


@pytest.mark.torture  # test_swarm_runs.py: every call stands in both logs
@pytest.mark.anyio
async def test_every_call_stands_in_both_logs(daemon_home: Path) -> None:
    journal, pipe = daemon_home / "journal", daemon_home / "pipe"
    os.mkfifo(pipe)

    async def call(agent: str, tool: str, **arguments: object) -> CallStatus:
        request = CallRequest("r1", "t1", "s1", agent, f"ai-session.{tool}", arguments)
        return (await tools.call(request, budget=None, approved=lambda _: False)).status

    async with asyncio.timeout(BOUND_SECONDS), toolbox(journal, "w1") as (tools, client):
        fails = "exit_with() { return 3; }; exit_with"
        assert await call("coder", "create_session", name="w") is CallStatus.OK
        assert await call("coder", "execute_command", session_id="w", command=fails) is CallStatus.OK
        assert await call("coder", "execute_command", session_id="nowhere", command="ls") is CallStatus.TOOL_ERROR
        assert await call("reader", "execute_command", session_id="w", command="ls") is CallStatus.DENIED
        assert await call("coder", "execute_command", session_id="w", command=5) is CallStatus.INVALID
        stuck = asyncio.create_task(call("coder", "execute_command", session_id="w", command=f"echo > {pipe}; cat"))
        assert await asyncio.to_thread(pipe.read_text) == "\n"
        stuck.cancel()
        await asyncio.gather(stuck, return_exceptions=True)
        await asyncio.gather(*(call("reader", "get_session_info", session_id="w") for _ in range(20)))
        report = join(journal, audit_lines())
        assert (report.problems, report.open) == ([], [])
        assert (report.calls, report.joined, report.refused) == (24, 24, 2)
        assert {"denied", "invalid", "cancelled", "tool_error", "ok"} == set(statuses(journal))

        await client.call("get_session_info", {"session_id": "w"}, meta={})
        (problem,) = join(journal, audit_lines()).problems
        assert problem.what == "the server received this call from ccswarm, but the journal has no record of it"
    assert verify(journal).sound


@pytest.mark.torture  # unit/journal/test_verify.py
def test_a_killed_worker_leaves_a_call_that_is_named_open(daemon_home: Path) -> None:
    async def goes_on() -> None:
        async with asyncio.timeout(BOUND_SECONDS), toolbox(journal, "killed") as (tools, _):
            assert (await invoke_tool(tools, "coder", "ai-session.list_sessions", {})).ok

    journal, pipe = daemon_home / "journal", daemon_home / "pipe"
    os.mkfifo(pipe)
    script = daemon_home / "worker.py"
    script.write_text(WORKER)
    worker = forked.piped("ccswarm", [str(journal), str(pipe)], cwd=ROOT, env=os.environ, script=str(script))
    try:
        assert pipe.read_text() == "started\n"
    finally:
        worker.close()
    report = join(journal, audit_lines())
    assert report.problems == []
    assert (report.calls, report.joined, len(report.open)) == (2, 2, 1)
    assert verify(journal).unclosed == ["killed"]
    pipe.write_text("go on\n")
    asyncio.run(goes_on())
    report = join(journal, audit_lines())
    assert (report.problems, report.calls, report.joined, len(report.open)) == ([], 3, 3, 1)
    assert (verify(journal).problems, verify(journal).unclosed) == ([], [])
