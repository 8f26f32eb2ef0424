"""The additions of protocol version 2: several sessions streamed at once, taken over separately, and a change feed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentwire.visible import visible
from ai_session.errors import CursorExpired, InvalidArguments, LimitReached
from ai_session.servers.base import person_of
from ai_session.servers.control.fields import flag, number, text

if TYPE_CHECKING:
    from ai_session.gate.feed import Reader
    from ai_session.servers.base import Connection
    from ai_session.sessions.cursor import Cursor
    from ai_session.sessions.lease import Lease

MOST_STREAMS = 256
LEAST_WINDOW_BYTES = 16 << 10
USUAL_WINDOW_BYTES = 256 << 10
MOST_WINDOW_BYTES = 4 << 20
MOST_OFFSET = 1 << 62
LEAST_ROWS, MOST_ROWS = 2, 1000
WHO_CHARS = 80

log = logging.getLogger(__name__)


class Streams:
    """The streams and leases of one connection; ``close`` releases all of them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self._cursors: dict[int, Cursor] = {}
        self._leases: dict[str, Lease] = {}
        self._wake = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._feed: asyncio.Task[None] | None = None

    async def stream(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Stream a session's output from an offset, or from its present screen on."""
        offset = None if params.get("offset") is None else number(params, "offset", 0, MOST_OFFSET)
        window = number(params, "window_bytes", LEAST_WINDOW_BYTES, MOST_WINDOW_BYTES, USUAL_WINDOW_BYTES)
        if len(self._cursors) >= MOST_STREAMS:
            raise LimitReached(
                f"{MOST_STREAMS} streams are open, the limit for one connection", suggestion="close some of them first"
            )
        person = await person_of(self._connection)
        cursor = await person.look(
            self._connection.principal,
            text(params, "session"),
            offset,
            exact=flag(params, "exact"),
            window_bytes=window,
            wake=self._wake.set,
        )
        stream = next(self._numbers)
        self._cursors[stream] = cursor
        if self._pump is None:
            self._pump = asyncio.create_task(self._run())
            self._pump.add_done_callback(self._ended)
        asyncio.get_running_loop().call_soon(self._wake.set)  # the first piece is written after the answer
        return {"stream": stream, **cursor.facts()}

    async def close_stream(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """End a stream."""
        cursor = self._cursor(params)
        del self._cursors[params["stream"]]
        cursor.close()
        return {}

    def acknowledge(self, params: Mapping[str, Any], data: bytes) -> None:
        """Record what the client has received of a stream. Unknown streams are ignored: they may have ended."""
        offset = number(params, "offset", 0, MOST_OFFSET)
        if cursor := self._cursors.get(number(params, "stream", 1, MOST_OFFSET)):
            cursor.acknowledge(offset)

    async def take_over(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Give this connection the exclusive right to type in a session."""
        who, session = text(params, "who"), text(params, "session")
        if len(who) > WHO_CHARS:
            raise InvalidArguments(f"who has more than {WHO_CHARS} characters", fields={"who": "is too long"})
        principal, force = self._connection.principal, flag(params, "force")
        person = await person_of(self._connection)
        lease = await person.take_over(principal, session, visible(who), force=force, lost=self._lost)
        self._leases[lease.session_id] = lease
        return {"session_id": lease.session_id, "typing_by": lease.who}

    async def changes(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Report all changes, from now on or since a cursor; only once per connection."""
        cursor = text(params, "cursor") if params.get("cursor") is not None else ""
        person = await person_of(self._connection)
        reader = await person.follow_changes(self._connection.principal, cursor)
        if self._feed is not None:
            self._feed.cancel()
        self._feed = asyncio.create_task(self._send_changes(reader))
        self._feed.add_done_callback(self._ended)
        return {"cursor": reader.cursor}

    async def release(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Let others type again."""
        lease = self._lease(params)
        del self._leases[lease.session_id]
        await lease.release()
        return {}

    async def resize(self, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Set the size of a session that was taken over, until it is released."""
        rows, cols = (number(params, name, LEAST_ROWS, MOST_ROWS) for name in ("rows", "cols"))
        await self._lease(params).resize(rows, cols)
        return {}

    def type(self, params: Mapping[str, Any], data: bytes) -> None:
        """Type into a session that was taken over."""
        self._lease(params).type(data)

    async def close(self) -> None:
        """Release everything after the client has disconnected."""
        if tasks := [task for task in (self._pump, self._feed) if task is not None]:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for cursor in self._cursors.values():
            cursor.close()
        for lease in [*self._leases.values()]:
            with contextlib.suppress(
                Exception
            ):  # a terminal that cannot be resized must not prevent others from typing
                await lease.release()

    def _cursor(self, params: Mapping[str, Any]) -> Cursor:
        stream = number(params, "stream", 1, MOST_OFFSET)
        if (cursor := self._cursors.get(stream)) is None:
            raise InvalidArguments(f"no stream {stream} is open", fields={"stream": "is not open"})
        return cursor

    def _lease(self, params: Mapping[str, Any]) -> Lease:
        session_id = text(params, "session_id")
        if (lease := self._leases.get(session_id)) is None:
            raise InvalidArguments(
                f"this connection does not control session {session_id[:80]!r}",
                suggestion="call take_over first, and use the session_id it returns",
            )
        return lease

    def _lost(self, session_id: str, by: str) -> None:
        self._leases.pop(session_id, None)
        self.send_event({"event": "taken_over", "session_id": session_id, "typing_by": by})

    def send_event(self, facts: Mapping[str, Any], data: bytes = b"") -> None:
        """Write an event, and the bytes that belong to it."""
        more = {"bytes": len(data)} if data else {}
        self._connection.writer.write(json.dumps({**facts, **more}).encode() + b"\n" + data)

    async def _send_changes(self, reader: Reader) -> None:
        try:
            while True:
                news = await reader.next()
                self.send_event({"event": "changes", "cursor": news.cursor, "changes": news.changes})
                await self._connection.writer.drain()
        except CursorExpired as error:
            self.send_event({"event": "cursor_expired", "suggestion": error.suggestion})
        finally:
            reader.close()

    async def _run(self) -> None:
        """Send the pieces, those least behind first, so that keys are echoed before a flood continues."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            sent, wait = False, None
            for stream, cursor in sorted(self._cursors.items(), key=lambda item: item[1].lag):
                piece = cursor.next()
                if piece is None:
                    continue
                if isinstance(piece, int | float):
                    wait = piece if wait is None else min(wait, piece)
                    continue
                sent = True
                if piece.last:
                    del self._cursors[stream]
                    cursor.close()
                self.send_event({**piece.facts, "stream": stream}, piece.data)
                await self._connection.writer.drain()
            if sent:
                await asyncio.sleep(0)
                continue
            timer = None if wait is None else loop.call_later(wait, self._wake.set)
            await self._wake.wait()
            if timer is not None:
                timer.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        problem = None if task.cancelled() else task.exception()
        if problem is not None:
            if not isinstance(problem, ConnectionError):
                log.error("the notifications of a connection have ended", exc_info=problem)
            self._connection.writer.close()


INLINE = {"acknowledge": Streams.acknowledge, "type": Streams.type}
"""Requests that are handled in order as they arrive; bytes may belong to them."""

METHODS = {
    method.__name__: method
    for method in (
        Streams.stream,
        Streams.close_stream,
        Streams.take_over,
        Streams.release,
        Streams.resize,
        Streams.changes,
    )
}
"""Requests that run concurrently."""
