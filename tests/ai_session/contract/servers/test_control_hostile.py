"""Whatever a client sends on the control protocol, it gets answers in JSON or the connection ends, and nothing more."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_session.models import Principal
from ai_session.servers.control import requests, streams
from ai_session.servers.control.plugin import MOST_REQUESTS
from ai_session.servers.control.wire import MAX_FRAME_BYTES
from ai_session.sessions.cursor import Cursor
from ai_session.sessions.lease import Lease
from tests.ai_session.contract.servers.test_control import MemoryGate, serving
from tests.support.bounds import BOUND_SECONDS

pytestmark = pytest.mark.anyio

NAMES = [*requests.METHODS, *streams.METHODS, *streams.INLINE, "attach", "nothing", ""]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    ["session", "session_id", "stream", "offset", "who", "force", "exact", "rows", "cols", "bytes"]
)
LINES = st.fixed_dictionaries(
    {"method": st.sampled_from(NAMES) | ANYTHING, "params": st.dictionaries(FIELDS, ANYTHING) | ANYTHING},
    optional={"id": ANYTHING, "bytes": ANYTHING | st.integers(0, 30)},
)


class HostileGate(MemoryGate):
    """Takes whatever passes, and has no session to look at."""

    async def look(self, principal: Principal, reference: str, offset: int | None, **how: Any) -> Cursor:
        raise ZeroDivisionError

    async def take_over(self, principal: Principal, reference: str, who: str, **how: Any) -> Lease:
        raise ZeroDivisionError


@pytest.mark.parametrize("turn", [1, *(pytest.param(turn, marks=pytest.mark.torture) for turn in (2, 3))])
@settings(max_examples=10)
@given(frames=st.lists(LINES.map(lambda line: json.dumps(line).encode() + b"\n") | st.binary(max_size=40), max_size=6))
async def test_any_frames(turn: int, frames: list[bytes]) -> None:
    async with serving(HostileGate(), version=2) as peer:
        peer.raw(b"".join(frames))
        peer.writer.write_eof()
        async with asyncio.timeout(BOUND_SECONDS):
            answers = (await peer.reader.read()).split(b"\n")
    assert answers.pop() == b""
    assert all({"id", "result"} == set(json.loads(a)) or "error" in json.loads(a) for a in answers)


@pytest.mark.parametrize("size", [-1, MAX_FRAME_BYTES + 1, 1 << 80, True, 1.0, "1", None, []])
async def test_where_the_next_line_begins_is_known_or_the_connection_ends(size: object) -> None:
    async with serving(HostileGate(), version=2) as peer:
        peer.raw(json.dumps({"id": 1, "method": "status", "bytes": size}).encode() + b"\n")
        assert (await peer.answer())["error"]["code"] == "invalid_arguments"
        assert await peer.at_end()


async def test_bytes_that_never_come_hold_up_their_own_connection_only() -> None:
    async with serving(HostileGate(), version=2) as peer, serving(HostileGate(), version=2) as other:
        peer.raw(json.dumps({"id": 1, "method": "status", "bytes": 9}).encode() + b"\n12345678")
        other.send(2, "status")
        assert (await other.answer())["id"] == 2


async def test_who_has_gone_is_answered_no_more(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(HostileGate(), version=2) as peer:
        peer.raw(b"nothing\n" * 1000)
    assert "socket.send() raised" not in caplog.text


async def test_requests_that_wait_are_bounded() -> None:
    gate = HostileGate()
    async with serving(gate, version=2) as peer:
        for number in range(MOST_REQUESTS + 1):
            peer.send(number, "call", name="wait")
        refused = await peer.answer()
        assert (refused["id"], refused["error"]["code"]) == (MOST_REQUESTS, "limit_reached")
        gate.release.set()
        assert len({(await peer.answer())["id"] for _ in range(MOST_REQUESTS)}) == MOST_REQUESTS
