"""JSON-RPC 2.0 over HTTP as in AgentVault's tool servers: a method is a tool, its params are the arguments.

The HTTP status depends on the error: 404 for an unknown method, 400 for an invalid request or wrong params, 500
otherwise. A tool's own failure is a result. Calls of a batch are made one after the other.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from agentwire.http.connections import peer_of
from agentwire.http.wire import tokens_in, value_of
from ai_session.errors import AiSessionError, UnknownTool
from ai_session.http.endpoints.base import Front, ServedPath
from ai_session.http.endpoints.rpc_methods import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    LIST,
    METHODS,
    NO_METHOD,
    PARSE_ERROR,
    SESSION,
    UNLISTED,
    OutOfScope,
    Refused,
    call_of,
    described,
    result_for,
)
from ai_session.http.endpoints.tokens import principal_of, token_of
from ai_session.http.guard import OWN, Exchange, MissingScope
from ai_session.models import Principal

if TYPE_CHECKING:
    from agentwire.http.access_token import AccessToken

log = logging.getLogger(__name__)

Message = dict[str, Any]

RPC_PATH = "/rpc"
MAX_BATCH = 20
CLIENT_CHARS = 200
STATUS = {NO_METHOD: 404, PARSE_ERROR: 400, INVALID_REQUEST: 400, INVALID_PARAMS: 400}


class OwnCalls:
    """Marks requests that are this user's own: all without a ``token``; else those that send it, and if connections are
    ``direct``, those of this user's programs that send none."""

    def __init__(self, app: ASGIApp, token: AccessToken | None, *, direct: bool) -> None:
        self._app = app
        self._token = token
        self._direct = direct

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._is_own(scope):
            # It must not be mistaken for the token of a signed-in client.
            headers = [(name, value) for name, value in scope["headers"] if name != b"authorization"]
            scope = {**scope, OWN: True, "headers": headers}
        await self._app(scope, receive, send)

    def _is_own(self, scope: Scope) -> bool:
        headers = scope["headers"]
        if self._token is None or self._token.fits(tokens_in(headers)):
            return True
        signed = bool(value_of(headers, b"authorization"))
        return self._direct and not signed and peer_of(scope) == os.getuid()


