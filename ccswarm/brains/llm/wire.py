"""What every way to a model has in common: its connections, the bounds of an answer, what it cost, why none came."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

import httpx2

from ccswarm.brains.llm.conversation import Message
from ccswarm.brains.llm.prices import cost
from ccswarm.brains.llm.settings import Model
from ccswarm.models import Json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

CONNECT_SECONDS = 10.0
OK, FIRST_ERROR = 200, 400
MESSAGE_CHARS = 600
READ_BYTES = 4096
"""Of what came instead of an answer."""
NO_ANSWERS = ("text/html", "application/json", "application/xml", "text/xml")
"""Kinds of what is no stream of events, whoever sends it as one."""
PAGE = re.compile(r"\s*<(!doctype|html|\?xml)", re.IGNORECASE)
TITLE = re.compile(r"<title[^>]*>([^<]*)</title>", re.IGNORECASE)
CHARS_OF_A_TOKEN = 4
"""About, where a server does not say what it counted."""

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one answer, in seconds."""

    whole: float
    idle: float


class NotUnderstood(Exception):
    """What came is nothing that a model answers; what it is instead."""


@dataclass(slots=True)
class Connections:
    """Those of one task: kept between its questions, so that each does not begin with a handshake. ``close`` lets go of
    them; what is asked afterwards opens them again."""

    _client: httpx2.AsyncClient | None = None
    _made: dict[str, object] = field(default_factory=dict[str, object])

    def client(self, bounds: Bounds) -> httpx2.AsyncClient:
        """Asks for bytes at most ``bounds.idle`` seconds apart."""
        if self._client is None:
            hooks = {"request": [_hurry], "response": [_require_events]}
            self._client = httpx2.AsyncClient(verify=_trust(), timeout=bounds.idle, event_hooks=hooks)
        return self._client

    def made(self, name: str, make: Callable[[], Made]) -> Made:
        """What is made once, over these connections."""
        if name not in self._made:
            self._made[name] = make()
        return cast("Made", self._made[name])

    async def close(self) -> None:
        """Nothing is left of them."""
        client = self._client
        self._client = None
        self._made.clear()
        if client:
            await client.aclose()


async def _hurry(request: httpx2.Request) -> None:
    request.extensions["timeout"] = {**request.extensions.get("timeout", {}), "connect": CONNECT_SECONDS}


async def _require_events(response: httpx2.Response) -> None:
    """Raises NotUnderstood for an answer that ends well and is no stream of events: there is something else at that
    address. Errors say for themselves what is wrong."""
    if response.status_code >= FIRST_ERROR:
        return
    if response.status_code != OK:
        where = response.headers.get("location", "")
        raise NotUnderstood(f"HTTP {response.status_code}" + (f", which leads to {where}" if where else ""))
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in NO_ANSWERS:
        return
    body = b""
    with suppress(httpx2.DecodingError):
        async for part in response.aiter_bytes(READ_BYTES):
            body = part
            break
    raise NotUnderstood(f"{kind}: {said(body.decode(errors='replace'))}" if body else f"{kind}, which is empty")


def said(text: str) -> str:
    """What a body says: the message of an error, the title of a page, or as it is."""
    if PAGE.match(text):
        title = TITLE.search(text)
        return f"a page with the title {title[1].strip()!r}" if title else "a page"
    with suppress(ValueError, RecursionError):
        whole: object = json.loads(text)
        inner = cast("dict[str, object]", whole).get("error") if isinstance(whole, dict) else None
        message = cast("dict[str, object]", inner).get("message") if isinstance(inner, dict) else inner
        return message if isinstance(message, str) and message else text
    return text


@cache
def _trust() -> Any:
    """Whom to trust; 40 ms to make."""
    return httpx2.create_ssl_context()


@asynccontextmanager
async def within(bounds: Bounds) -> AsyncGenerator[Callable[[], None]]:
    """Bounds an answer while it comes; what is yielded is called when something did. Raises TimeoutError, which says
    which bound was passed."""
    clock = asyncio.get_running_loop().time
    whole, silence = asyncio.timeout(bounds.whole), asyncio.timeout(bounds.idle)
    try:
        async with whole, silence:
            yield lambda: silence.reschedule(clock() + bounds.idle)
    except TimeoutError:
        if silence.expired():
            raise TimeoutError(f"nothing was received for {bounds.idle:g} s") from None
        raise TimeoutError(f"the answer was not complete after {bounds.whole:g} s") from None


def result_text(message: Message, model: Model) -> str:
    """What came back, with a word on images that are not shown."""
    if not message.images or model.sees:
        return message.text
    return f"{message.text}\n({len(message.images)} images are not shown: {model.model} is not said to take any)"


def usage_of(model: Model, used: Any, answered_as: str) -> dict[str, Json]:
    """Tokens, those of them that the provider had kept, and dollars where they can be known. ``used`` has
    input_tokens, output_tokens and cache_read_tokens."""
    given, made, kept = used.input_tokens, used.output_tokens, used.cache_read_tokens
    tokens = {"tokens": given + made, "input_tokens": given, "output_tokens": made, "cached_tokens": kept}
    found: dict[str, Json] = {**tokens}
    dollars = cost(model, used, answered_as)
    return found if dollars is None else {**found, "dollars": dollars}


def failed(kind: str, message: str, secrets: Iterable[str], retry_after: float | None = None) -> dict[str, Any]:
    """Why there is no answer, without the ``secrets`` that were sent."""
    message = said(message) if PAGE.match(message) else message
    for secret in filter(None, secrets):
        message = message.replace(secret, "***")
    found: dict[str, Any] = {"kind": kind, "message": message[:MESSAGE_CHARS]}
    return {"error": found | ({"retry_after": retry_after} if retry_after is not None else {})}


@dataclass(frozen=True, slots=True)
class Access:
    """What a model is asked with, known only in this process: its key, and headers with their values."""

    key: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def secrets(self) -> tuple[str, ...]:
        """What is in no message."""
        return self.key, *self.headers.values()
