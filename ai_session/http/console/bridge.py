"""The bridge between a tab's WebSocket and a connection to the daemon: each message is a line, in both directions.

A text message is a line of the control protocol; a binary message is such a line, a line end and the bytes that belong
to it. A tab may request only what the page needs. All texts from the daemon pass through ``visible``, so that the page
cannot show text that hides something; a terminal's bytes are sent to the page's emulator unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from agentwire.visible import visible
from ai_session.client import relay
from ai_session.client.connection import dial_started
from ai_session.client.dialing import open_streams
from ai_session.http.console import replays
from ai_session.http.console.audit_check import AuditCheck
from ai_session.http.console.logins import Tab
from ai_session.http.console.replays import Replays
from ai_session.http.console.runs import DECISIONS, QUERIES, Runs

METHODS = frozenset(
    (
        *("call", "stream", "close_stream", "acknowledge", "take_over", "release", "resize", "type"),
        *("changes", "approvals", "approve", "reject", "policy", "explain", "person"),
    )
)
TOOLS = frozenset(
    (
        *("list_sessions", "get_session_info", "read_output"),
        *("query_commands", "query_output", "query_recordings", "query_audit"),
    )
)
PARAMS: Mapping[str, frozenset[str]] = {
    "call": frozenset(("name", "arguments")),
    "policy": frozenset(),
    "explain": frozenset(("command", "client", "agent")),
    "approve": frozenset(("question_id", "scope", "reason")),
    "reject": frozenset(("question_id", "reason")),
}
"""The parameters that a tab may send, for methods that the protocol gives more."""

RUNS_PREFIX = "runs."
"""The beginning of methods that the runs program answers; those that decide something require the approve scope."""

REPLAY_PREFIX = "replay."
"""The beginning of methods that the console answers from a recording."""

VERIFY = "audit.verify"
"""The method that verifies the whole audit log."""

MOST_REQUESTS, MOST_REQUEST_BYTES = 32, 256 << 10
"""The most pending requests of a tab that the console answers itself, and the longest of them."""

MAX_LINE_BYTES = 64 << 20
SIGNED_OUT, DAEMON_ENDED, PROTOCOL_VIOLATION = 4401, 1012, 1008


class Unreachable(Exception):
    """No daemon responds; ``facts`` are those of a protocol error."""

    def __init__(self, facts: Mapping[str, str]) -> None:
        super().__init__(facts.get("message", ""))
        self.facts = facts


class Bridge:
    """One bridge, from a tab's sign-in to the end of either side."""

    def __init__(
        self, socket: WebSocket, tab: Tab, scopes: tuple[str, ...], runs: Runs, audit_check: AuditCheck
    ) -> None:
        self._socket = socket
        self._tab = tab
        self._runs = runs
        self._audit_check = audit_check
        self._may_decide = "approve" in scopes
        self._requests: set[asyncio.Task[None]] = set()
        self._hello = f',"scopes":{json.dumps(scopes)}'
        self._replays = Replays(self._record)
        self._news: dict[str, dict[str, Any]] = {}
        self._has_news = asyncio.Event()

    async def run(self) -> int:
        """Return the status with which to close the WebSocket; if no daemon responds, the tab gets an error first."""
        ended = asyncio.Event()
        self._tab.ends.add(ended.set)
        try:
            reader, writer = await self._dial()
        except Unreachable as error:
            self._tab.ends.discard(ended.set)
            await self._socket.send_text(json.dumps({"error": _visible(error.facts)}))
            return DAEMON_ENDED
        unsubscribe = self._runs.subscribe(self._store_event)
        tasks: dict[asyncio.Task[Any], int] = {
            asyncio.create_task(self._relay_to_tab(reader)): DAEMON_ENDED,
            asyncio.create_task(self._relay_to_daemon(writer)): PROTOCOL_VIOLATION,
            asyncio.create_task(self._send_news()): PROTOCOL_VIOLATION,
            asyncio.create_task(ended.wait()): SIGNED_OUT,
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._tab.ends.discard(ended.set)
            unsubscribe()
            self._replays.close()
            for task in (*tasks, *self._requests):
                task.cancel()
            outcomes: list[Any] = await asyncio.gather(*tasks, *self._requests, return_exceptions=True)
            writer.close()
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, OSError | EOFError | WebSocketDisconnect):
                raise outcome
        return SIGNED_OUT if ended.is_set() else max(tasks[task] for task in done)

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await open_streams(partial(dial_started, "control", self._hello), MAX_LINE_BYTES)
        except relay.Unreachable as error:
            raise Unreachable({"code": error.code, "message": error.message, "suggestion": error.suggestion}) from None

    async def _record(self, session: str) -> replays.Recorded:
        """Return a recording that the daemon makes, requested over a separate connection."""
        try:
            reader, writer = await self._dial()
        except Unreachable as error:
            raise replays.Refused(**error.facts) from None
        try:
            writer.write(json.dumps({"id": 1, "method": "record", "params": {"session": session}}).encode() + b"\n")
            reply: dict[str, Any] = {}
            while "id" not in reply:
                reply = json.loads(await reader.readline())
        except (OSError, ValueError):
            raise replays.Refused("connection_lost", "the connection to the daemon was lost", "try again") from None
        finally:
            writer.close()
        if error := reply.get("error"):
            raise replays.Refused(error["code"], error["message"], error.get("suggestion", ""))
        result = reply["result"]
        return replays.Recorded(Path(result["path"]), result["began"], result["commands"])

    async def _relay_to_tab(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            facts: dict[str, Any] = json.loads(line)
            if "ai_session" in facts:
                facts["now"] = time.time()  # the browser's machine may have another clock
            text = json.dumps(_visible(facts), ensure_ascii=False)
            if size := facts.get("bytes", 0):
                await self._socket.send_bytes(text.encode() + b"\n" + await reader.readexactly(size))
            else:
                await self._socket.send_text(text)

    async def _relay_to_daemon(self, writer: asyncio.StreamWriter) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            raw: bytes = message.get("bytes") or (message.get("text") or "").encode()
            head, _, data = raw.partition(b"\n")
            if local := local_request(head):
                if problem := self._limit_error(len(head)):
                    await self._send({"id": local[0], "error": problem})
                else:
                    self._start_request(*local)
                continue
            request = daemon_request(head, len(data))
            if request is None:
                return
            writer.write(json.dumps(request).encode() + b"\n" + data)
            await writer.drain()

    def _limit_error(self, size: int) -> dict[str, str] | None:
        if size > MOST_REQUEST_BYTES:
            message = f"a request of {size} bytes is too long: the limit is {MOST_REQUEST_BYTES}"
            return {"code": "invalid_arguments", "message": message, "suggestion": "ask for less at once"}
        if len(self._requests) >= MOST_REQUESTS:
            message = f"{MOST_REQUESTS} requests of this tab are pending, which is the limit"
            return {"code": "limit_reached", "message": message, "suggestion": "wait for an answer, then ask again"}
        return None

    def _start_request(self, number: int, method: str, params: dict[str, Any]) -> None:
        task = asyncio.create_task(self._answer(number, method, params))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _answer(self, number: int, method: str, params: dict[str, Any]) -> None:
        data, name = b"", method.partition(".")[2]
        if method.startswith(REPLAY_PREFIX):
            try:
                facts, data = await self._replays.ask(name, params)
                reply: dict[str, Any] = {"result": facts}
            except replays.Refused as error:
                reply = {"error": error.facts}
        elif method == VERIFY:
            reply = await self._audit_check.ask()
        elif name in DECISIONS and not self._may_decide:
            reply = {"error": {"code": "not_granted", "message": "this console is read-only"}}
        else:
            reply = await self._runs.ask(name, params)
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # the tab was closed
            await self._send({"id": number, **reply}, data)

    def _store_event(self, event: dict[str, Any]) -> None:
        """Store the newest event of each kind, for a tab that reads slowly: it only says that something has changed."""
        self._news[event["what"]] = event
        self._has_news.set()

    async def _send_news(self) -> None:
        while await self._has_news.wait():
            self._has_news.clear()
            news = self._news
            self._news = {}
            for event in news.values():
                await self._send(event)

    async def _send(self, facts: dict[str, Any], data: bytes = b"") -> None:
        text = json.dumps(_visible(facts), ensure_ascii=False)
        if data:
            await self._socket.send_bytes(text.encode() + b"\n" + data)
        else:
            await self._socket.send_text(text)


def local_request(head: bytes) -> tuple[int, str, dict[str, Any]] | None:
    """Return number, method and parameters of a request that the console or a child of it answers; None for others."""
    try:
        request: Any = json.loads(head)
        number, method, params = request["id"], str(request["method"]), request.get("params", {})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    kind, _, name = method.partition(".")
    known = method == VERIFY or name in {RUNS_PREFIX: QUERIES | DECISIONS, REPLAY_PREFIX: replays.METHODS.keys()}.get(
        f"{kind}.", ()
    )
    return (number, method, params) if known and isinstance(number, int) and isinstance(params, dict) else None  # pyright: ignore[reportUnknownVariableType]


def daemon_request(head: bytes, size: int) -> dict[str, Any] | None:
    """Return the part of a tab's message to send to the daemon with ``size`` bytes; None for an unknown request."""
    try:
        message: Any = json.loads(head)
        method, params = message["method"], message.get("params", {})
        known = method in METHODS and (method != "call" or params["name"] in TOOLS)
        if not known or not set(params) <= PARAMS.get(method, frozenset(params)):
            return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    request = {"method": method, "params": params} | ({"id": message["id"]} if "id" in message else {})
    return request | ({"bytes": size} if size else {})


def _visible(value: Any) -> Any:
    """Return ``value`` with all its texts made safe to show."""
    if isinstance(value, str):
        return visible(value.expandtabs(), lines=True)
    if isinstance(value, dict):
        return {name: _visible(one) for name, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return [_visible(one) for one in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]
