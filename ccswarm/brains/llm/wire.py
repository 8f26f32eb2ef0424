"""What the APIs of all models share: connections, time limits, usage and failures."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from copy import copy
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
"""How much is read of a response that is not an answer."""
NO_ANSWERS = ("text/html", "application/json", "application/xml", "text/xml")
"""Content types that are never a stream of events."""
PAGE = re.compile(r"\s*<(!doctype|html|\?xml)", re.IGNORECASE)
TITLE = re.compile(r"<title[^>]*>([^<]*)</title>", re.IGNORECASE)
CHARS_OF_A_TOKEN = 4
"""The approximate length of a token, for servers that do not count."""

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The time limits of one answer, in seconds."""

    whole: float
    idle: float


class NotUnderstood(Exception):
    """The response is not a model's answer. The message says what it is."""


@dataclass(slots=True)
class Connections:
    """The connections of one task, reused to avoid handshakes. After ``close`` the next request opens new ones."""

    _client: httpx2.AsyncClient | None = None
    _made: dict[str, object] = field(default_factory=dict[str, object])

    def client(self, bounds: Bounds) -> httpx2.AsyncClient:
        """Return the HTTP client, which waits at most ``bounds.idle`` seconds for bytes."""
        if self._client is None:
            hooks = {"request": [_limit_connect_time], "response": [_require_events]}
            self._client = httpx2.AsyncClient(verify=_tls_context(), timeout=bounds.idle, event_hooks=hooks)
        return self._client

    def get(self, name: str, make: Callable[[], Made]) -> Made:
        """Return what ``make`` creates, once for each name."""
        if name not in self._made:
            self._made[name] = make()
        return cast("Made", self._made[name])

    async def close(self) -> None:
        """Close the connections."""
        client = self._client
        self._client = None
        self._made.clear()
        if client:
            await client.aclose()


async def _limit_connect_time(request: httpx2.Request) -> None:
    request.extensions["timeout"] = {**request.extensions.get("timeout", {}), "connect": CONNECT_SECONDS}


async def _require_events(response: httpx2.Response) -> None:
    """Raise NotUnderstood for a successful response that is not a stream of events: another service answers."""
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
    raise NotUnderstood(f"{kind}: {body_message(body.decode(errors='replace'))}" if body else f"{kind}, which is empty")


def body_message(text: str) -> str:
    """Return the message in a body: that of an error, the title of a page, or the text itself."""
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
def _tls_context() -> Any:
    """Return the TLS context, which takes 40 ms to create."""
    return httpx2.create_ssl_context()


@asynccontextmanager
async def time_limits(bounds: Bounds) -> AsyncGenerator[Callable[[], None]]:
    """Limit the time of an answer. Yields a function to call whenever something is received. Raises TimeoutError, whose
    message says which limit was exceeded."""
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
    """Return the text of a result, with a note about images that are not shown."""
    if not message.images or model.sees:
        return message.text
    return f"{message.text}\n({len(message.images)} images are not shown: {model.model} is not said to take any)"


def make_usage(model: Model, used: Any, answered_as: str) -> dict[str, Json]:
    """Return tokens and known dollars of ``used``, a usage with tokens of input, output and cache."""
    given = used.input_tokens
    made = used.output_tokens
    kept = used.cache_read_tokens or 0
    if (cached := kept + (used.cache_write_tokens or 0)) > given:  # some gateways do not count it as input
        given += cached
        used = copy(used)
        used.input_tokens = given
    tokens = {"tokens": given + made, "input_tokens": given, "output_tokens": made, "cached_tokens": kept}
    found: dict[str, Json] = {**tokens}
    dollars = cost(model, used, answered_as)
    return found if dollars is None else {**found, "dollars": dollars}


def failure(kind: str, message: str, secrets: Iterable[str], retry_after: float | None = None) -> dict[str, Any]:
    """Return a failure without the ``secrets`` that were sent."""
    message = body_message(message) if PAGE.match(message) else message
    for secret in filter(None, secrets):
        message = message.replace(secret, "***")
    found: dict[str, Any] = {"kind": kind, "message": message[:MESSAGE_CHARS]}
    return {"error": found | ({"retry_after": retry_after} if retry_after is not None else {})}


@dataclass(frozen=True, slots=True)
class Access:
    """The credentials for a model, which only this process has: its key, and headers with their values."""

    key: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that no message may contain."""
        return self.key, *self.headers.values()
