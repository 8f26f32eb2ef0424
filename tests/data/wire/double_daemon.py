"""A daemon with a gate that only remembers: the real socket, server and protocol around tools made for tests."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentwire import plugins
from ai_session.daemon import host
from ai_session.errors import ConfigInvalid, UnknownTool
from ai_session.models import Principal, ToolCall, ToolResult
from ai_session.sessions.changes import ChangeFeed, Changes


@dataclass(frozen=True)
class Tool:
    name: str
    always_load: bool = False
    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True

    @property
    def title(self) -> str:
        return self.name.title()

    description = "Made for tests."
    input_schema = {"type": "object", "properties": {"text": {"type": "string"}}}  # noqa: RUF012
    output_schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}  # noqa: RUF012


class Gate:
    def __init__(self) -> None:
        self.seen: list[ToolCall] = []
        self.cancelled: list[str] = []
        self.answered = asyncio.Event()
        self.changes = ChangeFeed(tuple)

    async def list_tools(self, principal: Principal, also: Collection[str] = ()) -> list[Tool]:
        return [Tool("echo", always_load=True), Tool("fail"), Tool("seen", read_only=True), Tool("wait")]

    async def call(self, call: ToolCall, asker: Any = None) -> ToolResult:
        self.seen.append(call)
        text = str(call.arguments.get("text", ""))
        if call.name == "wait":
            try:
                await self.answered.wait()
            except asyncio.CancelledError:
                self.cancelled.append(text)
                raise
        elif call.name == "release":
            self.answered.set()
            self.answered = asyncio.Event()
        elif call.name == "seen":
            principal = self.seen[-2].principal if len(self.seen) > 1 else call.principal
            facts = {"client": principal.client, "kind": principal.kind, "cwd": principal.working_directory}
            facts |= {"env": dict(principal.env), "pid": principal.pid, "cancelled": self.cancelled}
            return ToolResult("seen", {"text": "seen", **facts, "calls": len(self.seen)})
        elif call.name == "surrogate":
            text = "a\ud83db\udcff \ud83d\ude00 é\u2028\x00"
            return ToolResult(text, {"text": text, "\udc80": [text]})
        elif call.name == "fail":
            error = {"code": "session_not_found", "message": "no such session", "suggestion": "list_sessions"}
            return ToolResult("error session_not_found: no such session", {"error": error}, is_error=True)
        elif call.name == "describe_sessions":
            return ToolResult("none", {"sessions": []})
        elif call.name == "crash":
            raise RuntimeError("a secret of the inside")
        elif call.name == "big":
            text = "é" * 200_000
        elif call.name not in ("echo", "release"):
            raise UnknownTool(f"unknown tool {call.name!r}", suggestion="tools: echo, wait")
        return ToolResult(text, {"text": text}, call_id=call.call_id)

    async def watch_changes(self, principal: Principal, agent: str, run: str, kinds: Any) -> Changes:
        return self.changes.watch(lambda _: True, kinds)

    @property
    def person(self) -> Gate:
        return self

    async def stop(self, principal: Principal, leave: Callable[[], None], *, sessions: bool) -> str:
        leave()
        return ""


class App:
    def __init__(self) -> None:
        self.gate = Gate()
        self.busy = False

    async def start(self) -> None:
        return

    def session_names(self) -> dict[str, str]:
        return {"ses_1": "one", "ses_2": "two"}

    async def stop(self, *, sessions: bool = False) -> None:
        if sessions:
            Path("ended-sessions").touch()


def make(_: Path) -> tuple[Any, float]:
    if "--broken" in sys.argv:
        raise ConfigInvalid("session.rows: too many", suggestion="fix the file")
    idle = [float(word.partition("=")[2]) for word in sys.argv if word.startswith("--idle=")]
    return App(), idle[0] if idle else 0.0


def make_files_for_ever(directory: Path) -> tuple[Any, float]:
    print(directory, file=sys.stderr, flush=True)
    for number in itertools.count():
        with suppress(FileNotFoundError):
            (directory / str(number)).mkdir()
    raise AssertionError


if __name__ == "__main__":
    if "--no-daemon" in sys.argv:
        host.serve_stdio(make_files_for_ever)
    for word in sys.argv:
        if word.startswith("--version="):
            host.__version__ = word.partition("=")[2]
        elif word.startswith("--protocol="):
            oldest, newest = word.partition("=")[2].split("-")
            host.relay.PROTOCOL = (int(oldest), int(newest))
    directory, listener = host.listen()
    plugins.load("ai_session.servers", "mcp").heartbeat_seconds = 0.01
    print("ready", flush=True)
    host.run_and_leave(host.Daemon(directory, listener, make).run(expected="--unexpected" not in sys.argv))
