"""The toolbox: the cost of checking and recording a call, compared with the bare call of the SDK's own client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from mcp import Client
from mcp.server.lowlevel import Server
from mcp_types import CallToolResult, ListToolsResult, RequestParamsMeta, TextContent, Tool

from benchmarks.report import Report, median_ms
from benchmarks.size import sized
from ccswarm.clients.base import OnProgress
from ccswarm.config.masks import Masks
from ccswarm.config.settings import AgentSettings
from ccswarm.journal.writer import Journal, verify
from ccswarm.models import CallRequest, ServerAnswer, ToolInfo
from ccswarm.toolbox.toolbox import Toolbox

ROUNDS, BATCH = sized((12, 100), (1, 2))
CALLERS, TURNS = sized((32, 40), (2, 2))
MOST_MS = 0.5
ARGUMENTS = {"session_id": "build", "command": "make -j8 test 2>&1 | tail -n 40", "timeout_seconds": 30.0}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "session_id": {"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[a-z0-9_-]+$"},
        "command": {"type": "string", "maxLength": 65536},
        "timeout_seconds": {"anyOf": [{"type": "number", "exclusiveMinimum": 0, "maximum": 3600}, {"type": "null"}]},
        "max_output_bytes": {"type": "integer", "minimum": 256, "default": 30_000},
        "call_key": {"type": "string", "maxLength": 200},
    },
    "required": ["session_id", "command"],
    "additionalProperties": False,
}


class Bare:
    """A ToolClient that adds nothing to the SDK's client."""

    name = "one"
    problem = ""
    about = ""
    notes = ()

    def __init__(self, client: Client) -> None:
        self.client = client
        self._tools: Sequence[ToolInfo] = ()

    async def list_tools(self, *, fresh: bool = False) -> Sequence[ToolInfo]:
        if fresh or not self._tools:
            listed = await self.client.list_tools()
            self._tools = [ToolInfo("one", each.name, input_schema=each.input_schema) for each in listed.tools]
        return self._tools

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        meta: Mapping[str, Any],
        timeout_seconds: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> ServerAnswer:
        result = await self.client.call_tool(name, dict(arguments), meta=cast("RequestParamsMeta", dict(meta)))
        (content,) = result.content
        assert isinstance(content, TextContent)
        return ServerAnswer(content.text, meta=result.meta or {})

    async def close(self) -> None:
        """Do nothing: the benchmark closes the client."""


async def list_tools(*_: Any) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name="noop", description="Does nothing.", input_schema=SCHEMA)])


async def call_tool(*_: Any) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text="ok")])


async def run(report: Report, directory: Path) -> None:
    """Alternate with the bare call, so that other load affects both."""
    server = Server("floor", version="0", on_list_tools=list_tools, on_call_tool=call_tool)
    journal = Journal(directory / "journal", "bench")
    agents = {"me": AgentSettings(name="me", grants=("one.*",), approval="destructive")}
    request = CallRequest("run_1", "task", "step", "me", "one.noop", ARGUMENTS, key="run_1-task-step", approval="ap_1")
    bare: list[float] = []
    whole: list[float] = []
    async with Client(server) as client:
        toolbox = Toolbox({"one": Bare(client)}, agents, journal, mask=Masks({"A_TOKEN": "ghp_0123456789"}))

        async def call() -> None:
            outcome = await toolbox.call(request, budget=unlimited, approved=agreed)
            assert outcome.ok, outcome

        await call()
        for _ in range(ROUNDS):
            for _ in range(BATCH):
                start = time.perf_counter()
                await client.call_tool("noop", ARGUMENTS)
                middle = time.perf_counter()
                await call()
                bare.append(middle - start)
                whole.append(time.perf_counter() - middle)

        async def alone() -> None:
            await client.call_tool("noop", ARGUMENTS)

        crowds = [(await each_of_many(alone), await each_of_many(call)) for _ in range(3)]
    journal.close()
    assert verify(directory / "journal").sound
    report.title("The toolbox, around one call")
    report.row("a no-op tool, the SDK's client alone", median_ms(bare), "ms")
    report.row("  more through the toolbox", median_ms(whole) - median_ms(bare), "ms", most=MOST_MS)
    alone_ms, whole_ms = (median_ms(turn) for turn in zip(*crowds, strict=True))
    report.row(f"the client alone, processor time of each of {CALLERS} at once", alone_ms, "ms")
    report.row("  more through the toolbox", whole_ms - alone_ms, "ms", most=MOST_MS)


async def each_of_many(call: Callable[[], Awaitable[None]]) -> float:
    """Return the processor seconds of a call when many callers make theirs at the same time."""

    async def caller() -> None:
        for _ in range(TURNS):
            await call()

    start = time.process_time()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return (time.process_time() - start) / (CALLERS * TURNS)


async def unlimited(_: CallRequest) -> str:
    return ""


def agreed(request: CallRequest) -> bool:
    return bool(request.approval)