class RpcEndpoint:
    """The endpoint at which methods are called. Implements ``Endpoint``.

    Without the front's ``access``, every client acts as this user. With it, only requests with ``token`` do, and if
    connections are direct, those of this user's programs without one.
    """

    advice = (
        "send a token as Authorization: Bearer; the user who started this server gets it with ai-session token, and"
        " others with ai-session http client add"
    )

    def __init__(self, front: Front, token: AccessToken | None = None) -> None:
        settings = front.settings
        self._gate = front.gate
        self._max_body_bytes = settings.max_body_bytes
        self.paths = (ServedPath(RPC_PATH, self._answer_request, ("POST",)),)
        direct = not settings.public_url and not settings.trusted_proxies
        self.middleware = (Middleware(OwnCalls, token=token, direct=direct),) if token or not front.access else ()

    def run(self) -> AbstractAsyncContextManager[None]:
        """Return a context in which nothing of its own runs."""
        return nullcontext()

    def leave(self) -> None:
        """End nothing: no client listens."""

    async def _answer_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one POST; its calls are cancelled if its client disconnects."""
        body = await self._body(scope, receive)
        if body is None:
            return
        if len(body) > self._max_body_bytes:
            error = {"code": INVALID_REQUEST, "message": f"the request is longer than {self._max_body_bytes} bytes"}
            await _send(send, 413, {"jsonrpc": "2.0", "id": None, "error": error})
            return
        answering = asyncio.create_task(self._answer(scope, body))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                await _send(send, *answering.result())
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.wait({answering, leaving})

    async def _body(self, scope: Scope, receive: Receive) -> bytes | None:
        """Return the request's body, or more bytes than allowed; None if the client disconnects before its end."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if len(body) > self._max_body_bytes or not message.get("more_body"):
                return bytes(body)

    async def _answer(self, scope: Scope, body: bytes) -> tuple[int, Any]:
        try:
            request = parse(body)
        except Refused as refused:
            return status_of(refused.error), {"jsonrpc": "2.0", "id": None, "error": refused.error}
        caller = caller_of(scope)
        if isinstance(request, list):
            return await self._batch(caller, request)  # pyright: ignore[reportUnknownArgumentType]
        try:
            answer = await self._one(caller, request)
        except OutOfScope as problem:
            number = request.get("id")
            Exchange.of(scope).missing = MissingScope(problem.required_scope, number, problem.message)
            return 403, None
        return (204, None) if answer is None else (status_of(answer.get("error")), answer)

    async def _batch(self, principal: Principal, request: list[Any]) -> tuple[int, Any]:
        if not request or len(request) > MAX_BATCH:
            message = f"Invalid Request: a batch must have 1 to {MAX_BATCH} requests"
            error = {"code": INVALID_REQUEST, "message": message}
            return 400, {"jsonrpc": "2.0", "id": None, "error": error}
        answers = [await self._member(principal, each) for each in request]
        given = [answer for answer in answers if answer is not None]
        return (200, given) if given else (204, None)

    async def _member(self, principal: Principal, message: Any) -> Message | None:
        """Answer one request of a batch, whatever scopes the token lacks for the others."""
        try:
            return await self._one(principal, message)
        except OutOfScope as problem:
            return {"jsonrpc": "2.0", "id": message["id"], "result": problem.result} if "id" in message else None

    async def _one(self, principal: Principal, message: Any) -> Message | None:
        """Return the answer to one request, or None for a notification. Raises OutOfScope."""
        number = message.get("id") if isinstance(message, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        answer: Message = {"jsonrpc": "2.0", "id": number if is_id(number) else None}
        try:
            method, params = checked(message)
        except Refused as refused:
            return answer | {"error": refused.error}
        try:
            answer["result"] = await self._result(principal, method, params)
        except Refused as refused:
            answer["error"] = refused.error
        except AiSessionError as error:
            answer["error"] = {"code": INTERNAL_ERROR, "message": f"Internal error: {error.message}"}
        except OutOfScope:
            raise
        except Exception as error:
            log.error("%s failed", method[:80], exc_info=error)
            answer["error"] = {"code": INTERNAL_ERROR, "message": "Internal error"}
        return answer if "id" in message else None

    async def _result(self, principal: Principal, method: str, params: Any) -> Message:
        unknown = Refused(NO_METHOD, f"Method not found: {method[:80]}")
        if not (method == LIST or method in METHODS or method.startswith(SESSION)):
            raise unknown
        if not isinstance(params, dict):
            raise Refused(INVALID_PARAMS, "Invalid params: must be an object with named arguments")
        if method == LIST:
            return {"tools": described(await self._gate.list_tools(principal, UNLISTED))}
        call = call_of(principal, method, params)  # pyright: ignore[reportUnknownArgumentType]
        try:
            return result_for(method, call, await self._gate.call(call))
        except UnknownTool:
            raise unknown from None


def parse(body: bytes) -> Any:
    """Return the JSON value of a request, with its numbers unchanged. Raises Refused."""
    try:
        return json.loads(body.decode(), parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        raise Refused(PARSE_ERROR, "Parse error") from None


def _reject_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def is_id(value: Any) -> bool:
    """Report whether a value is valid as a request's id."""
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or (isinstance(value, (str, int)) and not isinstance(value, bool))


def checked(message: Any) -> tuple[str, Any]:
    """Return the method and params of a request. Raises Refused."""
    request: Message = message if isinstance(message, dict) else {}  # pyright: ignore[reportUnknownVariableType]
    method: Any = request.get("method")
    params: Any = request.get("params")
    problem = ""
    if not isinstance(message, dict):
        problem = "it is not an object"
    elif request.get("jsonrpc") != "2.0":
        problem = 'jsonrpc is not "2.0"'
    elif not is_id(request.get("id")):
        problem = "id is neither a string nor a number"
    elif not isinstance(params, (dict, list, type(None))):
        problem = "params are neither object nor list"
    if problem or not isinstance(method, str):
        raise Refused(INVALID_REQUEST, f"Invalid Request: {problem or 'method is not a string'}")
    return method, {} if params is None else params  # pyright: ignore[reportUnknownVariableType]


def status_of(error: Message | None) -> int:
    """Return the HTTP status for an answer's error."""
    return STATUS.get(error["code"], 500) if error else 200


def caller_of(scope: Scope) -> Principal:
    """Return the principal for whom the request's token was issued, with the client's own name."""
    headers: dict[bytes, bytes] = dict(scope["headers"])
    client = headers.get(b"user-agent", b"").decode("ascii", "replace").partition("/")[0][:CLIENT_CHARS]
    assert scope.get(OWN) or token_of(scope), "the HTTP server lets only known clients and this user through"
    return principal_of(scope, client)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(send: Send, status: int, message: Any) -> None:
    body = b"" if message is None else encoded(message)
    headers = [(b"content-length", str(len(body)).encode())] if status != 204 else []
    if body:
        headers.append((b"content-type", b"application/json"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def encoded(message: Any) -> bytes:
    """Return JSON text. A lone surrogate, which is not valid UTF-8, stays an escape."""
    try:
        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(message, separators=(",", ":")).encode()
