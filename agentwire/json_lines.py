"""JSON-RPC messages read from and written as lines. No I/O, no protocol beyond JSON-RPC.

An invalid line has no effect on others: it is answered with the id that it seems to carry, so that no client waits for
ever, and reading continues with the next line.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn, cast

KEPT_BYTES = 4096
"""The size of either end of an overlong line that is stored: enough to find its id."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600

HEADER_LINE = re.compile(rb"[A-Za-z][A-Za-z-]*: [^{}\[\]]*\Z")
"""`Content-Length: 120`: one client tries this framing if it gets no response in time."""

ID = rb'"id"\s*:\s*(-?\d{1,18}(?![\d.eE])|"(?:[^"\\\x00-\x1f]|\\.){0,200}")'
ID_AT_START = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + ID)
ID_AT_END = re.compile(ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')

Message = dict[str, Any]


class Refused(Exception):
    """A line that is not a usable message. ``answers`` are the error responses to send, none for a notification."""

    def __init__(self, *answers: Message) -> None:
        super().__init__("refused line")
        self.answers = answers


class LineReader:
    """A buffer of bounded size that splits a byte stream into lines."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._searched = 0
        self._too_long = False

    @property
    def held_bytes(self) -> int:
        """The size of the unfinished line in memory."""
        return len(self._buffer)

    def feed(self, chunk: bytes) -> Iterator[bytes | Refused]:
        """Yield the lines that this chunk completes, without their newline; a Refused for each that was too long."""
        buffer = self._buffer
        buffer += chunk
        start = 0
        while (end := buffer.find(b"\n", max(start, self._searched))) >= 0:
            line = bytes(buffer[start:end])
            start = end + 1
            if self._too_long or len(line) > self._limit:
                self._too_long = False
                yield Refused(error(recover_id(line), INVALID_REQUEST, f"Line longer than {self._limit} bytes"))
            else:
                yield line
        del buffer[:start]
        if len(buffer) > self._limit or self._too_long:
            self._too_long = True
            del buffer[KEPT_BYTES:-KEPT_BYTES]
        self._searched = len(buffer)


def parse(line: bytes) -> Message | None:
    """Return the message on a line: a request with a usable id, a notification, or (without a method) the response to a
    request. None for a line that needs no reaction. Raises Refused."""
    try:
        message = DECODER.decode(line.decode())
        if b"\\ud" in line or b"\\uD" in line:
            encode(message, errors="strict")
    except RecursionError:
        raise Refused(error(recover_id(line), INVALID_REQUEST, "Message nested too deeply")) from None
    except ValueError as problem:
        if not line.strip() or HEADER_LINE.match(line.strip()):
            return None
        raise Refused(error(recover_id(line), PARSE_ERROR, f"Parse error: {_plain(problem)}")) from None
    if isinstance(message, list):
        raise _batch(message)  # pyright: ignore[reportUnknownArgumentType]
    if not isinstance(message, dict):
        raise Refused(error(None, INVALID_REQUEST, "Invalid request: not an object"))
    return _checked(message)  # pyright: ignore[reportUnknownArgumentType]


def _checked(message: Message) -> Message | None:
    method = message.get("method")
    if "id" not in message:
        usable = isinstance(method, str) and isinstance(message.get("params", {}), dict)
        return message if usable else None
    request_id = message["id"]
    usable = isinstance(request_id, (int, str)) and not isinstance(request_id, bool)
    if method is None and ("result" in message or "error" in message):
        return message if usable else None
    if not usable:
        echoed = request_id if isinstance(request_id, float) else None
        raise Refused(error(echoed, INVALID_REQUEST, "Invalid request: id must be a string or an integer"))
    if message.get("jsonrpc") != "2.0":
        raise Refused(error(request_id, INVALID_REQUEST, 'Invalid request: jsonrpc must be "2.0"'))
    if not isinstance(method, str):
        raise Refused(error(request_id, INVALID_REQUEST, "Invalid request: method must be a string"))
    if message.get("params") is None:
        message.pop("params", None)
    elif not isinstance(message["params"], dict):
        raise Refused(error(request_id, INVALID_REQUEST, "Invalid request: params must be an object"))
    return message


def _batch(messages: list[Any]) -> Refused:
    """Refuse each request of a batch under its own id, because the sender waits for each."""
    objects: list[Message] = [message for message in messages if isinstance(message, dict)]
    ids: list[Any] = [message["id"] for message in objects if isinstance(message.get("id"), (int, str))]
    return Refused(*(error(i, INVALID_REQUEST, "Batches are not supported") for i in ids or [None]))


def recover_id(line: bytes) -> int | str | None:
    """Return the id of a message that cannot be parsed, if it is near the start or the end, where clients write it."""
    found = ID_AT_START.match(line[:KEPT_BYTES]) or ID_AT_END.search(line[-KEPT_BYTES:])
    if not found:
        return None
    try:
        request_id: int | str = json.loads(found[1])
        encode({"id": request_id}, errors="strict")
    except ValueError:
        return None
    return request_id


def error(request_id: float | str | None, code: int, message: str) -> Message:
    """Return an error response."""
    return {"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}}


def encode(message: Message, errors: str = "replace") -> bytes:
    """Return one line. Unpaired surrogates become ``?``: an escaped one makes five of thirteen clients hang or crash.

    Raises ValueError for values that JSON cannot represent, and for unpaired surrogates with ``errors="strict"``.
    """
    return ENCODER.encode(message).encode(errors=errors) + b"\n"


def scrub(value: Any) -> Any:
    """Return the value without lone surrogates, which the SDK refuses and on which clients hang."""
    if isinstance(value, str):
        if value.isascii():
            return value
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value
    if isinstance(value, dict):
        pairs = cast(dict[Any, Any], value)
        return {
            # Most are ASCII, and each call of this function would take as long as all the rest.
            name if name.__class__ is str and name.isascii() else scrub(name): (
                item if item.__class__ is int or (item.__class__ is str and item.isascii()) else scrub(item)
            )
            for name, item in pairs.items()
        }
    if isinstance(value, (list, tuple)):
        return [scrub(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An ``object_pairs_hook``. Raises ValueError for a duplicate key, whose other value would be lost."""
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a JSON object has a duplicate key")
    return table


def _plain(problem: ValueError) -> str:
    return "not UTF-8" if isinstance(problem, UnicodeError) else str(problem).partition(":")[0]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError("a number is too large")
    return number


DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
