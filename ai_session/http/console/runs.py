"""The program that reports runs to the console: a child of the console's process, one for all tabs, which answers
requests and announces changes (docs/reference/runs-provider.md). Only this program knows what a run is."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from agentwire.visible import visible

Facts = dict[str, Any]

PROTOCOL = 1
QUERIES = frozenset(("list", "questions", "run", "transcript", "diff", "compare", "beginnings", "check"))
DECISIONS = frozenset(("answer", "accept", "return", "pause", "cancel", "start", "resume"))
"""Methods that change something; ``QUERIES`` do not."""

MAX_LINE_BYTES = 32 << 20
HELLO_SECONDS, LEAVING_SECONDS = 30.0, 2.0
ERROR_CHARS = 300


class Runs:
    """The program, given as ``command``; it is started with the first request, and again with the next one after it has
    ended. Without it every request is answered with an error that says ``why``."""

    def __init__(self, command: Sequence[str], why: str = "no program that reports runs is configured") -> None:
        self._command = tuple(command)
        self._missing = why
        self._listeners: set[Callable[[Facts], None]] = set()
        self._starting = asyncio.Lock()
        self._child: _Child | None = None

    def subscribe(self, listener: Callable[[Facts], None]) -> Callable[[], None]:
        """Call ``listener`` with each event of the program, until the returned function is called."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    async def ask(self, method: str, params: Facts) -> Facts:
        """Return the response, with ``result`` or ``error``."""
        try:
            async with self._starting:
                if self._child is None or self._child.over:
                    self._child = await self._start()
            return await self._child.ask(method, params)
        except Unavailable as error:
            return {"error": error.facts}

    async def close(self) -> None:
        """End the program."""
        if self._child:
            await self._child.close()

    async def _start(self) -> _Child:
        if not self._command:
            raise Unavailable(self._missing, "set console.runs in the configuration")
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=MAX_LINE_BYTES,
                start_new_session=True,
            )
        except OSError as error:
            raise Unavailable(f"{self._command[0]} cannot be started: {error.strerror}", "set console.runs") from None
        return await _Child(process, self._notify).handshake()

    def _notify(self, event: Facts) -> None:
        for listener in [*self._listeners]:
            listener(event)


class Unavailable(Exception):
    """No program reports runs; ``facts`` are those of an error."""

    def __init__(self, message: str, suggestion: str) -> None:
        super().__init__(message)
        self.facts = {"code": "runs_unavailable", "message": message, "suggestion": suggestion}


class _Child:
    """One process of the program."""

    def __init__(self, process: asyncio.subprocess.Process, notify: Callable[[Facts], None]) -> None:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self.over = False
        self._process = process
        self._notify = notify
        self._in = process.stdin
        self._out = process.stdout
        self._err = process.stderr
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Facts]] = {}
        self._errors = ""
        self._listening: asyncio.Task[None] | None = None
        self._error_reader = asyncio.create_task(self._read_errors())

    async def handshake(self) -> _Child:
        """Wait for the program's hello and return this child. Raises Unavailable for another protocol version."""
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                hello = await self._next()
        except TimeoutError:
            hello = None
        if hello is None or hello.get("runs") != PROTOCOL:
            await self.close()
            problem = f"speaks version {hello.get('runs')} of the protocol, not {PROTOCOL}" if hello else "ended"
            raise Unavailable(
                f"the program that reports runs {problem}{self._last_error()}", "install the same version of both"
            )
        self._listening = asyncio.create_task(self._listen())
        return self

    async def ask(self, method: str, params: Facts) -> Facts:
        """Return the response to a request. Raises Unavailable if the program ends before."""
        self._number += 1
        number = self._number
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            with contextlib.suppress(OSError):
                self._in.write(json.dumps({"id": number, "method": method, "params": params}).encode() + b"\n")
                await self._in.drain()
            if self.over:
                raise self._ended()
            return await answer
        finally:
            self._waiting.pop(number, None)

    async def close(self) -> None:
        """Close the program's input, which should end it; kill it if that takes too long."""
        self._in.close()
        try:
            async with asyncio.timeout(LEAVING_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        await asyncio.gather(self._error_reader, *([self._listening] if self._listening else []))

    async def _listen(self) -> None:
        while message := await self._next():
            answer = self._waiting.get(message.get("id", 0))
            if "event" in message:
                self._notify({"event": "runs", "what": str(message["event"])})
            elif answer and not answer.done():
                answer.set_result({name: message[name] for name in ("result", "error") if name in message})
        self.over = True
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self._ended())
        self._notify({"event": "runs", "what": "ended"})

    async def _next(self) -> Facts | None:
        """Return the program's next message; None at its end, and for an invalid one."""
        try:
            line = await self._out.readline()
            message: Any = json.loads(line) if line else None
        except (ValueError, OSError, RecursionError):
            message = None
        return message if isinstance(message, dict) else None  # pyright: ignore[reportUnknownVariableType]

    async def _read_errors(self) -> None:
        while data := await self._err.read(1 << 12):
            self._errors = (self._errors + data.decode(errors="replace"))[-ERROR_CHARS:]

    def _last_error(self) -> str:
        lines = [line for line in self._errors.splitlines() if line.strip()]
        return f": {visible(lines[-1])}" if lines else ""

    def _ended(self) -> Unavailable:
        return Unavailable(
            f"the program that reports runs has ended{self._last_error()}", "the next request starts it again"
        )
