"""The operations of A2A clients, shared by both versions and all bindings."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from datetime import UTC
from functools import partial
from typing import Any

from starlette.requests import Request

from ccswarm.errors import SwarmError
from ccswarm.servers.a2a.context import DialectContext, needs_token
from ccswarm.servers.a2a.standard.card import card_of
from ccswarm.servers.a2a.standard.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    NO_EXTENDED_CARD,
    PUSH_NOT_SUPPORTED,
    UNSUPPORTED,
    Fault,
)
from ccswarm.servers.a2a.standard.runs import Work, wait_until_interrupted
from ccswarm.servers.a2a.standard.wire import (
    Object,
    Operation,
    Version,
    event_json,
    most_history,
    parse_list,
    parse_send,
    parse_task_query,
    state_json,
    status_event,
    task_json,
    wrap_task,
)
from ccswarm.servers.a2a.task_store import Task

WAIT_SECONDS = 50.0
"""The longest wait for a task before the client gets its current state; the task continues."""

log = logging.getLogger(__name__)


def full_card(context: DialectContext, request: Request) -> Object:
    """Return the card for authenticated clients, from the configuration as a person used it last. Raises SwarmError."""
    settings = context.serve_context.options.last().settings
    return card_of(settings, context.url(request), secured=needs_token(request))


def extended_card(context: DialectContext, request: Request) -> Callable[[], Object] | None:
    """Return a function that makes the full card; None for clients whose public card is already complete."""
    return partial(full_card, context, request) if needs_token(request) else None


def fault_of(error: Exception) -> Fault:
    """Return the error that a client gets for an exception."""
    if isinstance(error, Fault):
        return error
    if isinstance(error, SwarmError):
        return Fault(INTERNAL_ERROR, error.message)
    log.error("a request failed", exc_info=error)
    return Fault(INTERNAL_ERROR, type(error).__name__)


class ClientRequest:
    """A request for an operation, in a version of the protocol; ``card`` makes the non-public card, if there is one."""

    def __init__(
        self,
        context: DialectContext,
        owner: str,
        version: Version,
        operation: Operation,
        card: Callable[[], Object] | None = None,
    ) -> None:
        self._card = card
        self._work = Work(context, owner)
        self._tasks = context.tasks
        self._version: Version = version
        self._operation: Operation = operation

    async def result(self, params: Any) -> Any:
        """Return the result of an operation without a stream. Raises Fault and SwarmError."""
        match self._operation:
            case "push":
                raise Fault(PUSH_NOT_SUPPORTED)
            case "card" if self._card:
                return self._card()
            case "card":
                raise Fault(NO_EXTENDED_CARD if self._version == "0.3" else UNSUPPORTED, "there is only this card")
            case "list":
                return self._list(params)
            case "get":
                given = parse_task_query(params, self._version)
                task = self._work.find(given.id)
                await self._work.look(task)
                return task_json(task, self._version, given.history_length)
            case "cancel":
                task = self._work.find(parse_task_query(params, self._version).id)
                await self._work.cancel(task)
                return task_json(task, self._version, None)
            case _:
                task, history = await self.task(params)
                if parse_send(params, self._version).waits:
                    await wait_until_interrupted(self._tasks, task, WAIT_SECONDS)
                return wrap_task(self._operation, task_json(task, self._version, history), self._version)

    async def task(self, params: Any) -> tuple[Task, int | None]:
        """Return the started or followed task, and how many of its messages are wanted. Raises Fault, SwarmError."""
        if self._operation != "subscribe":
            given = parse_send(params, self._version)
            wanted = most_history(given.configuration.history_length, self._version)
            return await self._work.begin(given), wanted
        task = self._work.find(parse_task_query(params, self._version).id)
        await self._work.look(task)
        if task.state.over and self._version == "1.0":
            raise Fault(UNSUPPORTED, f"it is {task.state.value}: GetTask returns all of it", taskId=task.id)
        return task, None

    def _list(self, params: Any) -> Object:
        given = parse_list(params)
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
    """Return the tasks after a page."""
    if not token:
        return tasks
    at, _, number = token.partition(":")
    try:
        last = (float(at), number)
    except ValueError:
        raise Fault(INVALID_PARAMS, violations=[("pageToken", "was not issued here")]) from None
    return [task for task in tasks if (task.updated, task.id) < last]


async def stream(
    context: DialectContext, task: Task, version: Version, history: int | None, wrap: Callable[[Object], Object]
) -> AsyncGenerator[tuple[str, Object]]:
    """Yield the task, then its events until it is over or the server ends, each passed through ``wrap``."""
    with context.tasks.follow(task) as run_events:
        yield "", wrap(wrap_task("stream", task_json(task, version, history), version))
        if task.state.over:
            yield "", wrap(status_event(task, version))
        async for run_event in run_events:
            if event := event_json(task, run_event, version):
                yield "", wrap(event)
