"""The only way out of a box: a proxy that listens inside the box's network namespace.

There is one proxy per session, so every client of it belongs to that session. Names are resolved here, once, and the
address that was checked is the one that is dialled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ai_session.errors import AiSessionError
from ai_session.sandbox.network.connection import HEAD_SECONDS, Unreachable, serve
from ai_session.sandbox.network.entry import PORT, Box, listen_inside
from ai_session.sandbox.network.rules import NetworkRules, Refused

MAX_CONNECTIONS = 256
"""The limit of open connections; further ones wait until one ends."""

ASK_SECONDS = 30.0
"""How long a connection waits for a person's answer. A later answer applies to the next connection."""

MAX_QUESTIONS = 256
"""The number of domains asked about in one session; further ones are refused without asking."""

RESOLVE_SECONDS = 10.0
DIAL_SECONDS = 10.0
MAX_ADDRESSES = 4

EVENTS_WHOLE = 16
"""This many identical connections are each reported; after that, one each time ``count`` has doubled."""

MAX_TALLIES = 4096

Ask = Callable[[str], Awaitable[bool]]
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
Event = Callable[..., None]


class SessionProxy:
    """The proxy of one box, which reaches what ``rules`` allow.

    ``ask(name)`` is awaited once per name that is not listed, before the name is resolved; without ``ask`` such names
    are refused. If it raises AiSessionError, the connection is refused with its message. ``event("net.allow", …)`` and
    ``event("net.deny", …)`` get ``host``, ``port``, ``method``, ``count`` and ``address`` or ``why``. ``resolve``
    returns the addresses of a name. ``head_seconds`` limits the wait for a request and for a hello, ``ask_seconds`` the
    wait for a person's answer.
    """

    def __init__(
        self,
        rules: NetworkRules,
        *,
        ask: Ask | None = None,
        event: Event = lambda *_, **__: None,
        resolve: Resolve | None = None,
        head_seconds: float = HEAD_SECONDS,
        ask_seconds: float = ASK_SECONDS,
    ) -> None:
        self._rules = rules
        self._ask = ask
        self._event = event
        self._resolve = resolve or self._look_up
        self._head_seconds = head_seconds
        self._ask_seconds = ask_seconds
        self._answers: dict[str, asyncio.Task[bool]] = {}
        self._tallies: dict[tuple[Any, ...], int] = {}
        self._free = asyncio.Semaphore(MAX_CONNECTIONS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        # Each box has a pool of its own, so that slow name resolution delays no other box.
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="resolve")

    async def start(self, box: Box) -> None:
        """Listen inside ``box``, also if an earlier proxy of it has ended. Raises SandboxUnavailable."""
        self.serve(await listen_inside(box, PORT))

    def serve(self, listener: socket.socket) -> None:
        """Serve connections on a listening, non-blocking socket, which ``aclose`` closes."""
        self._listener = listener
        self._begin(self._accept(listener))

    async def aclose(self) -> None:
        """End every connection and close the listener. May be called twice."""
        tasks: list[asyncio.Task[Any]] = [*self._tasks, *self._answers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._answers.clear()
        if self._listener is not None:
            self._listener.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def forget_answers(self) -> None:
        """Ask again about every name that has been answered. Open connections stay open."""
        self._answers = {name: question for name, question in self._answers.items() if not question.done()}

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._free.acquire()
            client, _ = await loop.sock_accept(listener)
            self._begin(self._answer(client))

    async def _answer(self, client: socket.socket) -> None:
        try:
            with client:
                await serve(client, self.connect, self._report, self._head_seconds)
        finally:
            self._free.release()

    async def connect(self, host: str, port: int) -> tuple[str, socket.socket]:
        """Return the name as it was checked and a socket connected to it. Raises Refused or Unreachable."""
        name = self._rules.name(host, port)
        if not self._rules.lists(name):
            # Before the name is resolved: a look-up of an invented name would send a message to its owner.
            await self._consent(name)
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                addresses = await self._resolve(name, port)
        except (OSError, UnicodeError) as error:
            raise Unreachable(f"{name} cannot be resolved: {error}") from None
        public = [address for address in addresses if self._rules.reachable(address)]
        if not public:
            raise Refused(f"{name} resolves to no public address")
        return name, await _dial(name, public[:MAX_ADDRESSES], port)

    async def _consent(self, name: str) -> None:
        refusal = Refused(f"{name} is not on this session's list of allowed domains")
        if self._ask is None:
            raise refusal
        question = self._answers.get(name)
        if question is None:
            if len(self._answers) >= MAX_QUESTIONS:
                raise refusal
            question = self._answers[name] = asyncio.create_task(_await_answer(self._ask, name))
        done, _ = await asyncio.wait([question], timeout=self._ask_seconds)
        if not done:
            raise Refused(f"whether {name} is allowed has not been answered yet; try again later")
        if not question.cancelled() and (error := question.exception()) is not None:
            self._answers.pop(name, None)
            if not isinstance(error, AiSessionError):
                raise error
            raise Refused(f"{name}: {error.message}")
        if question.cancelled() or not question.result():
            raise Refused(f"a person refused {name}")

    async def _look_up(self, name: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._pool, lambda: socket.getaddrinfo(name, port, type=socket.SOCK_STREAM))
        return [str(entry[4][0]) for entry in found]

    def _report(self, kind: str, **fields: Any) -> None:
        """Report an event, but not each of thousands key: a box must not be able to fill the log."""
        key = (kind, *(fields.get(name) for name in ("host", "port", "why")))
        if key not in self._tallies and len(self._tallies) >= MAX_TALLIES:
            key = (kind,)
        count = self._tallies[key] = self._tallies.get(key, 0) + 1
        if count <= EVENTS_WHOLE or count & (count - 1) == 0:
            self._event(kind, **fields, count=count)


async def _await_answer(ask: Ask, name: str) -> bool:
    return await ask(name)


async def _dial(name: str, addresses: Sequence[str], port: int) -> socket.socket:
    failure = "no answer"
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        outside = socket.socket(family, socket.SOCK_STREAM)
        with contextlib.ExitStack() as unless_connected:
            unless_connected.callback(outside.close)
            outside.setblocking(False)
            outside.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            outside.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            try:
                async with asyncio.timeout(DIAL_SECONDS):
                    await asyncio.get_running_loop().sock_connect(outside, (address, port))
            except OSError as error:
                failure = os.strerror(error.errno) if error.errno else "no answer in time"
                continue
            unless_connected.pop_all()
            return outside
    raise Unreachable(f"{name} cannot be reached: {failure}")
