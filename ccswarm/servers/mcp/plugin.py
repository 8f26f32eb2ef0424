"""The swarm for any MCP client, on standard input and output: start runs, follow them, read their results. The SDK
takes half a second to import, and the store of runs as long. Until they are loaded, the first requests get recorded
answers, and all others wait in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from agentwire.json_lines import LineReader, Message, Refused, encode, parse
from agentwire.mcp.first_answers import FirstAnswers
from ccswarm import __version__
from ccswarm.servers.base import ServerOptions
from ccswarm.servers.mcp.stdio import Wire

if TYPE_CHECKING:
    from types import ModuleType

    from ccswarm.servers.mcp.dispatch import Conversation
    from ccswarm.servers.mcp.wire_log import Trace

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
FLUSH_SECONDS = 0.3
MAX_LINE_BYTES = 8 << 20
CLOSE_SECONDS = 20.0
"""The time limit for closing; what is not handed back by then is taken over as after a crash."""

FIRST_ANSWERS = Path(__file__).with_name("first_answers.json")
"""Written by scripts/first_answers_swarm.py."""

WITH_PROJECTS = ("tools/list", "prompts/list")
"""The methods whose recorded answers include tools or prompts for projects."""

log = logging.getLogger(__name__)


class StdioConnection:
    """The single client of this process."""

    def __init__(self, options: ServerOptions) -> None:
        self._options = options
        self._wire = Wire()
        self._first = FirstAnswers(FIRST_ANSWERS, __version__)
        self._conversation: Conversation | None = None
        self._trace = _trace() if options.trace else None
        self._waiting: list[tuple[Message, bool]] = []

    async def run(self) -> None:
        """Serve until the client disconnects or a signal arrives; then hand back what is unfinished."""
        ending, loop = asyncio.Event(), asyncio.get_running_loop()

        def end() -> None:
            if ending.is_set():
                os._exit(1)
            ending.set()

        for number in SIGNALS:
            loop.add_signal_handler(number, end)
        signalled = asyncio.create_task(ending.wait())
        serving = asyncio.create_task(self._serve())
        try:
            await asyncio.wait({signalled, serving}, return_when=asyncio.FIRST_COMPLETED)
            serving.cancel()
            await asyncio.wait({serving})
            if self._conversation:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await self._conversation.close()
            await self._wire.flushed(FLUSH_SECONDS)
            if self._trace:
                await asyncio.to_thread(self._trace.close, FLUSH_SECONDS)
        finally:
            signalled.cancel()

    async def _serve(self) -> None:
        loading: asyncio.Task[None] | None = None
        lines = LineReader(MAX_LINE_BYTES)
        while chunk := await self._wire.read():
            for line in lines.feed(chunk):
                self._receive(line)
            loading = loading or asyncio.create_task(self._load())
            await self._wire.room()
        if loading and any("id" in message and not answered for message, answered in self._waiting):
            await loading  # requests from before the end are answered
        if self._conversation:
            await self._conversation.settle()

    def _receive(self, line: bytes | Refused) -> None:
        try:
            if isinstance(line, Refused):
                raise line
            if self._trace:
                self._trace.received(line)
            message = parse(line)
        except Refused as refused:
            for answer in refused.answers:
                self._send(answer)
            return
        if message is None or "method" not in message:  # clients get no requests, so their responses are ignored
            return
        if self._conversation:
            self._conversation.receive(message)
            return
        recorded = "id" in message and not (self._options.runs_only and message["method"] in WITH_PROJECTS)
        answer = self._first.answer(message) if recorded else None
        if answer:
            self._send(answer)
        if answer is None or message["method"] == "initialize":
            self._waiting.append((message, answer is not None))

    async def _load(self) -> None:
        sdk = await asyncio.to_thread(_import_sdk)
        self._conversation = conversation = sdk.Conversation(self._options, self._send)
        for message, answered in self._waiting:
            conversation.receive(message, answered=answered)
        self._waiting.clear()

    def _send(self, message: Message) -> None:
        if self._trace:
            self._trace.sent(message)
        self._wire.write(encode(message))


def _trace() -> Trace:
    from ccswarm.servers.mcp.wire_log import Trace

    return Trace()


def _import_sdk() -> ModuleType:
    # All that is created here stays; collecting garbage in it takes 90 of 800 ms, and some 25 at the end.
    gc.disable()
    try:
        from ccswarm.servers.mcp import dispatch
    finally:
        gc.freeze()
        gc.enable()
    return dispatch


class McpServer:
    """The MCP server: every protocol version of both eras, on one pipe in any order."""

    name = "mcp"

    def main(self, options: ServerOptions) -> int:
        """Serve, then end the process: threads that import or wait for the client would keep it alive."""

        async def serve() -> None:
            code = 1
            try:
                await StdioConnection(options).run()
                code = 0
            except Exception:
                log.exception("the server is ending")
            finally:
                os._exit(code)

        handler = logging.StreamHandler()
        # dbos warns of every cancelled step.
        handler.addFilter(
            lambda record: record.name.startswith(("ccswarm", "agentwire")) or record.levelno >= logging.ERROR
        )
        logging.basicConfig(level=logging.WARNING, format="ccswarm: %(message)s", handlers=[handler])
        asyncio.run(serve())
        return 0


PLUGIN = McpServer()
