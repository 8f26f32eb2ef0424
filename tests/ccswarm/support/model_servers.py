"""Complete model providers in memory, on 127.0.0.1: OpenAI (chat completions, responses), Anthropic and Gemini.

One server implements all of them, streamed and not, and answers as a script decides. It refuses what the providers
refuse, with their messages, and stores the requests. It is also the proxy of programs, so other requests of theirs are
refused and recorded.

    async with ModelServer(plays([Reply(calls=[("run", {"command": "make"})]), Reply("Done.")])) as server:
        client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key="any")
        ...
        assert server.asked[-1].results[0].text == "ok"
"""

from __future__ import annotations

import asyncio
import gzip
import inspect
import itertools
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, Self
from urllib.parse import parse_qsl, urlsplit

from tests.ccswarm.support.model_servers_chat import ChatCompletions
from tests.ccswarm.support.model_servers_gemini import GeminiContent
from tests.ccswarm.support.model_servers_messages import Messages
from tests.ccswarm.support.model_servers_responses import Responses
from tests.ccswarm.support.model_servers_script import (
    ORDER,
    Asked,
    Behaviour,
    Call,
    Cut,
    Fail,
    Json,
    Raw,
    Refused,
    Reply,
    Result,
    RoleMessage,
    Script,
    Stall,
    answers,
    asides,
    each,
    follow,
    gullible,
    loops,
    plays,
    require,
)
from tests.ccswarm.support.model_servers_wire import Request, Wire
from tests.support.bounds import BOUND_SECONDS

__all__ = [
    "ORDER",
    "Asked",
    "Behaviour",
    "Call",
    "Cut",
    "Fail",
    "ModelServer",
    "Raw",
    "Refusal",
    "Reply",
    "Result",
    "RoleMessage",
    "Script",
    "Stall",
    "answers",
    "asides",
    "each",
    "follow",
    "gullible",
    "loops",
    "plays",
]


class Api(Protocol):
    """The requests and responses of one provider."""

    name: str
    tail: bytes
    """The bytes at the end of a stream."""

    def key(self, headers: Mapping[str, str], query: Mapping[str, str], known: str) -> str:
        """Return the key of a request. Raises Refused if there is none, or if ``known`` is another."""
        ...

    def asked(self, body: Json, path: str, key: str) -> Asked:
        """Parse a request. Raises Refused."""
        ...

    def whole(self, asked: Asked, reply: Reply, reply_id: str) -> Json:
        """Return the body of a response that is not streamed."""
        ...

    def events(self, asked: Asked, reply: Reply, reply_id: str) -> Iterator[Json]:
        """Yield the events of a streamed response."""
        ...

    def error(self, fail: Fail, code: str = "") -> Json:
        """Return the body of an error."""
        ...


APIS: dict[str, Api] = {
    r".*/chat/completions": ChatCompletions(),
    r".*/responses": Responses(),
    r".*/messages(/count_tokens)?": Messages(),
    r".*:(generateContent|streamGenerateContent|countTokens)": GeminiContent(),
}


@dataclass(frozen=True)
class Refusal:
    """A request that the server refused because it is invalid."""

    path: str
    status: int
    message: str
    body: Json


