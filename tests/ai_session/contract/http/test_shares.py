"""No owner takes all that there is for everybody: sessions, and MCP sessions over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ai_session.daemon.host import THREADS, started_threads
from ai_session.errors import LimitReached
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.spec import SessionDefaults
from ai_session.system import membership
from ai_session.system.shares import share
from tests.ai_session.support.http_servers import Here, called, running
from tests.ai_session.support.mcp_client import stop_daemons
from tests.ai_session.support.sessions import Result, request, run, runtime_directory
from tests.conftest import UNBOXED, new_home
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio


@pytest.fixture
async def manager(home: Path) -> AsyncIterator[SessionManager]:
    manager = SessionManager(runtime_directory(home), SessionDefaults(backend="pty", max_sessions=5))
    yield manager
    await manager.stop()


@pytest.fixture(scope="module")
def daemon_home(homes: Path) -> Iterator[Path]:
    home = new_home(homes, UNBOXED)
    yield home
    stop_daemons(home)


@pytest.mark.parametrize(
    ("whole", "most", "shared"), [(64, 48, 48), (64, 100, 48), (64, 10, 10), (4, 48, 3), (2, 48, 1), (1, 1, 1)]
)
def test_a_share_is_below_the_whole(whole: int, most: int, shared: int) -> None:
    assert share(whole, most) == shared


async def opened(manager: SessionManager, owner: str, *, person: bool = False) -> int:
    """How many sessions this owner can open."""
    made = (
        manager.create(replace(request(f"s{number}", shell="sh"), owner=owner, person=person)) for number in range(9)
    )
    with pytest.raises(LimitReached, match=r"the limit for one owner|sessions? is reached"):
        await until_refused(made)
    return sum(session.spec.owner == owner for session in manager.all())


async def until_refused(made: Iterable[Awaitable[object]]) -> None:
    for session in made:
        await session


async def test_one_users_sessions_leave_room_for_others_and_for_a_person(manager: SessionManager) -> None:
    assert await opened(manager, "user:mallory") == 3
    assert await opened(manager, "user:mallory/run:1/agent:a") == 0
    assert await opened(manager, "user:alice/run:1/agent:a") == 1
    assert await opened(manager, "", person=True) == 1
    assert await opened(manager, "user:bob") == 0


async def test_an_agent_leaves_room_to_its_run_and_a_run_to_its_user(manager: SessionManager) -> None:
    assert await opened(manager, "run:1/agent:a") == 1
    assert await opened(manager, "run:1/agent:b") == 1
    assert await opened(manager, "run:1") == 0
    assert await opened(manager, "run:2") == 1
    assert await opened(manager, "") == 0
    assert await opened(manager, "user:alice") == 2


async def test_whoever_closes_many_sessions_holds_up_nobody(home: Path) -> None:
    asyncio.get_running_loop().set_default_executor(started_threads())
    patient = SessionDefaults(backend="pty", max_sessions=20, close_grace_seconds=BOUND_SECONDS)
    manager = SessionManager(runtime_directory(home), patient)
    greedy = [await manager.create(request(f"s{number}", shell="sh")) for number in range(THREADS + 2)]
    for session in greedy:
        await run(session, "(trap : TERM HUP; while :; do sleep 1000; done) </dev/null >/dev/null 2>&1 &")
    closing = [asyncio.ensure_future(manager.close(session)) for session in greedy]
    other = await manager.create(request("other", shell="sh"))
    assert await run(other, "echo here") == Result("here\n", 0, "finished")
    assert not any(done.done() for done in closing)
    for session in greedy:
        await asyncio.to_thread(membership.sweep, session.spec.cookie)
    await asyncio.gather(*closing)
    await manager.stop()


async def answered(here: Here, token: str, session: str) -> int:
    return (await here.post(called("list_sessions"), token, session)).status_code


async def test_the_longest_idle_mcp_session_of_a_user_makes_room_for_its_next(daemon_home: Path) -> None:
    async with running(daemon_home, max_user_sessions=3) as here:
        assert here.tokens
        alice, mallory = here.tokens.give("alice"), here.tokens.give("mallory")
        hers = await here.handshake(alice)
        first, second, third = [await here.handshake(mallory) for _ in range(3)]
        assert await answered(here, mallory, first) == 200
        fourth = await here.handshake(here.tokens.give("mallory", client="another"))
        assert [await answered(here, mallory, one) for one in (first, second, third)] == [200, 404, 200]
        assert await answered(here, mallory, fourth) == 404
        assert await answered(here, alice, hers) == 200


async def test_whoever_has_most_mcp_sessions_makes_room_for_others(daemon_home: Path) -> None:
    async with running(daemon_home, max_connections=8) as here:
        assert here.tokens
        alice, mallory = here.tokens.give("alice"), here.tokens.give("mallory")
        of_mallory = [await here.handshake(mallory) for _ in range(9)]
        of_alice = [await here.handshake(alice) for _ in range(4)]
        assert [await answered(here, alice, one) for one in of_alice] == [200] * 4
        assert [await answered(here, mallory, one) for one in of_mallory] == [404] * 5 + [200] * 4


async def test_an_mcp_session_in_use_makes_no_room_and_one_that_ended_does(daemon_home: Path) -> None:
    async with running(daemon_home, max_user_sessions=1) as here:
        assert here.tokens
        token = here.tokens.give("mallory")
        session = await here.handshake(token)
        listening = here.headers(token, **{"Mcp-Session-Id": session, "Accept": "text/event-stream"})
        async with here.http.stream("GET", here.url, headers=listening) as stream:
            assert stream.status_code == 200
            hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}
            refused = await here.post(hello, token)
            assert refused.status_code == 429
            assert "DELETE" in refused.json()["error"]["message"]
            assert (await here.post({**hello, "method": "tools/list"}, here.tokens.give("alice"))).status_code == 400
            ended = await here.http.delete(here.url, headers=here.headers(token, **{"Mcp-Session-Id": session}))
            assert ended.status_code == 200
        await here.handshake(token)
