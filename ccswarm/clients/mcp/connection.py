"""One start of one server. Everything the SDK opens for it is opened and closed in a single task."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import mcp_types as types
from mcp import ClientSession
from mcp.client.context import ClientRequestContext
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from ccswarm import __version__
from ccswarm.clients._address import SecretScrubber
from ccswarm.clients.mcp.elicitation import MOST_ROUNDS, Ask, answer_elicitation, continue_call
from ccswarm.clients.mcp.failures import LOGIN_NEEDED, NO_ANSWER, NOT_SENT, advice
from ccswarm.clients.mcp.process import LEAVE_SECONDS, ServerProcess, start_server
from ccswarm.clients.mcp.tools import usable_page
from ccswarm.config.settings import ServerSettings
from ccswarm.errors import LoginNeeded, ServerUnavailable, SwarmError

for _name in ("mcp", "client"):
    # Our errors report what the SDK logs; without a handler Python would print it to the terminal.
    logging.getLogger(_name).addHandler(logging.NullHandler())

Era = Literal["", "legacy", "modern"]

PROBE_SECONDS = 2.0
"""How long an unknown server may leave ``server/discover`` unanswered before it also gets ``initialize``. Nothing is
decided by time: the first answer to one of the two decides. A server that answered the former before has half of the
time for opening."""

EXPLAIN_SECONDS = 0.25
"""The wait after the end of a server's output for its exit code and last output; usually 1 ms."""


class RawResult(Exception):
    """The raw result of a call, carried past the SDK's checks. They reject a whole answer for one unknown part, and
    scan each byte of a large one three times."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__()
        self.result = result


class Dispatcher(JSONRPCDispatcher):
    """The SDK's dispatcher, but lenient with the definitions and results of tools. The problems of lists are added to
    ``left_out``; ``scrubber`` removes our secrets from what the server sends."""

    left_out: list[str]
    scrubber: SecretScrubber
    version: str | None = None

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **more: Any
    ) -> dict[str, Any]:
        if method == "server/discover" and opts:
            # The SDK's limit of ten seconds would let time decide the era; opening as a whole has its own limit.
            opts = opts.copy()
            opts.pop("timeout", None)
        try:
            result = self.scrubber.value(await super().send_raw_request(method, params, opts, **more))
        except MCPError as error:
            raise MCPError(error.code, self.scrubber.text(error.message), self.scrubber.value(error.data)) from error
        if method == "tools/call":
            raise RawResult(result)
        if method == "tools/list":
            return usable_page(result, self.version or LATEST_HANDSHAKE_VERSION, self.left_out)
        return result


class Session(ClientSession):
    """The SDK's session, but a server that has used the modern era stays in it whatever it answers later."""

    def adopt(self, result: types.InitializeResult | types.DiscoverResult) -> None:
        if isinstance(result, types.DiscoverResult) or self.discover_result is None:
            super().adopt(result)


