"""A2A 0.3 and 1.0: the swarm as an agent that takes tasks over JSON-RPC, and with 1.0 over plain HTTP too. The name of
a method determines the version; both are served at one address."""

from __future__ import annotations

import logging
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ccswarm.errors import SwarmError
from ccswarm.servers.a2a.context import PRIVATE, DialectContext, caller_of, is_known
from ccswarm.servers.a2a.http import Unreadable, json_response, read_json, stream_response
from ccswarm.servers.a2a.standard import rest
from ccswarm.servers.a2a.standard.card import public_card, tag_of
from ccswarm.servers.a2a.standard.errors import INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, Fault
from ccswarm.servers.a2a.standard.operations import ClientRequest, extended_card, fault_of, full_card, stream
from ccswarm.servers.a2a.standard.runs import resume
from ccswarm.servers.a2a.standard.wire import METHODS, VERSION, Object, check_version

PATH = "/"
OPEN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""The paths of the cards, which need no token."""
CARD_SECONDS = 60
"""For how many seconds clients may cache a card."""

log = logging.getLogger(__name__)


def routes(context: DialectContext) -> list[Route]:
    """Return the routes. From here on, tasks that were unfinished when the server ended are followed again."""
    resume(context)

    async def card(request: Request) -> Response:
        return _card(context, request)

    async def rpc(request: Request) -> Response:
        return await _rpc(context, request)

    cards = [Route(path, card) for path in OPEN]
    return [Route(PATH, rpc, methods=["POST"]), *cards, *rest.routes(context)]


def _card(context: DialectContext, request: Request) -> Response:
    try:
        card = full_card(context, request) if is_known(request) else public_card(context.url(request))
    except SwarmError as error:
        log.error("no card can be made: %s", error.message)
        return json_response({"error": "the configuration cannot be used"}, 500)
    headers = {**PRIVATE, "ETag": tag_of(card), "Cache-Control": f"private, max-age={CARD_SECONDS}"}
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    return json_response(card, headers=headers)


async def _rpc(context: DialectContext, request: Request) -> Response:
    """Answer a request. The status is 200, except for a request that could not be read."""
    number: str | int | None = None
    try:
        message = await read_json(request)
        number = _id_of(message)
        method, params = _request(message)
        check_version(request.headers.get(VERSION) or request.query_params.get(VERSION) or "")
        if method not in METHODS:
            raise Fault(METHOD_NOT_FOUND, repr(method[:80]))
        version, operation = METHODS[method]
        asked = ClientRequest(context, caller_of(request), version, operation, extended_card(context, request))
        if operation in ("stream", "subscribe"):
            task, history = await asked.task(params)
            return stream_response(
                stream(context, task, version, history, lambda event: _response(number, result=event))
            )
        return json_response(_response(number, result=await asked.result(params)))
    except Unreadable as error:
        fault = Fault(PARSE_ERROR if error.status == 400 else INVALID_REQUEST, error.why)
        return json_response(_response(None, error=fault.to_json()), 200 if error.status == 400 else error.status)
    except Exception as error:
        return json_response(_response(number, error=fault_of(error).to_json()))


def _response(number: str | int | None, **content: Any) -> Object:
    return {"jsonrpc": "2.0", "id": number, **content}


def _id_of(message: Any) -> str | int | None:
    """Return the request's id for the response; None if it is unusable."""
    number = cast("Object", message).get("id") if isinstance(message, dict) else None
    return number if isinstance(number, (str, int)) and not isinstance(number, bool) else None


def _request(message: Any) -> tuple[str, Any]:
    """Return method and params. Raises Fault."""
    if isinstance(message, list):
        raise Fault(INVALID_REQUEST, "batches are not supported")
    if not isinstance(message, dict):
        raise Fault(INVALID_REQUEST, "not an object")
    given = cast("Object", message)
    method = given.get("method")
    if given.get("jsonrpc") != "2.0":
        raise Fault(INVALID_REQUEST, 'jsonrpc must be "2.0"')
    if _id_of(given) is None:
        raise Fault(INVALID_REQUEST, "id must be a string or an integer")
    if not isinstance(method, str):
        raise Fault(INVALID_REQUEST, "method must be a string")
    return method, given.get("params") or {}
