"""AgentVault's profile of A2A: single calls of tools by a configured agent."""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncGenerator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ccswarm.errors import SwarmError
from ccswarm.servers.a2a.agentvault.calls import PROFILE, Calls
from ccswarm.servers.a2a.agentvault.card import card_of
from ccswarm.servers.a2a.agentvault.wire import (
    AGENT_ERROR,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    STATES,
    TASK_NOT_FOUND,
    Facts,
    Fault,
    call_from,
    event_of,
    id_of,
    message_of,
    request_of,
    task_id_of,
    task_json,
    time_of,
)
from ccswarm.servers.a2a.context import PRIVATE, DialectContext, caller_of, is_known, needs_token
from ccswarm.servers.a2a.http import Unreadable, json_response, read_json, stream_response
from ccswarm.servers.a2a.task_store import Task

PATHS = ("/a2a", "/a2a/")
CARD = "/agent-card.json"
OPEN = (CARD,)
SUBSCRIBE = "tasks/sendSubscribe"
STREAM = "text/event-stream"

log = logging.getLogger(__name__)


def routes(context: DialectContext) -> list[Route]:
    """Return the routes. From here on, tasks that were unfinished when the server ended continue."""
    proxy = Proxy(context)
    return [Route(CARD, proxy.card), *(Route(path, proxy.answer, methods=["POST"]) for path in PATHS)]


class Proxy:
    """The endpoints."""

    def __init__(self, context: DialectContext) -> None:
        self._context = context
        self._calls = Calls(context)
        self._calls.resume()

    async def card(self, request: Request) -> Response:
        """Return the card."""
        settings = self._context.serve_context.app.settings if is_known(request) else None
        return json_response(
            card_of(settings, self._context.url(request, PATHS[0]), secured=needs_token(request)), headers=PRIVATE
        )

    async def answer(self, request: Request) -> Response:
        """Answer a request. Errors that JSON-RPC defines are answered with status 200."""
        try:
            message = await read_json(request)
        except Unreadable as problem:
            code, status = (PARSE_ERROR, 200) if problem.status == 400 else (INVALID_REQUEST, problem.status)
            return json_response(_error(None, Fault(code, f"Parse error: {problem.why}")), status)
        number = id_of(message)
        try:
            method, params = request_of(message)
            if method == SUBSCRIBE:
                return self._subscribe(request, number, params)
            return json_response(
                {"jsonrpc": "2.0", "id": number, "result": await self._result(request, method, params)}
            )
        except Fault as fault:
            return json_response(_error(number, fault))
        except SwarmError as error:
            return json_response(_error(number, Fault(AGENT_ERROR, f"Agent error: {error.message}")))
        except Exception as error:
            log.exception("a request failed")
            return json_response(
                _error(number, Fault(INTERNAL_ERROR, f"Internal server error: {type(error).__name__}"))
            )

    async def _result(self, request: Request, method: str, params: Facts) -> Any:
        match method:
            case "tasks/send":
                return {"id": self._send(request, params).id}
            case "tasks/get":
                return task_json(self._find(request, params))
            case "tasks/cancel":
                task = self._find(request, params)
                done = await self._calls.cancel(task)
                return {"success": done, "message": None if done else f"the task is {STATES[task.state]}"}
            case _:
                raise Fault(METHOD_NOT_FOUND, "Method not found")

    def _send(self, request: Request, params: Facts) -> Task:
        message = message_of(params)
        if params.get("id") is not None:
            task = self._find(request, params)
            raise Fault(
                AGENT_ERROR, f"Agent error: a task is one call: {task.id} cannot be continued, start another one"
            )
        call_from(message)
        self._calls.check()
        if self._context.closing.is_set():
            raise Fault(AGENT_ERROR, "Agent error: the server is ending")
        number = f"mcp-proxy-{secrets.token_hex(16)}"
        task = self._context.tasks.begin(PROFILE, number, context=caller_of(request), messages=[message])
        self._context.carry(number, self._calls.carry(task))
        return task

    def _find(self, request: Request, params: Facts) -> Task:
        number = task_id_of(params)
        task = self._context.tasks.find(PROFILE, number)
        if task is None or task.context != caller_of(request):
            raise Fault(TASK_NOT_FOUND, f"Task not found: {number[:100]}")
        return task

    def _subscribe(self, request: Request, number: str | int | None, params: Facts) -> Response:
        try:
            return stream_response(self._events(self._find(request, params)))
        except Fault as fault:
            if STREAM not in request.headers.get("accept", "") or fault.code != TASK_NOT_FOUND:
                raise
            # These clients read only events here, and would take any other response for the end of the task.
            return stream_response(_single_event("error", {"error": "task_not_found", "message": fault.message}))

    async def _events(self, task: Task) -> AsyncGenerator[tuple[str, Any]]:
        """Yield the task's messages and state, then its events until it is over."""
        with self._context.tasks.follow(task) as run_events:
            for message in task.messages[1:]:
                about = {"taskId": task.id, "message": message, "timestamp": time_of(task.updated)}
                yield "task_message", about
            state = {"state": STATES[task.state], "message": task.said}
            over = task.state.over
            yield "task_status", {"taskId": task.id, **state, "timestamp": time_of(task.updated)}
            async for run_event in run_events:
                over = run_event.state.over
                yield event_of(task, run_event)
            if not over:
                yield "error", {"error": "stream_ended", "message": "the server is ending: use tasks/get later"}


async def _single_event(name: str, facts: Facts) -> AsyncGenerator[tuple[str, Any]]:
    yield name, facts


def _error(number: str | int | None, fault: Fault) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": fault.to_json()}
