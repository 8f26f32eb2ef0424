"""The only way out of a box: a proxy whose listening socket lies inside the box's network namespace.

One proxy per session, so whoever connects is the session. Names are resolved here, once, and the address that was
judged is the one that is dialled.
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
"""Further ones wait until one ends."""

ASK_SECONDS = 30.0
"""How long a connection is held while a person is asked. A later answer counts for the next connection."""

MAX_QUESTIONS = 256
"""Domains asked about in one session; further ones are refused without asking."""

RESOLVE_SECONDS = 10.0
DIAL_SECONDS = 10.0
MAX_ADDRESSES = 4

EVENTS_WHOLE = 16
"""This many identical connections are reported one by one, further ones each time their number has doubled, as
``count``."""

MAX_TALLIES = 4096

Ask = Callable[[str], Awaitable[bool]]
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
Event = Callable[..., None]


class SessionProxy:
    """Lets one box reach what ``rules`` allow.

    ``ask(name)`` is awaited once per name that is not listed, before anything is resolved; without it such names are
    refused. An AiSessionError it raises refuses the connection with its message. ``event("net.allow", …)`` and
    ``event("net.deny", …)`` get ``host``, ``port``, ``method``, ``count`` and ``address`` or ``why``. ``resolve``
    gives the addresses of a name. ``head_seconds`` bounds the wait for a request and for a hello, ``ask_seconds`` how
    long a connection is held while a person is asked.
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
        # A pool of its own, so that names that resolve slowly hold up nobody but this box.
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="resolve")

    async def start(self, box: Box) -> None:
        """Listen inside ``box``; also after a restart, when an earlier proxy of it has gone.

        Raises SandboxUnavailable when that cannot be.
        """
        self.serve(await listen_inside(box, PORT))

    def serve(self, listener: socket.socket) -> None:
        """Answer on a listening, non-blocking socket, which is closed by ``aclose``."""
        self._listener = listener
        self._begin(self._accept(listener))

    async def aclose(self) -> None:
        """End every connection. Can be called twice."""
        tasks: list[asyncio.Task[Any]] = [*self._tasks, *self._answers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._answers.clear()
        if self._listener is not None:
            self._listener.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def forget_answers(self) -> None:
        """Ask again about every name that was asked about; connections that are open go on."""
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
                await serve(client, self.connect, self._tell, self._head_seconds)
        finally:
            self._free.release()

    async def connect(self, host: str, port: int) -> tuple[str, socket.socket]:
        """The name as it was judged, and a socket connected to it. Raises Refused, or Unreachable."""
        name = self._rules.name(host, port)
        if not self._rules.lists(name):
            # Before the name is resolved: a look-up of a name somebody made up is a message to its owner.
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
            question = self._answers[name] = asyncio.create_task(_asked(self._ask, name))
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

    def _tell(self, kind: str, **fields: Any) -> None:
        """Passes an event on, but not each of thousands alike: what a box does must not fill the log."""
        alike = (kind, *(fields.get(name) for name in ("host", "port", "why")))
        if alike not in self._tallies and len(self._tallies) >= MAX_TALLIES:
            alike = (kind,)
        count = self._tallies[alike] = self._tallies.get(alike, 0) + 1
        if count <= EVENTS_WHOLE or count & (count - 1) == 0:
            self._event(kind, **fields, count=count)


async def _asked(ask: Ask, name: str) -> bool:
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
