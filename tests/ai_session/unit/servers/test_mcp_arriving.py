"""Lines of a connection as they arrive, beside a reader of its other side who does not keep up."""

from __future__ import annotations

import asyncio

import pytest

from agentwire.json_lines import Refused
from ai_session.servers.mcp.plugin import HELD_BYTES, Arriving

pytestmark = pytest.mark.anyio


class Line(asyncio.Transport):
    """A connection in memory; what is written to it stays unread until ``read``."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: asyncio.BaseProtocol = asyncio.Protocol()
        self.reading = True
        self.unread = 0

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return self.unread


def arriving() -> tuple[Arriving, Line, list[bytes | Refused]]:
    line, taken = Line(), list[bytes | Refused]()
    found = Arriving(line, taken.append)
    found.take_over()
    assert line.protocol is found
    return found, line, taken


async def test_a_line_is_taken_as_soon_as_it_is_whole() -> None:
    found, _, taken = arriving()
    found.data_received(b'{"a":1}\n{"b"')
    assert taken == [b'{"a":1}']
    found.data_received(b":2}\n")
    assert taken == [b'{"a":1}', b'{"b":2}']
    assert found.eof_received()
    assert found.ended.done()


async def test_what_is_said_before_answers_are_read_waits_in_order_and_in_bounds() -> None:
    found, line, taken = arriving()
    found.pause_writing()
    found.data_received(b"1\n2")
    found.data_received(b"\n" + b"3" * HELD_BYTES + b"\n")
    assert not taken
    assert not line.reading
    found.eof_received()
    assert not found.ended.done()
    found.resume_writing()
    assert [taken[0], taken[1], len(taken[2])] == [b"1", b"2", HELD_BYTES]  # pyright: ignore[reportArgumentType]
    assert line.reading
    assert found.ended.done()


async def test_what_waits_goes_on_waiting_where_the_first_of_it_fills_the_line_again() -> None:
    line = Line()
    taken: list[bytes | Refused] = []

    def take(one: bytes | Refused) -> None:
        taken.append(one)
        found.pause_writing()

    found = Arriving(line, take)
    found.pause_writing()
    for one in (b"1\n", b"2\n"):
        found.data_received(one)
    found.resume_writing()
    assert taken == [b"1"]
    found.resume_writing()
    assert taken == [b"1", b"2"]
    found.connection_lost(None)
    found.connection_lost(None)
    assert found.ended.done()
