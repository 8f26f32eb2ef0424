"""A2A 0.3 and 1.0 over JSON-RPC: the swarm as an agent that others give tasks.

The name of a method says which version is spoken; both are served at one address, and what they have in common is done
once.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from datetime import UTC
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ccswarm import config
from ccswarm.errors import SwarmError
from ccswarm.servers.a2a_desk import Desk
from ccswarm.servers.a2a_http import Unreadable, answered, read_json, streamed
from ccswarm.servers.a2a_standard_card import card_of, tag_of
from ccswarm.servers.a2a_standard_faults import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NO_EXTENDED_CARD,
    PARSE_ERROR,
    PUSH_NOT_SUPPORTED,
    UNSUPPORTED,
    Fault,
)
from ccswarm.servers.a2a_standard_wire import (
    METHODS,
    Object,
    Operation,
    Version,
    check_version,
    event_json,
    listed,
    most_history,
    named,
    sent,
    state_json,
    status_event,
    task_json,
    wrapped,
)
from ccswarm.servers.a2a_standard_work import Work, resume
from ccswarm.servers.a2a_tasks import Task

PATH = "/"
OPEN = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Paths that need no token: the cards."""
VERSION = "A2A-Version"
CARD_SECONDS = 60
"""How old a card may be that a client has kept."""
WAIT_SECONDS = 50.0
"""Longest wait for a task before the client is told how it is; it goes on."""

log = logging.getLogger(__name__)


def routes(desk: Desk) -> list[Route]:
    """What it answers; tasks that were not over when the server ended are looked after from here on."""
    resume(desk)

    async def card(request: Request) -> Response:
        return _card(desk, request)

    async def rpc(request: Request) -> Response:
        return await _rpc(desk, request)

    return [Route(PATH, rpc, methods=["POST"]), *(Route(path, card) for path in OPEN)]


def _card(desk: Desk, request: Request) -> Response:
    try:
        settings = config.load(desk.grounds.entrance.config).settings
    except SwarmError as error:
        return answered({"error": error.message}, 500)
    card = card_of(settings, desk.url(request, PATH), secured=desk.secured)
    headers = {"ETag": tag_of(card), "Cache-Control": f"max-age={CARD_SECONDS}"}
    if headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(None, 304, headers)
    return answered(card, headers=headers)


async def _rpc(desk: Desk, request: Request) -> Response:
    """One request. Answers are HTTP's 200 whatever they say, but where the request could not be read."""
    number: str | int | None = None
    try:
        try:
            message = await read_json(request)
        except Unreadable as error:
            fault = Fault(PARSE_ERROR if error.status == 400 else INVALID_REQUEST, error.why)
            return answered(_response(None, error=fault.to_json()), 200 if error.status == 400 else error.status)
        number = _id_of(message)
        method, params = _request(message)
        check_version(request.headers.get(VERSION) or request.query_params.get(VERSION) or "")
        if method not in METHODS:
            raise Fault(METHOD_NOT_FOUND, repr(method[:80]))
        version, operation = METHODS[method]
        asked = Asked(Work(desk, str(request.scope.get("owner", ""))), version, operation)
        if operation in ("stream", "subscribe"):
            task, history = await asked.task(params)
            return streamed(_stream(desk, task, version, history, number))
        return answered(_response(number, result=await asked.result(params)))
    except Fault as fault:
        return answered(_response(number, error=fault.to_json()))
    except SwarmError as error:
        return answered(_response(number, error=Fault(INTERNAL_ERROR, error.message).to_json()))
    except Exception as error:
        log.exception("a request failed")
        return answered(_response(number, error=Fault(INTERNAL_ERROR, type(error).__name__).to_json()))


def _response(number: str | int | None, **content: Any) -> Object:
    return {"jsonrpc": "2.0", "id": number, **content}


def _id_of(message: Any) -> str | int | None:
    """What the answer is to be called; None where that is not usable."""
    number = cast("Object", message).get("id") if isinstance(message, dict) else None
    return number if isinstance(number, (str, int)) and not isinstance(number, bool) else None


def _request(message: Any) -> tuple[str, Any]:
    """Method and params. Raises Fault."""
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


class Asked:
    """One request, of an operation in a version."""

    def __init__(self, work: Work, version: Version, operation: Operation) -> None:
        self._work = work
        self._version: Version = version
        self._operation: Operation = operation

    async def result(self, params: Any) -> Any:
        """Of what is answered at once. Raises Fault, SwarmError."""
        match self._operation:
            case "push":
                raise Fault(PUSH_NOT_SUPPORTED)
            case "card":
                raise Fault(NO_EXTENDED_CARD if self._version == "0.3" else UNSUPPORTED, "the card is all there is")
            case "list":
                return self._listed(params)
            case "get":
                given = named(params, self._version)
                task = self._work.find(given.id)
                await self._work.look(task)
                return task_json(task, self._version, given.history_length)
            case "cancel":
                task = self._work.find(named(params, self._version).id)
                await self._work.cancel(task)
                return task_json(task, self._version, None)
            case _:
                task, history = await self.task(params)
                if sent(params, self._version).waits:
                    await self._work.until(task, WAIT_SECONDS)
                return wrapped(self._operation, task_json(task, self._version, history), self._version)

    async def task(self, params: Any) -> tuple[Task, int | None]:
        """The one that a message is for, or that is followed, and how much of its history is wanted. Raises Fault,
        SwarmError."""
        if self._operation != "subscribe":
            given = sent(params, self._version)
            wanted = most_history(given.configuration.history_length, self._version)
            return await self._work.begin(given), wanted
        task = self._work.find(named(params, self._version).id)
        await self._work.look(task)
        if task.state.over and self._version == "1.0":
            raise Fault(UNSUPPORTED, f"it is {task.state.value}: GetTask has all of it", taskId=task.id)
        return task, None

    def _listed(self, params: Any) -> Object:
        given = listed(params)
        after = given.status_timestamp_after
        since = after and (after if after.tzinfo else after.replace(tzinfo=UTC))
        found = [
            task
            for task in self._work.all()
            if given.context_id in ("", task.context)
            and given.status in ("", state_json(task.state, self._version))
            and (since is None or task.updated >= since.timestamp())
        ]
        page = _after(found, given.page_token)
        shown = page[: given.page_size]
        last = shown[-1] if len(page) > len(shown) else None
        return {
            "tasks": [
                task_json(task, self._version, given.history_length, artifacts=given.include_artifacts)
                for task in shown
            ],
            "nextPageToken": f"{last.updated!r}:{last.id}" if last else "",
            "pageSize": given.page_size,
            "totalSize": len(found),
        }


def _after(tasks: list[Task], token: str) -> list[Task]:
    """Those that come after a page."""
    if not token:
        return tasks
    at, _, number = token.partition(":")
    try:
        place = (float(at), number)
    except ValueError:
        raise Fault(INVALID_PARAMS, violations=[("pageToken", "is none that was given here")]) from None
    return [task for task in tasks if (task.updated, task.id) < place]


async def _stream(
    desk: Desk, task: Task, version: Version, history: int | None, number: str | int | None
) -> AsyncGenerator[tuple[str, Object]]:
    """How it is, then what happens to it until it is over, or the server ends."""
    with desk.tasks.following(task) as happenings:
        yield "", _response(number, result=wrapped("stream", task_json(task, version, history), version))
        if task.state.over:
            yield "", _response(number, result=status_event(task, version))
        async for happening in happenings:
            if event := event_json(task, happening, version):
                yield "", _response(number, result=event)
