"""The front under everything at once: 10,000 idle connections, and a mixed load that must leave nothing behind.

``SOAK_SECONDS=600`` in the environment makes the second one ten minutes.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from ai_session.http.connections import raise_limits
from tests.ai_session.support.http_servers import Here, called, running
from tests.ai_session.support.mcp_client import ENVELOPE, stop_daemons
from tests.conftest import UNBOXED, new_home

pytestmark = [pytest.mark.anyio, pytest.mark.torture]

IDLE = 10_000
SOAK_SECONDS = float(os.environ.get("SOAK_SECONDS", "30"))
CLIENTS = 12
MAX_GROWTH_MB = 24
QUICK = "[rates]\nread_per_minute = 10000000\neffect_per_minute = 10000000\nsessions_per_minute = 100000\n"


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    home = new_home(homes, UNBOXED + QUICK)
    yield home
    stop_daemons(home)


async def test_ten_thousand_idle_connections_keep_nobody_out(daemon_home: Path) -> None:
    if raise_limits() < IDLE + 4000:
        pytest.fail("the attacker needs more descriptors than this machine allows")
    async with running(daemon_home, bound_seconds=280) as here:
        assert here.tokens
        token = here.tokens.give("alice")
        held: list[asyncio.StreamWriter] = []
        try:
            for number in range(IDLE):
                _, writer = await asyncio.open_connection("127.0.0.1", here.port)
                held.append(writer)
                if number % 3 == 0:
                    writer.write(b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
                if number % 1000 == 999:
                    assert (await here.modern("tools/list", token=token)).status_code == 200
            assert len(here.front.limiter) <= 2000
            assert (await here.http.get(f"{here.address.base_url}/health")).status_code == 200
        finally:
            for writer in held:
                writer.transport.abort()


@pytest.mark.timeout(SOAK_SECONDS * 2 + 120)
async def test_a_mixed_load_leaves_nothing_behind(daemon_home: Path) -> None:
    async with running(daemon_home, bound_seconds=SOAK_SECONDS * 2 + 100) as here:
        assert here.tokens
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await asyncio.gather(*(client(here, number, begun + SOAK_SECONDS / 3) for number in range(CLIENTS)))
        before = memory_mb(), descriptors()
        served = await asyncio.gather(*(client(here, number, begun + SOAK_SECONDS) for number in range(CLIENTS)))
        await here.http.aclose()
        after = memory_mb(), descriptors()
        assert sum(served) > SOAK_SECONDS * 5
        assert after[0] - before[0] < MAX_GROWTH_MB, (before, after)
        assert after[1] <= before[1] + 16, (before, after)
        async with httpx2.AsyncClient() as fresh:
            assert (await fresh.get(f"{here.address.base_url}/health")).status_code == 200


async def client(here: Here, number: int, until: float) -> int:
    """One client that does a bit of everything; how much."""
    assert here.tokens
    chance, token, done = random.Random(number), here.tokens.give(f"user{number}"), 0
    name = f"s{number}"
    await here.modern("tools/call", {"name": "create_session", "arguments": {"name": name, "backend": "pty"}}, token)
    while asyncio.get_running_loop().time() < until:
        done += 1
        match chance.randrange(6):
            case 0 | 1:
                await here.call("list_sessions", token=token)
            case 2:
                ran = await here.call("execute_command", token=token, session_id=name, command="seq 200")
                assert ran["structuredContent"]["exit_code"] == 0, ran
            case 3:
                session = await here.handshake(token)
                answer = await here.post(called("read_screen", session_id=name), token, session)
                assert answer.status_code == 200
                await here.http.delete(here.url, headers=here.headers(token, **{"Mcp-Session-Id": session}))
            case 4:
                await listen_briefly(here, token)
            case _:
                assert (await here.modern("tools/list", token="guessed")).status_code == 401
                with suppress(ConnectionError):
                    await here.raw(b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n" + chance.randbytes(50), over=True)
    return done


async def listen_briefly(here: Here, token: str) -> None:
    params: dict[str, Any] = {"notifications": {"resourcesListChanged": True}, "_meta": ENVELOPE}
    body = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
    sent = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
    async with here.http.stream("POST", here.url, json=body, headers=here.headers(token, **sent)) as stream:
        async for _ in stream.aiter_lines():
            return


def memory_mb() -> float:
    """Of this process, in which the front runs."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
