"""A tab's WebSocket and a connection to the daemon, message by line, in both directions.

A text is a line of the protocol for people's programs; binary is such a line, a line end and the bytes that belong to
it. A tab may request only what the page needs. All texts from the daemon pass through ``visible``, so the page cannot
show text that hides something; bytes of a terminal go to the page's emulator unchanged.
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
from ai_session.console import replays
from ai_session.console.audit_check import AuditCheck
from ai_session.console.logins import Tab
from ai_session.console.replays import Replays
from ai_session.console.runs import DECISIONS, LOOKS, Runs

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
"""Where a tab may say less than others."""

OF_RUNS = "runs."
"""How the methods begin that the program of the runs answers; what decides something needs the scope to approve."""

OF_REPLAYS = "replay."
"""How those begin that the console answers from a recording."""

VERIFY = "audit.verify"
"""What has the whole audit log judged."""

MOST_ASKED, MOST_ASKED_BYTES = 32, 256 << 10
"""What a tab may wait for at once of what the console answers itself, and how long one such request may be."""

MAX_LINE_BYTES = 64 << 20
SIGNED_OUT, DAEMON_LEFT, NOT_SPOKEN = 4401, 1012, 1008


class Unreachable(Exception):
    """No daemon answers; ``facts`` as an error of the protocol has them."""

    def __init__(self, facts: Mapping[str, str]) -> None:
        super().__init__(facts.get("message", ""))
        self.facts = facts


class Bridge:
    """One, from a tab that has shown its token to the end of either side."""

    def __init__(
        self, socket: WebSocket, tab: Tab, scopes: tuple[str, ...], runs: Runs, audit_check: AuditCheck
    ) -> None:
        self._socket = socket
        self._tab = tab
        self._runs = runs
        self._audit_check = audit_check
        self._may_decide = "approve" in scopes
        self._asking: set[asyncio.Task[None]] = set()
        self._hello = f',"scopes":{json.dumps(scopes)}'
        self._replays = Replays(self._record)
        self._news: dict[str, dict[str, Any]] = {}
        self._heard = asyncio.Event()

    async def run(self) -> int:
        """The status with which to close the WebSocket; if no daemon answers, the tab gets an error first."""
        ended = asyncio.Event()
        self._tab.ends.add(ended.set)
        try:
            reader, writer = await self._dialled()
        except Unreachable as error:
            self._tab.ends.discard(ended.set)
            await self._socket.send_text(json.dumps({"error": _shown(error.facts)}))
            return DAEMON_LEFT
        deaf = self._runs.hear(self._hear)
        ways: dict[asyncio.Task[Any], int] = {
            asyncio.create_task(self._down(reader)): DAEMON_LEFT,
            asyncio.create_task(self._up(writer)): NOT_SPOKEN,
            asyncio.create_task(self._tell()): NOT_SPOKEN,
            asyncio.create_task(ended.wait()): SIGNED_OUT,
        }
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._tab.ends.discard(ended.set)
            deaf()
            self._replays.close()
            for way in (*ways, *self._asking):
                way.cancel()
            outcomes: list[Any] = await asyncio.gather(*ways, *self._asking, return_exceptions=True)
            writer.close()
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, OSError | EOFError | WebSocketDisconnect):
                raise outcome
        return SIGNED_OUT if ended.is_set() else max(ways[way] for way in done)

    async def _dialled(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await open_streams(partial(dial_started, "control", self._hello), MAX_LINE_BYTES)
        except relay.Unreachable as error:
            raise Unreachable({"code": error.code, "message": error.message, "suggestion": error.suggestion}) from None

    async def _record(self, session: str) -> tuple[Path, float, list[str]]:
        """A recording that the daemon makes, asked for over a connection of its own."""
        try:
            reader, writer = await self._dialled()
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
        made = reply["result"]
        return Path(made["path"]), made["began"], made["commands"]

    async def _down(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            facts: dict[str, Any] = json.loads(line)
            if "ai_session" in facts:
                facts["now"] = time.time()  # the browser may be elsewhere, with a clock of its own
            text = json.dumps(_shown(facts), ensure_ascii=False)
            if size := facts.get("bytes", 0):
                await self._socket.send_bytes(text.encode() + b"\n" + await reader.readexactly(size))
            else:
                await self._socket.send_text(text)

    async def _up(self, writer: asyncio.StreamWriter) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            raw: bytes = message.get("bytes") or (message.get("text") or "").encode()
            head, _, data = raw.partition(b"\n")
            if about := asked_here(head):
                if problem := self._too_much(len(head)):
                    await self._send({"id": about[0], "error": problem})
                else:
                    self._ask(*about)
                continue
            request = request_of(head, len(data))
            if request is None:
                return
            writer.write(json.dumps(request).encode() + b"\n" + data)
            await writer.drain()

    def _too_much(self, size: int) -> dict[str, str] | None:
        if size > MOST_ASKED_BYTES:
            message = f"a request of {size} bytes is too long: the limit is {MOST_ASKED_BYTES}"
            return {"code": "invalid_arguments", "message": message, "suggestion": "ask for less at once"}
        if len(self._asking) >= MOST_ASKED:
            message = f"{MOST_ASKED} requests of this tab wait for answers, which is the limit"
            return {"code": "limit_reached", "message": message, "suggestion": "wait for an answer, then ask again"}
        return None

    def _ask(self, number: int, method: str, params: dict[str, Any]) -> None:
        asking = asyncio.create_task(self._answer(number, method, params))
        self._asking.add(asking)
        asking.add_done_callback(self._asking.discard)

    async def _answer(self, number: int, method: str, params: dict[str, Any]) -> None:
        data, name = b"", method.partition(".")[2]
        if method.startswith(OF_REPLAYS):
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
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # the tab has gone
            await self._send({"id": number, **reply}, data)

    def _hear(self, event: dict[str, Any]) -> None:
        """Of each kind one is kept for a tab that reads slowly: it says that something is another than before."""
        self._news[event["what"]] = event
        self._heard.set()

    async def _tell(self) -> None:
        while await self._heard.wait():
            self._heard.clear()
            news = self._news
            self._news = {}
            for event in news.values():
                await self._send(event)

    async def _send(self, facts: dict[str, Any], data: bytes = b"") -> None:
        text = json.dumps(_shown(facts), ensure_ascii=False)
        if data:
            await self._socket.send_bytes(text.encode() + b"\n" + data)
        else:
            await self._socket.send_text(text)


def asked_here(head: bytes) -> tuple[int, str, dict[str, Any]] | None:
    """Number, method and parameters of what the console answers itself, or a program beside it; None for anything
    else."""
    try:
        asked: Any = json.loads(head)
        number, method, params = asked["id"], str(asked["method"]), asked.get("params", {})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    kind, _, name = method.partition(".")
    known = method == VERIFY or name in {OF_RUNS: LOOKS | DECISIONS, OF_REPLAYS: replays.METHODS.keys()}.get(
        f"{kind}.", ()
    )
    return (number, method, params) if known and isinstance(number, int) and isinstance(params, dict) else None  # pyright: ignore[reportUnknownVariableType]


def request_of(head: bytes, size: int) -> dict[str, Any] | None:
    """What of a tab's message goes to the daemon, with ``size`` bytes after it; None for what no page of ours asks."""
    try:
        asked: Any = json.loads(head)
        method, params = asked["method"], asked.get("params", {})
        known = method in METHODS and (method != "call" or params["name"] in TOOLS)
        if not known or not set(params) <= PARAMS.get(method, frozenset(params)):
            return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    request = {"method": method, "params": params} | ({"id": asked["id"]} if "id" in asked else {})
    return request | ({"bytes": size} if size else {})


def _shown(value: Any) -> Any:
    """``value`` with all its texts as a person may be shown them."""
    if isinstance(value, str):
        return visible(value.expandtabs(), lines=True)
    if isinstance(value, dict):
        return {name: _shown(one) for name, one in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return [_shown(one) for one in value] if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]
