"""The join: for every call a client made, whatever became of it, the audit has one begin and one end record.

Each call carries an id of the client's own, which the begin record keeps; begin and end are joined by the call's id.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError

from ai_session.audit.files import lines, records
from ai_session.client.connection import connect
from tests.ai_session.support import mcp_client
from tests.ai_session.support.command_line import CommandLine
from tests.ai_session.support.mcp_client import SERVER, daemon_pids, runtime
from tests.ai_session.torture.kills import spin
from tests.conftest import UNBOXED
from tests.support import forked

CONFIG = (
    UNBOXED
    + """
[rates]
sessions_per_minute = 4
[[policy.rules]]
id = "no-push"
decision = "deny"
commands = ["git push"]
[[policy.rules]]
id = "ask-first"
decision = "ask"
commands = ["deploy"]
"""
)
FOREVER = "tail -f /dev/null"
AT_ONCE = 40


class Calls:
    """Every call made, by the client's own id, with the outcomes its end record may have."""

    def __init__(self, home: Path) -> None:
        self._directory = runtime(home) / "audit"
        self._numbers = itertools.count(1)
        self.made: dict[str, set[str]] = {}
        self.reported: dict[str, str] = {}

    def meta(self, *outcomes: str) -> dict[str, str]:
        """For one call more."""
        name = f"own-{next(self._numbers)}"
        self.made[name] = {*outcomes}
        return {"ai-session/client_call_id": name}

    def records(self) -> list[dict[str, Any]]:
        return list(records(lines(self._directory)))

    def wait_begun(self, *metas: dict[str, str]) -> None:
        """Returns when these calls have their begin records."""
        names = {meta["ai-session/client_call_id"] for meta in metas}
        spin(lambda: names <= {record.get("request") for record in self.records()}, f"{names} do not begin")

    def check(self) -> None:
        """One begin and one end for each, joined, and nothing else under such an id."""
        found = self.records()
        starts = [record for record in found if record["event"] == "tool.start" and "request" in record]
        assert Counter(record["request"] for record in starts) == Counter(list(self.made))
        ends: dict[str, list[dict[str, Any]]] = {}
        for record in found:
            if record["event"] == "tool.end":
                ends.setdefault(record["call"], []).append(record)
        for start in starts:
            (end,) = ends[start["call"]]
            name = start["request"]
            assert (end["start"], end["tool"]) == (start["seq"], start["tool"])
            assert end["outcome"] in self.made[name], (start, end)
            assert self.reported.get(name, start["call"]) == start["call"]
        everything = [record["call"] for record in found if record["event"] == "tool.start"]
        assert sorted(everything) == sorted(call for call, records in ends.items() for _ in records)
        assert len(everything) == len(set(everything))


@pytest.fixture
def line(home: Path) -> Iterator[CommandLine]:
    (home / ".config/ai-session/config.toml").write_text(CONFIG)
    with CommandLine(home) as line:
        forked.daemon(line.env)
        yield line


@asynccontextmanager
async def client(mode: str = "legacy") -> AsyncIterator[Client]:
    server = StdioServerParameters(command=SERVER[0], args=SERVER[1:], env={"HOME": os.environ["HOME"]})
    async with Client(server, mode=mode) as found:
        yield found


async def call(client: Client, calls: Calls, outcome: str, tool: str, **arguments: Any) -> Any:
    """One call that is answered, with one of the outcomes named; its result."""
    meta: Any = calls.meta(*outcome.split())
    result = await client.call_tool(tool, arguments, meta=meta)
    assert result.meta
    calls.reported[meta["ai-session/client_call_id"]] = result.meta["ai-session/call_id"]
    return result


async def ordinary(client: Client, calls: Calls, session: str) -> None:
    """Calls that are answered, well or not."""
    await call(client, calls, "ok", "create_session", name=session, backend="pty")
    await call(client, calls, "tool_error", "create_session", name=session)
    await call(client, calls, "ok", "execute_command", session_id=session, command="(exit 3)")
    await call(client, calls, "denied", "execute_command", session_id=session, command="git push")
    await call(client, calls, "denied", "execute_command", session_id=session, command="deploy now")
    await call(client, calls, "tool_error", "read_screen", session_id="nowhere")
    await call(client, calls, "invalid", "execute_command", session_id=session)
    await call(client, calls, "invalid", "resize_session", session_id=session, rows="many", cols=1)
    meta: Any = calls.meta("invalid")
    with pytest.raises(MCPError, match="unknown tool"):
        await client.call_tool("no_tool", {}, meta=meta)
    for _ in range(3):
        again = {"session_id": session, "command": f"echo {session} >> ~/once", "call_key": f"once-{session}"}
        await call(client, calls, "ok", "execute_command", **again)
    still = await call(client, calls, "ok", "execute_command", session_id=session, command=FOREVER, timeout_seconds=0.1)
    assert still.structured_content["status"] == "running"
    await call(client, calls, "tool_error", "execute_command", session_id=session, command="true")