class ModelServer:
    """A server that runs while entered: on the event loop, or with plain ``with`` in a thread of its own.

    ``key`` is the only valid one; if it is empty, any is valid but not none. A conversation of more than
    ``context_tokens`` (4 characters each) is refused. ``asked`` are the requests to the script, in order; ``refused``
    are invalid requests; ``others`` are the methods and paths, or a proxy's hosts, of all others.
    """

    def __init__(self, script: Script, *, key: str = "", context_tokens: int = 10**9) -> None:
        self.script = script
        self.key = key
        self.context_tokens = context_tokens
        self.asked: list[Asked] = []
        self.answered: list[Behaviour] = []
        self.refused: list[Refusal] = []
        self.others: list[str] = []
        self.url = ""
        self.connections = 0
        """The number of opened connections."""
        self._ids = itertools.count(1)
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Condition()
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)))
        self._thread.start()
        assert started.wait(BOUND_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _serve(self, started: threading.Event) -> None:
        self._over = asyncio.Event()
        async with self:
            started.set()
            await self._over.wait()

    async def was_asked(self, times: int) -> Asked:
        """Wait for the request to the script of that number and return it. Call it on the server's loop."""
        async with asyncio.timeout(BOUND_SECONDS), self._changed:
            await self._changed.wait_for(lambda: len(self.asked) >= times)
        return self.asked[times - 1]

    def wait_until_asked(self, times: int) -> Asked:
        """Do as ``was_asked`` from another thread."""
        return asyncio.run_coroutine_threadsafe(self.was_asked(times), self._loop).result(BOUND_SECONDS + 5)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._connections.add(task)
        self.connections += 1
        wire = Wire(reader, writer)
        try:
            with suppress(ConnectionError, asyncio.CancelledError):  # clients disconnect at any time, and the test ends
                while request := await wire.read():
                    await self._serve_one(wire, request)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve_one(self, wire: Wire, request: Request) -> None:
        path = urlsplit(request.target).path
        api = next((api for pattern, api in APIS.items() if re.fullmatch(pattern, path)), None)
        if api is None or request.method != "POST":
            self.others.append(f"{request.method} {request.target}")
            error = {"error": {"message": f"no such thing: {request.method} {path}", "type": "not_found_error"}}
            return await wire.send(404, error)
        try:
            asked = self._read(api, request, path)
        except Refused as error:
            self.refused.append(Refusal(path, error.status, error.message, self._body(request)))
            return await wire.send(error.status, api.error(Fail(error.status, error.message), error.code))
        if path.endswith(("count_tokens", ":countTokens")):
            return await wire.send(200, {"input_tokens": tokens(asked), "totalTokens": tokens(asked)})
        async with self._changed:
            self.asked.append(asked)
            self._changed.notify_all()
        decided = self.script(asked)
        behaviour = await decided if inspect.isawaitable(decided) else decided
        self.answered.append(behaviour)
        return await self._answer(wire, api, asked, behaviour)

    def _read(self, api: Api, request: Request, path: str) -> Asked:
        key = api.key(request.headers, dict(parse_qsl(urlsplit(request.target).query)), self.key)
        try:
            body = json.loads(self._text(request))
        except ValueError:
            raise Refused(400, "We could not parse the JSON body of your request.") from None
        require(isinstance(body, dict), "The body of a request is an object.")
        try:
            asked = api.asked(body, path, key)
        except (KeyError, TypeError, AttributeError) as error:
            raise Refused(400, f"The request is malformed: {error!r}") from error
        text = f"prompt is too long: {tokens(asked)} tokens > {self.context_tokens} maximum"
        if api.name == "gemini":
            most = f"the maximum number of tokens allowed ({self.context_tokens})."
            text = f"The input token count ({tokens(asked)}) exceeds {most}"
        require(tokens(asked) <= self.context_tokens, text, code="context_length_exceeded")
        return replace(asked, headers=request.headers)

    def _text(self, request: Request) -> bytes:
        return gzip.decompress(request.body) if request.headers.get("content-encoding") == "gzip" else request.body

    def _body(self, request: Request) -> Json:
        try:
            return json.loads(self._text(request))
        except ValueError:
            return {}

    async def _answer(self, wire: Wire, api: Api, asked: Asked, behaviour: Behaviour) -> None:
        if isinstance(behaviour, Fail):
            after = behaviour.retry_after
            headers = {} if after is None else {"retry-after": f"{after:g}"}
            status = 400 if behaviour.no_credit and api.name == "messages" else behaviour.status
            return await wire.send(status, api.error(behaviour), headers)
        if isinstance(behaviour, Raw):
            await wire.send_raw(behaviour.status, behaviour.body, behaviour.headers)
            return await wire.cut()
        reply = behaviour if isinstance(behaviour, Reply) else behaviour.reply
        named = replace(reply, calls=[self._named(asked, call) for call in reply.wanted])
        reply_id = f"{next(self._ids):06}"
        if isinstance(behaviour, Stall) and behaviour.after_events == 0:
            return await wire.left()
        if not asked.stream:
            if isinstance(behaviour, Reply):
                return await wire.send(200, api.whole(asked, named, reply_id))
            return await (wire.left() if isinstance(behaviour, Stall) else wire.cut())
        await wire.begin_events()
        for number, event in enumerate(api.events(asked, named, reply_id)):
            if not isinstance(behaviour, Reply) and number >= behaviour.after_events:
                return await (wire.left() if isinstance(behaviour, Stall) else wire.cut())
            name = f"event: {event['type']}\n" if "type" in event else ""
            await wire.send_data(f"{name}data: {json.dumps(event)}\n\n".encode())
        if not isinstance(behaviour, Reply):
            return await (wire.left() if isinstance(behaviour, Stall) else wire.cut())
        return await wire.end(api.tail)

    def _named(self, asked: Asked, call: Call) -> Call:
        """Return a call with an id, and with the name under which the tool is offered, if it is."""
        name = call.tool
        if asked.api == "messages":  # an answer with another name would be refused when it is sent back
            name = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
        with suppress(LookupError):
            name = asked.offered_as(call.tool)
        return replace(call, tool=name, id=call.id or f"call_{next(self._ids):06}")


def tokens(asked: Asked) -> int:
    """Return the length of a conversation with its tools, in tokens."""
    return len(asked.whole_text) // 4
