"""What clients of A2A can ask for, whichever way they ask: done once for both versions and for every binding."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from datetime import UTC
from functools import partial
from typing import Any

from starlette.requests import Request

from ccswarm.errors import SwarmError
from ccswarm.servers.a2a.core.context import DialectContext, needs_token
from ccswarm.servers.a2a.core.task_store import Task
from ccswarm.servers.a2a.standard.card import card_of
from ccswarm.servers.a2a.standard.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    NO_EXTENDED_CARD,
    PUSH_NOT_SUPPORTED,
    UNSUPPORTED,
    Fault,
)
from ccswarm.servers.a2a.standard.runs import Work, until
from ccswarm.servers.a2a.standard.wire import (
    Object,
    Operation,
    Version,
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

WAIT_SECONDS = 50.0
"""Longest wait for a task before the client gets its current state; the task continues."""

log = logging.getLogger(__name__)


def full_card(context: DialectContext, request: Request) -> Object:
    """What whoever asks may know of the swarm, as a person used its configuration last. Raises SwarmError."""
    settings = context.serve_context.options.last().settings
    return card_of(settings, context.url(request), secured=needs_token(request))


def extended_card(context: DialectContext, request: Request) -> Callable[[], Object] | None:
    """None for those to whom the other card says all."""
    return partial(full_card, context, request) if needs_token(request) else None


def fault_of(error: Exception) -> Fault:
    """The error a client gets for an exception."""
    if isinstance(error, Fault):
        return error
    if isinstance(error, SwarmError):
        return Fault(INTERNAL_ERROR, error.message)
    log.error("a request failed", exc_info=error)
    return Fault(INTERNAL_ERROR, type(error).__name__)


class Asked:
    """One request, of an operation in a version; ``card`` gives the card that is not public, where there is one."""

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
        """Of what is answered at once. Raises Fault, SwarmError."""
        match self._operation:
            case "push":
                raise Fault(PUSH_NOT_SUPPORTED)
            case "card" if self._card:
                return self._card()
            case "card":
                raise Fault(NO_EXTENDED_CARD if self._version == "0.3" else UNSUPPORTED, "there is only this card")
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
                    await until(self._tasks, task, WAIT_SECONDS)
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
            raise Fault(UNSUPPORTED, f"it is {task.state.value}: GetTask returns all of it", taskId=task.id)
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
        last = (float(at), number)
    except ValueError:
        raise Fault(INVALID_PARAMS, violations=[("pageToken", "was not issued here")]) from None
    return [task for task in tasks if (task.updated, task.id) < last]


async def stream(
    context: DialectContext, task: Task, version: Version, history: int | None, wrap: Callable[[Object], Object]
) -> AsyncGenerator[tuple[str, Object]]:
    """How it is, then what happens to it until it is over, or the server ends; each passed through ``wrap``."""
    with context.tasks.following(task) as run_events:
        yield "", wrap(wrapped("stream", task_json(task, version, history), version))
        if task.state.over:
            yield "", wrap(status_event(task, version))
        async for run_event in run_events:
            if event := event_json(task, run_event, version):
                yield "", wrap(event)
