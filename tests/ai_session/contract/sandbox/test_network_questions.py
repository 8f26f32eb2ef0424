"""A person is asked about a name that is not listed: once, before it is resolved, and the connection waits."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ai_session.errors import RateLimited
from tests.ai_session.support.networks import (
    BOUND_SECONDS,
    NAME,
    Origin,
    Way,
    origin,
    proxied,
    refusal,
    request,
)

pytestmark = pytest.mark.anyio


async def ask_way(way: Way, host: str, server: Origin) -> bytes:
    status, _, writer = await way.connect(host, server.tls_port)
    writer.close()
    return status.split()[1]


async def test_a_person_is_asked_once_about_a_name_that_is_not_listed(home: Path) -> None:
    asked, both_asked, answer = list[str](), asyncio.Event(), asyncio.Event()

    async def ask(name: str) -> bool:
        asked.append(name)
        if len(asked) == 2:
            both_asked.set()
        await answer.wait()
        return name == NAME

    async with origin(home) as server, proxied([], [server.tls_port], ask=ask) as way:
        waiting = [asyncio.create_task(ask_way(way, host, server)) for host in (NAME, "Origin.Test.", "evil.org")]
        async with asyncio.timeout(BOUND_SECONDS):
            await both_asked.wait()
        assert way.names.asked == []
        answer.set()
        assert await asyncio.gather(*waiting) == [b"200", b"200", b"403"]
        assert await ask_way(way, NAME, server) == b"200"
        assert await ask_way(way, "evil.org", server) == b"403"
        assert sorted(asked) == ["evil.org", NAME]
        assert ("net.deny", "a person refused evil.org") in way.reported


async def test_what_is_no_name_or_no_port_is_not_asked_about() -> None:
    async def ask(name: str) -> bool:
        raise AssertionError(name)

    async with proxied([], [443], ask=ask) as way:
        for target in ("127.0.0.1:443", "a@b:443", "evil.org:22"):
            assert refusal(await way.send(request(target, method="CONNECT")))[0] == b"403"


async def test_a_late_answer_counts_for_the_next_connection(home: Path) -> None:
    answer = asyncio.Event()

    async def ask(name: str) -> bool:
        return await answer.wait()

    async with origin(home) as server, proxied([], [server.tls_port], ask=ask, ask_seconds=0.02) as way:
        assert await ask_way(way, NAME, server) == b"403"
        assert "has not been answered yet" in way.reported[0][1]
        answer.set()
        assert await ask_way(way, NAME, server) == b"200"


async def test_a_question_that_cannot_be_put_refuses_and_is_put_again(home: Path) -> None:
    tries = 0

    async def ask(name: str) -> bool:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise RateLimited("too many questions")
        return True

    async with origin(home) as server, proxied([], [server.tls_port], ask=ask) as way:
        assert await ask_way(way, NAME, server) == b"403"
        assert way.reported[0] == ("net.deny", f"{NAME}: too many questions")
        assert await ask_way(way, NAME, server) == b"200"
