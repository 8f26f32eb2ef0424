"""A2A 1.0 over plain HTTP: operations by path, and errors by HTTP status."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ccswarm.servers.a2a.context import DialectContext, caller_of
from ccswarm.servers.a2a.http import Unreadable, read_json, stream_response, to_bytes
from ccswarm.servers.a2a.standard.errors import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, Fault
from ccswarm.servers.a2a.standard.operations import ClientRequest, extended_card, fault_of, stream
from ccswarm.servers.a2a.standard.wire import VERSION, Object, Operation, check_version

MEDIA_TYPE = "application/a2a+json"
PATHS: tuple[tuple[str, tuple[str, ...], Operation], ...] = (
    ("/message:send", ("POST",), "send"),
    ("/message:stream", ("POST",), "stream"),
    ("/tasks", ("GET",), "list"),
    ("/tasks/{id}:cancel", ("POST",), "cancel"),
    ("/tasks/{id}:subscribe", ("GET", "POST"), "subscribe"),
    ("/tasks/{id}", ("GET",), "get"),
    ("/tasks/{id}/pushNotificationConfigs", ("GET", "POST"), "push"),
    ("/tasks/{id}/pushNotificationConfigs/{config}", ("GET", "DELETE"), "push"),
    ("/extendedAgentCard", ("GET",), "card"),
)
"""Paths with their HTTP methods; the first that matches applies."""
NUMBERS, BOOLEANS = ("historyLength", "pageSize"), ("includeArtifacts",)
"""The query parameters that are not strings."""


def routes(context: DialectContext) -> list[Route]:
    """Return a route for each operation."""

    def endpoint(operation: Operation) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return await _answer(context, request, operation)

        return answer

    return [Route(path, endpoint(operation), methods=list(methods)) for path, methods, operation in PATHS]


async def _answer(context: DialectContext, request: Request, operation: Operation) -> Response:
    try:
        check_version(request.headers.get(VERSION) or request.query_params.get(VERSION) or "", ("1.0",))
        params = {**await _params(request, operation), **request.path_params}
        asked = ClientRequest(context, caller_of(request), "1.0", operation, extended_card(context, request))
        if operation in ("stream", "subscribe"):
            task, history = await asked.task(params)
            return stream_response(stream(context, task, "1.0", history, lambda event: event))
        return _json_response(await asked.result(params))
    except Unreadable as error:
        fault = Fault(PARSE_ERROR if error.status == 400 else INVALID_REQUEST, error.why)
        return _json_response(fault.to_status(), error.status)
    except Exception as error:
        fault = fault_of(error)
        return _json_response(fault.to_status(), fault.status)


async def _params(request: Request, operation: Operation) -> Object:
    """Return the parameters from the body, or else from the query. Raises Fault and Unreadable."""
    if operation in ("send", "stream"):
        params = await read_json(request)
        if not isinstance(params, dict):
            raise Fault(INVALID_PARAMS, violations=[("", "the body must be an object")])
        return params  # pyright: ignore[reportUnknownVariableType]
    found: Object = {}
    for name, value in request.query_params.items():
        if name in NUMBERS and value.removeprefix("-").isdecimal() and len(value) < 12:
            found[name] = int(value)
        elif name in BOOLEANS and value in ("true", "false"):
            found[name] = value == "true"
        else:
            found[name] = value
    return found


def _json_response(value: Any, status: int = 200) -> Response:
    return Response(to_bytes(value), status, media_type=MEDIA_TYPE)
