"""Complete implementations of ccswarm's ports in memory."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ccswarm.clients.base import OnProgress
from ccswarm.errors import CallTimedOut, ServerLost, ServerUnavailable, UnknownTool
from ccswarm.models import ServerAnswer, ToolInfo

CALL_ID, AUDIT = "ai-session/call_id", "ai-session/audit"
AGENT, CLIENT_CALL_ID = "ai-session/agent", "ai-session/client_call_id"


class ToolFailed(Exception):
    """Raised by a tool that fails: its text becomes an answer with ``is_error``."""


@dataclass(frozen=True, slots=True)
class Received:
    """A call as the server received it. ``progress`` reports the tool's progress to the caller."""

    tool: str
    arguments: Mapping[str, Any]
    meta: Mapping[str, Any]
    progress: OnProgress


Body = Callable[[Received], Awaitable[ServerAnswer | Mapping[str, Any] | str]]
"""The work of a tool. A mapping is a structured answer; an error of ccswarm means that the server refused."""


@dataclass(frozen=True, slots=True)
class MemoryTool:
    """A tool of a server in memory, which sets ``info.server``."""

    info: ToolInfo
    run: Body


async def echo(call: Received) -> Mapping[str, Any]:
    """Return the arguments."""
    return dict(call.arguments)


def tool(name: str, run: Body = echo, *, properties: Mapping[str, Any] | None = None, **facts: Any) -> MemoryTool:
    """Return a tool with an object schema of ``properties``, or ``input_schema`` and other fields of ToolInfo."""
    facts.setdefault("input_schema", {"type": "object", "properties": dict(properties or {})})
    return MemoryTool(ToolInfo(server="", name=name, **facts), run)


class MemoryClient:
    """A ToolClient and its server. Tools are coroutines; the audit log is a list of lines as ai-session writes them.

    A keyed tool repeats its answer to a ``call_key`` without running again.
    """

    def __init__(
        self,
        name: str,
        tools: Sequence[MemoryTool] = (),
        *,
        timeout_seconds: float = 60,
        client: str = "ccswarm",
        audited: bool = True,
    ) -> None:
        self.name = name
        self._timeout_seconds = timeout_seconds
        self._client = client
        self._audited = audited
        self._tools = _named(name, tools)
        self._listing: Sequence[ToolInfo] | None = None
        self._answers: dict[tuple[str, str], ServerAnswer] = {}
        self._life: asyncio.Future[str] | None = None
        self.problem = ""
        self.down = ""
        """If set, the reason why the server cannot be started."""
        self.starts = 0
        self.listings = 0
        """How often the server was asked for its tools."""
        self.received: list[Received] = []
        self.given_up: list[Received] = []
        """Calls that the caller cancelled or stopped waiting for."""
        self.audit: list[bytes] = []
        self.closed = False

    @property
    def about(self) -> str:
        return f"{self.name} in memory" if self.starts else ""

    @property
    def notes(self) -> Sequence[str]:
        return ()

    def change(self, tools: Sequence[MemoryTool], *, reported: bool = True) -> None:
        """Change the server's tools, and report that to the client if ``reported``."""
        self._tools = _named(self.name, tools)
        if reported:
            self._listing = None

    def die(self, words: str = "killed") -> None:
        """End the server; calls in progress are lost. The next use starts it again."""
        if self._life and not self._life.done():
            self._life.set_result(words)
        self._life = None
        self._listing = None

    async def list_tools(self, *, fresh: bool = False) -> Sequence[ToolInfo]:
        self._start()
        await asyncio.sleep(0)
        if self._listing is None or fresh:
            self.listings += 1
            self._listing = tuple(each.info for each in self._tools.values())
        return self._listing

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        timeout_seconds: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ServerAnswer:
        life = self._start()
        await asyncio.sleep(0)
        if (wanted := self._tools.get(name)) is None:
            raise UnknownTool(f"{self.name} has no tool {name}")
        received = Received(name, dict(arguments), dict(meta), on_progress or _unheard)
        self.received.append(received)
        trace = _Trace(f"call_{secrets.token_hex(16)}")
        self._record("tool.start", trace, received)
        work = asyncio.ensure_future(self._run(wanted, received))
        try:
            async with asyncio.timeout(self._timeout_seconds if timeout_seconds is None else timeout_seconds):
                await asyncio.wait({work, life}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                trace.outcome = "lost"
                raise ServerLost(f"{self.name} ended: {life.result()}")
            answer = work.result()
        except TimeoutError:
            trace.outcome = "timeout"
            self.given_up.append(received)
            raise CallTimedOut(f"{self.name} did not answer {name} in time") from None
        except asyncio.CancelledError:
            trace.outcome = "cancelled"
            self.given_up.append(received)
            raise
        else:
            trace.outcome = "tool_error" if answer.is_error else "ok"
            seq = len(self.audit) + 1
            named = {CALL_ID: trace.call_id, AUDIT: {"seq": seq, "head": f"{seq:064x}"}} if self._audited else {}
            return replace(answer, meta={**answer.meta, **named})
        finally:
            try:
                if not work.done():
                    work.cancel()
                    await asyncio.gather(work, return_exceptions=True)
            finally:
                self._record("tool.end", trace, received)

    async def close(self) -> None:
        self.die("closed")
        self.closed = True

    def _start(self) -> asyncio.Future[str]:
        if self.down:
            self.problem = self.down
            raise ServerUnavailable(f"{self.name} cannot be used: {self.down}")
        self.problem = ""
        if self._life is None:
            self._life = asyncio.get_running_loop().create_future()
            self.starts += 1
        return self._life

    async def _run(self, wanted: MemoryTool, received: Received) -> ServerAnswer:
        key = (wanted.info.name, str(received.arguments.get("call_key", "")))
        if wanted.info.keyed and key[1] and key in self._answers:
            return self._answers[key]
        try:
            said = await wanted.run(received)
        except ToolFailed as failure:
            answer = ServerAnswer(str(failure), is_error=True)
        else:
            answer = _answer(said)
        self._answers[key] = answer
        return answer

    def _record(self, event: str, trace: _Trace, received: Received) -> None:
        if not self._audited:
            return
        seq = len(self.audit) + 1
        facts: dict[str, Any] = {"call": trace.call_id, "event": event, "seq": seq, "tool": received.tool, "v": 1}
        facts["ts"] = time.time_ns() // 1000
        if event == "tool.start":
            trace.start = seq
            actor = {"kind": "mcp", "client": self._client, "agent": received.meta.get(AGENT)}
            facts |= {"actor": {k: v for k, v in actor.items() if v}, "request": received.meta.get(CLIENT_CALL_ID)}
        else:
            facts |= {"start": trace.start, "outcome": trace.outcome}
        line = json.dumps({k: v for k, v in facts.items() if v is not None}, sort_keys=True, separators=(",", ":"))
        self.audit.append(line.encode() + b"\n")


@dataclass(slots=True)
class _Trace:
    call_id: str
    start: int = 0
    outcome: str = "crash"


def _named(server: str, tools: Sequence[MemoryTool]) -> dict[str, MemoryTool]:
    return {each.info.name: replace(each, info=replace(each.info, server=server)) for each in tools}


def _answer(said: ServerAnswer | Mapping[str, Any] | str) -> ServerAnswer:
    if isinstance(said, ServerAnswer):
        return said
    if isinstance(said, str):
        return ServerAnswer(said)
    return ServerAnswer(json.dumps(said), structured=dict(said))


def _unheard(_progress: float, _total: float | None, _message: str) -> None:
    """Ignore progress."""
