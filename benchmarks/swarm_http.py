"""Tools over HTTP: the cost of a call through ccswarm, compared with the SDK's own client at the same server."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn
from mcp import Client
from mcp.server.lowlevel import Server
from mcp.shared.auth import OAuthToken

from benchmarks.children import serving
from benchmarks.report import Report, median_ms
from benchmarks.size import sized
from benchmarks.swarm_toolbox import ARGUMENTS, agreed, call_tool, list_tools, unlimited
from ccswarm.clients.mcp.login_store import Login, Logins
from ccswarm.clients.mcp.plugin import McpToolClient
from ccswarm.config.masks import Masks
from ccswarm.config.settings import AgentSettings, ServerSettings
from ccswarm.journal.writer import Journal
from ccswarm.models import CallRequest
from ccswarm.toolbox.toolbox import Toolbox

ROUNDS, BATCH = sized((8, 50), (1, 2))
CALLERS, TURNS = sized((16, 20), (2, 2))
MOST_RATIO = 1.5
ERAS = {"modern": "auto", "legacy": "legacy"}
"""The protocol's eras, by the names of the SDK's client."""


class Always(dict[str, str]):
    """An era cache with the same entry for every server."""

    def __init__(self, era: str) -> None:
        super().__init__()
        self._era = era

    def get(self, *_: Any) -> Any:
        return self._era


async def run(report: Report, directory: Path) -> None:
    """Alternate with the SDK's client, so that other load affects both."""
    async with serving(sys.executable, "-m", "benchmarks.swarm_http") as port:
        for era in ERAS:
            await measure_era(report, directory / era, f"http://127.0.0.1:{int(port)}/mcp", era)


async def measure_era(report: Report, directory: Path, url: str, era: str) -> None:
    settings = ServerSettings(name="one", url=url, trusted=True)
    state = directory / "state"
    await Logins(settings, state).write(Login(tokens=OAuthToken(access_token="a-token-that-is-sent-along")))
    ours = McpToolClient(settings, env={}, era_cache=Always(era), state_directory=state)
    journal = Journal(directory / "journal", "bench")
    agents = {"me": AgentSettings(name="me", grants=("one.*",))}
    toolbox = Toolbox({"one": ours}, agents, journal, mask=Masks({"A_TOKEN": "ghp_0123456789"}))
    request = CallRequest("run_1", "task", "step", "me", "one.noop", ARGUMENTS, key="run_1-task-step")

    async with Client(url, mode=ERAS[era]) as client:

        async def bare() -> None:
            await client.call_tool("noop", ARGUMENTS)

        async def through_client() -> None:
            assert (await ours.call("noop", ARGUMENTS, meta={})).text == "ok"

        async def through_toolbox() -> None:
            assert (await toolbox.call(request, budget=unlimited, approved=agreed)).ok

        ways = (bare, through_client, through_toolbox)
        times = await alone(ways)
        crowds = [[await together(way) for way in ways] for _ in range(3)]
    await ours.close()
    journal.close()
    report.title(f"A no-op tool over HTTP, {era} era: one call after another, then {CALLERS} callers")
    floor = median_ms(times[0])
    report.row("the SDK's client", floor, "ms")
    report.row("ccswarm's client, with a login", median_ms(times[1]), "ms", floor=floor, most_ratio=MOST_RATIO)
    report.row("the toolbox: judged and journalled", median_ms(times[2]), "ms", floor=floor, most_ratio=MOST_RATIO)
    per_second = [sorted(each)[1] for each in zip(*crowds, strict=True)]
    report.row("the SDK's client, many callers", per_second[0], "/s")
    report.row("ccswarm's client, with a login", per_second[1], "/s", floor=per_second[0], least_ratio=1 / MOST_RATIO)
    report.row("the toolbox", per_second[2], "/s", floor=per_second[0], least_ratio=1 / MOST_RATIO)


async def alone(ways: tuple[Callable[[], Awaitable[None]], ...]) -> list[list[float]]:
    """Return the seconds of each call, by way."""
    times: list[list[float]] = [[] for _ in ways]
    for way in ways:
        await way()
    for _ in range(ROUNDS):
        for way, taken in zip(ways, times, strict=True):
            for _ in range(BATCH):
                start = time.perf_counter()
                await way()
                taken.append(time.perf_counter() - start)
    return times


async def together(way: Callable[[], Awaitable[None]]) -> float:
    """Return the calls per second."""

    async def caller() -> None:
        for _ in range(TURNS):
            await way()

    start = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return CALLERS * TURNS / (time.perf_counter() - start)


async def serve() -> None:
    """Serve until standard input ends."""
    server: Server[Any] = Server("floor", version="0", on_list_tools=list_tools, on_call_tool=call_tool)
    # asyncio disables Nagle's algorithm, which costs 40 ms a call, only for sockets created with IPPROTO_TCP.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    app = server.streamable_http_app(json_response=True)
    # uvicorn's default of five seconds would close connections while the client uses them.
    web = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_keep_alive=600))
    print(listener.getsockname()[1], flush=True)
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    ended.add_done_callback(lambda _: setattr(web, "should_exit", True))
    await web.serve([listener])


if __name__ == "__main__":
    asyncio.run(serve())