class Connection:
    """A connection that is opened once, used by many tasks, then closed. ``on_change`` is called when the server's
    tools may have changed, ``ask`` when the server asks a question. Without ``ask``, elicitation is not offered to the
    server."""

    def __init__(
        self,
        settings: ServerSettings,
        env: Mapping[str, str],
        *,
        on_stderr: Callable[[str], None] | None,
        on_change: Callable[[], None],
        state_directory: Path | None = None,
        ask: Ask | None = None,
    ) -> None:
        self._ask = ask
        self._state_directory = state_directory
        self._scrubber = SecretScrubber()
        self._settings = settings
        self._env = env
        self._on_stderr = on_stderr
        self._on_change = on_change
        self._over = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._process: ServerProcess | None = None
        self._connecting = False
        self._pending = 0
        self._open = False
        self._end = ""
        self.left_out: list[str] = []
        self.ended_on_discover = False
        """Whether the server ended when it was asked for its era."""

    @property
    def alive(self) -> bool:
        """Whether it can be used, as far as known."""
        return self._open and (self._process is None or self._process.alive)

    @property
    def over(self) -> bool:
        """Whether it is completely closed."""
        return self._owner is not None and self._owner.done()

    @property
    def about(self) -> str:
        """The server's own name and version, if any, and the protocol's revision. Only valid once it is open."""
        info = self.session.server_info
        named = f"{info.name} {info.version}, " if info else ""
        return f"{named}MCP {self.session.protocol_version}"

    @property
    def busy(self) -> bool:
        """Whether a request is waiting for an answer."""
        return self._pending > 0

    async def open(self, era: Era, seconds: float) -> Era:
        """Start or reach the server and agree on an era, ``era`` first; return it. Raises ServerUnavailable."""
        ready: asyncio.Future[Era] = asyncio.get_running_loop().create_future()
        self._connecting = True
        self._owner = asyncio.create_task(self._run(era, seconds, ready))
        # Not done by the task itself, which may be cancelled before it starts.
        self._owner.add_done_callback(lambda _: self._fail_unready(ready))
        return await ready

    def _fail_unready(self, ready: asyncio.Future[Era]) -> None:
        if not ready.done():
            ready.set_exception(ServerUnavailable(f"server {self._settings.name} was closed while it started"))

    def abandon(self) -> None:
        """Stop using the connection. It closes by itself."""
        self._open = False
        self._over.set()

    async def close(self) -> None:
        """Close the connection completely."""
        if self._owner is not None:
            if self._connecting and not self._owner.cancelling():  # once: it ends what it started
                self._owner.cancel()
            self.abandon()
            await asyncio.wait([self._owner])

    async def describe_end(self) -> str:
        """Describe its end for messages. Waits briefly for the exit code."""
        if self._process is None:
            return "closed the connection"
        with suppress(TimeoutError):
            async with asyncio.timeout(EXPLAIN_SECONDS):
                await self._process.explained.wait()
        self._end = self._end or self._process.describe_end()
        return self._end

    async def _run(self, era: Era, seconds: float, ready: asyncio.Future[Era]) -> None:
        try:
            async with AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(seconds):
                        agreed = await self._connect(stack, era, seconds)
                    self._connecting = False
                except (MCPError, RuntimeError, ValidationError, TimeoutError) as error:
                    self._connecting = False
                    # Set here, because exceptions that leave the SDK's task groups are wrapped.
                    ready.set_exception(await self._unavailable(error))
                else:
                    self._open = True
                    ready.set_result(agreed)
                    await self._wait_until_over()
        except Exception as error:
            # Any later failure ends this connection; the SDK notifies the tasks that wait for an answer.
            if not ready.done():
                ready.set_exception(error if isinstance(error, SwarmError) else await self._unavailable(error))
        finally:
            self._open = False

    async def _connect(self, stack: AsyncExitStack, era: Era, seconds: float) -> Era:
        if self._settings.url:
            from ccswarm.clients.mcp.http import connect  # takes 0.1 s, which servers started here do not need

            read, write = await stack.enter_async_context(
                connect(self._settings, self._env, self._state_directory, self._scrubber)
            )
        else:
            process = await stack.enter_async_context(
                start_server(self._settings, self._env, self._on_stderr, self._state_directory)
            )
            self._process = process
            read, write = process.incoming, process.outgoing
        self._dispatcher = Dispatcher(read, write)
        self._dispatcher.left_out = self.left_out
        self._dispatcher.scrubber = self._scrubber
        self.session = await stack.enter_async_context(
            Session(
                dispatcher=self._dispatcher,
                client_info=types.Implementation(name="ccswarm", version=__version__),
                message_handler=self._on_message,
                elicitation_callback=self._elicit if self._ask else None,
            )
        )
        await self._negotiate(era, seconds)
        self._dispatcher.version = self.session.protocol_version
        return "modern" if self._modern else "legacy"

    @property
    def _modern(self) -> bool:
        return self.session.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def _negotiate(self, era: Era, seconds: float) -> None:
        initialized: asyncio.Task[Any] | None = None
        if era != "legacy":
            discovered = asyncio.create_task(self.session.discover())
            try:
                await asyncio.wait((discovered,), timeout=seconds / 2 if era else PROBE_SECONDS)
                if not discovered.done():
                    initialized = asyncio.create_task(self.session.initialize())
                    initialized.add_done_callback(lambda task: task.cancelled() or task.exception())
                    await asyncio.wait((discovered, initialized), return_when=asyncio.FIRST_COMPLETED)
                    if initialized.done() and initialized.exception():
                        await asyncio.wait((discovered,))
                if discovered.done() and self._is_modern(discovered, era):
                    return
            except BaseException:
                if initialized:
                    initialized.cancel()
                raise
            finally:
                discovered.cancel()
        try:
            await (initialized or self.session.initialize())
        except MCPError as error:
            if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
                raise
            # It answers now, because the first request has made this a modern connection.
            await self.session.discover()

    def _is_modern(self, discovered: asyncio.Task[Any], era: Era) -> bool:
        """Report whether a server that answered ``server/discover`` is modern. Raises errors that end the attempt."""
        error = discovered.exception()
        if error is None:
            return True
        if not isinstance(error, MCPError | RuntimeError | ValidationError):
            raise error
        if isinstance(error, MCPError) and error.code == LOGIN_NEEDED:
            raise error
        if self._process is not None and self._process.ended.is_set():
            self.ended_on_discover = not era
            raise error
        return False

    async def _wait_until_over(self) -> None:
        over = [asyncio.create_task(self._over.wait())]
        if self._process is not None:
            self._process.grace_seconds = LEAVE_SECONDS
            over.append(asyncio.create_task(self._process.ended.wait()))
        try:
            await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
            if self._process is not None and not self._over.is_set():
                await self.describe_end()  # before it is ended
                await self._process.incoming.over.wait()  # its earlier answers still count
        finally:
            for task in [*over, *([self._listener] if self._listener else [])]:
                task.cancel()

    async def _unavailable(self, error: Exception) -> ServerUnavailable:
        if isinstance(error, MCPError) and error.code == LOGIN_NEEDED:
            return LoginNeeded(error.message, suggestion=advice(error.data))
        if isinstance(error, TimeoutError):
            problem = f"did not answer within {self._settings.connect_seconds:g} s"
        elif isinstance(error, MCPError):
            answered = error.code not in (NOT_SENT, NO_ANSWER)
            problem = f"{'refused the connection' if answered else 'cannot be reached'}: {error.message}"
        else:
            problem = f"does not speak the protocol: {error}"
        process = self._process
        if process is not None:
            ended = process.ended.is_set()
            problem = await self.describe_end() if ended else process.with_last_output(problem)
        name = self._settings.name
        return ServerUnavailable(
            f"server {name} {problem}", suggestion=f"try the configured command or url of {name} by hand"
        )

    async def _elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        assert self._ask
        result = await answer_elicitation(params.model_dump(by_alias=True, mode="json", exclude_unset=True), self._ask)
        return types.ElicitResult.model_validate(result)

    async def _on_message(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._on_change()

    async def watch_tools(self) -> None:
        """Subscribe to changes of the tools if the server announces them only to subscribers."""
        capabilities = self.session.server_capabilities
        if not (self._modern and capabilities and capabilities.tools and capabilities.tools.list_changed):
            return
        if self._listener is None or self._listener.done():
            listening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._listener = asyncio.create_task(self._listen(listening))
            with suppress(TimeoutError):
                async with asyncio.timeout(PROBE_SECONDS):
                    await asyncio.wait([listening])

    async def _listen(self, listening: asyncio.Future[None]) -> None:
        try:
            async with listen(self.session, tools_list_changed=True) as events:
                listening.set_result(None)
                async for _ in events:
                    self._on_change()
        except (MCPError, SubscriptionLost, TimeoutError):
            pass  # the tools may have changed without notice
        finally:
            self._on_change()
            if not listening.done():
                listening.set_result(None)

    @contextmanager
    def _pending_request(self) -> Generator[None]:
        self._pending += 1
        try:
            yield
        finally:
            self._pending -= 1

    async def list_page(self, cursor: str | None) -> types.ListToolsResult:
        """Return one page of tools without unusable ones. Raises MCPError."""
        with self._pending_request():
            return await self.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], meta: Mapping[str, Any], on_progress: ProgressFnT | None
    ) -> dict[str, Any]:
        """Call a tool and return the raw result. Raises MCPError, and ValueError for arguments that are not JSON."""
        params: dict[str, Any] = {"name": name, "arguments": dict(arguments), "_meta": dict(meta) or None}
        more: dict[str, Any] | None = {}
        result: dict[str, Any] = {}
        for _ in range(MOST_ROUNDS):
            result = await self._call({**params, **more}, on_progress)
            more = await continue_call(result, self._ask)
            if more is None:
                break
        return result

    async def _call(self, params: Mapping[str, Any], on_progress: ProgressFnT | None) -> dict[str, Any]:
        request = types.CallToolRequest(params=types.CallToolRequestParams.model_validate(params))
        try:
            with self._pending_request():
                await self.session.send_request(request, types.CallToolResult, progress_callback=on_progress)
        except RawResult as raw:
            return raw.result
        raise AssertionError("a result of tools/call came as a result")