async def given_up(client: Client, calls: Calls, session: str) -> None:
    """Calls the client no longer waits for: one by its own bound, one that is cancelled."""
    waits: dict[str, Any] = {"session_id": session, "wait_for": "finish"}
    meta: Any = calls.meta("cancelled")
    with pytest.raises(MCPError):
        await client.call_tool("read_output", waits, 0.2, meta=meta)
    meta = calls.meta("cancelled")
    waiting = asyncio.ensure_future(client.call_tool("read_output", waits, meta=meta))
    await asyncio.to_thread(calls.wait_begun, meta)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert (await call(client, calls, "ok", "interrupt_command", session_id=session)).structured_content


ERAS = ("legacy", "2026-07-28")


@pytest.mark.anyio
@pytest.mark.parametrize(
    "modes", [ERAS, *[pytest.param((era, era), marks=pytest.mark.torture) for era in ERAS]], ids=" and ".join
)
async def test_every_call_of_a_client_is_in_the_audit_once(
    home: Path, line: CommandLine, modes: tuple[str, str]
) -> None:
    calls = Calls(home)
    async with client(modes[0]) as one, client(modes[1]) as other:
        for who, session in ((one, "s"), (other, "t")):
            await ordinary(who, calls, session)
            await given_up(who, calls, session)
        mixed = [
            call(who, calls, "ok tool_error", tool, **arguments)
            for number in range(AT_ONCE)
            for who, tool, arguments in (
                (one, "read_screen", {"session_id": "s"}),
                (other, "execute_command", {"session_id": "t", "command": "echo", "call_key": f"key-{number // 4}"}),
            )[number % 2 :][:1]
        ]
        await asyncio.gather(*mixed)
        for name, outcome in (("u", "ok"), ("v", "ok"), ("w", "limited")):
            await call(other, calls, outcome, "create_session", name=name, backend="pty")
        for name in ("s", "t"):
            await call(one, calls, "ok", "close_session", session_id=name)
    line.run("daemon", "stop")
    calls.check()
    assert len(calls.made) > 60
    assert sorted((home / "once").read_text().split()) == ["s", "t"]
    verified = json.loads(line.out("audit", "verify", "--json"))
    assert (verified["sound"], verified["open_calls"]) == (True, 0)
    made = {record["session"] for record in calls.records() if record["event"] == "session.create"}
    creations = [record for record in calls.records() if record.get("tool") == "create_session"]
    assert {end["session"] for end in creations if end.get("outcome") == "ok"} == made
    events = Counter((record["event"], record["name"]) for record in calls.records() if "session." in record["event"])
    assert events == {(event, name): 1 for event in ("session.create", "session.close") for name in "stuv"}


@pytest.mark.parametrize("many", [20, pytest.param(70, marks=pytest.mark.torture)])
def test_calls_that_were_cut_off_have_their_end_too(home: Path, line: CommandLine, many: int) -> None:
    """A daemon is killed in the midst of calls, a client is, and a daemon is stopped."""
    calls = Calls(home)

    def begin(peer: mcp_client.Client, outcome: str) -> dict[str, str]:
        meta = calls.meta(outcome)
        waits = {"session_id": "s", "wait_for": "finish"}
        peer.request("tools/call", {"name": "read_output", "arguments": waits, "_meta": meta})
        return meta

    with mcp_client.Client() as first, connect() as person:
        first.initialize()
        first.call("create_session", name="s", backend="pty")
        first.call("execute_command", session_id="s", command=FOREVER, timeout_seconds=0)
        calls.wait_begun(*[begin(first, "lost") for _ in range(many)])
        (pid,) = daemon_pids(home)
        first.process.send_signal(signal.SIGSTOP)  # or its relay would ask the next daemon again
        os.kill(pid, signal.SIGKILL)
        first.process.kill()
        forked.daemon(line.env)
        (lived,) = person.call("list_sessions").structured["sessions"]  # which only looks: it is asked again
        assert lived["name"] == "s"
    with mcp_client.Client() as second, mcp_client.Client() as third, mcp_client.Client() as fourth:
        for peer in (second, third, fourth):
            peer.initialize()
        meta = calls.meta("ok")
        params = {"name": "get_session_info", "arguments": {"session_id": "s"}, "_meta": meta}
        assert not second.result("tools/call", params).get("isError")
        calls.check()
        calls.wait_begun(*[begin(second, "cancelled") for _ in range(5)])
        second.process.kill()
        calls.wait_begun(*[begin(third, "cancelled") for _ in range(5)])
        for peer in (third, fourth):
            peer.process.send_signal(signal.SIGSTOP)
        line.run("daemon", "stop", "--keep-sessions")
        for peer in (third, fourth):
            peer.process.kill()
    calls.check()
    line.run("daemon", "stop")
    calls.check()
    verified = json.loads(line.out("audit", "verify", "--json"))
    assert (verified["sound"], verified["open_calls"]) == (True, 0)
