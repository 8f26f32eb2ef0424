"""The tasks of A2A's clients: begun by messages, waited for, cancelled. Each is a run of the swarm."""

from __future__ import annotations

import asyncio
import hashlib
import json
from contextlib import suppress
from uuid import uuid4

from ccswarm.config.settings import Settings
from ccswarm.errors import BudgetExhausted, PlanInvalid, RunNotFound, SwarmError
from ccswarm.models import RunStatus
from ccswarm.plan.origin import Origin
from ccswarm.runs import service
from ccswarm.servers.a2a.core.context import DialectContext
from ccswarm.servers.a2a.core.task_store import State, Task, Tasks
from ccswarm.servers.a2a.standard.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    PUSH_NOT_SUPPORTED,
    TASK_NOT_CANCELABLE,
    TASK_NOT_FOUND,
    UNSUPPORTED,
    Fault,
)
from ccswarm.servers.a2a.standard.progress import Follower, said
from ccswarm.servers.a2a.standard.requests import accepted, chosen, in_words, plan_in, planned, refused
from ccswarm.servers.a2a.standard.wire import Object, Sent

PROFILE = "standard"
CHECK_SECONDS = 35.0
"""Longest look at the servers before a run starts."""
STOP_SECONDS = 10.0
"""Seconds that work may take to stop before it is cancelled."""
INTERRUPTED = (State.INPUT_REQUIRED, State.AUTH_REQUIRED)


class Work:
    """What those ask of the swarm who show one token, called ``owner``: nobody else finds their tasks."""

    def __init__(self, context: DialectContext, owner: str) -> None:
        self._context = context
        self._tasks = context.tasks
        self._app = context.serve_context.app
        self._owner = owner

    def find(self, task_id: str) -> Task:
        """Raises Fault."""
        if task := self._known(task_id):
            return task
        raise Fault(TASK_NOT_FOUND, f"there is no task {task_id[:80]!r}", taskId=task_id[:200])

    def all(self) -> list[Task]:
        """What changed last comes first."""
        own = self._tasks.listed(PROFILE, lambda task: task.metadata == {"owner": self._owner})
        return sorted(own, key=lambda task: (task.updated, task.id), reverse=True)

    async def begin(self, sent: Sent) -> Task:
        """The task that a message begins, or began before: the same message is one task. Raises Fault."""
        referred = self._referred(sent)
        message = sent.message.to_json()
        whole = json.dumps([self._owner, message], sort_keys=True)
        number = "run_" + hashlib.sha256(whole.encode()).hexdigest()[:32]
        if task := self._known(number):
            return task
        loaded = await self._context.serve_context.options.loaded()
        plan, named, own = plan_in(sent), chosen(sent), loaded.settings
        settings = planned(plan, named, own) if plan else in_words(sent, named, own, referred)
        directory = str(self._context.serve_context.options.root(loaded))
        files = loaded.sources
        await self._check(settings, directory, files, plan)
        if task := self._known(number):
            return task  # it came twice
        task = self._record(number, message)
        try:
            if files and plan:
                files.append(service.store_plan(self._app, number, plan))
            await service.submit(self._app, settings, directory, files, number, origin=Origin.CLIENT)
        except SwarmError as error:
            self._tasks.turn(task, State.FAILED, said(task, f"{number}-failed", error.message))
            return task
        self._context.carry(number, Follower(self._context, task).follow(again=False))
        return task

    def _known(self, number: str) -> Task | None:
        task = self._tasks.find(PROFILE, number)
        return task if task and task.metadata == {"owner": self._owner} else None

    def _referred(self, sent: Sent) -> list[Task]:
        """The tasks a message refers to. Raises Fault where a message of that kind is not taken."""
        message = sent.message
        if sent.pushes:
            raise Fault(PUSH_NOT_SUPPORTED, "follow the task with a stream, or get its state")
        accepted(sent)
        if message.task_id:
            task = self.find(message.task_id)
            if message.context_id not in ("", task.context):
                raise Fault(INVALID_PARAMS, violations=[("message.contextId", "is not the task's")])
            words = "the task is over" if task.state.over else "a task in progress does not accept messages"
            problem = f"{words}: start another one with its contextId, and put it in referenceTaskIds"
            raise Fault(UNSUPPORTED, problem, taskId=task.id)
        return [self.find(number) for number in message.reference_task_ids]

    async def _check(self, settings: Settings, directory: str, files: list[str], plan: str) -> None:
        """What the servers' tools and the brains make impossible. Raises Fault, SwarmError."""
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await service.check(self._app, settings, directory, files)
        except PlanInvalid as error:
            raise (refused(error) if plan else Fault(INTERNAL_ERROR, error.message)) from None
        except TimeoutError:
            return  # the run finds out what is wrong

    def _record(self, number: str, message: Object) -> Task:
        if self._context.closing.is_set():
            raise Fault(INTERNAL_ERROR, "the server is ending")
        context = message.get("contextId") or str(uuid4())
        shown = {**message, "contextId": context, "taskId": number}
        try:
            task = self._tasks.begin(
                PROFILE, number, context=context, messages=[shown], metadata={"owner": self._owner}
            )
        except BudgetExhausted as error:
            raise Fault(INTERNAL_ERROR, f"{error.message}; {error.suggestion}") from None
        task.runs.append(number)
        self._tasks.keep(task)
        return task

    async def look(self, task: Task) -> None:
        """It is recorded how its run is now."""
        if not task.state.over:
            await Follower(self._context, task).look()

    async def cancel(self, task: Task) -> None:
        """Its run ends; what it has done by then is kept. Raises Fault where it is over, or was quicker."""
        await self.look(task)
        if not task.state.over:
            with suppress(RunNotFound):
                await self._call_off(task.runs[-1])
            await self.look(task)
            if task.state is State.CANCELED:
                return
        raise Fault(TASK_NOT_CANCELABLE, f"it is {task.state.value}", taskId=task.id)

    async def _call_off(self, run: str) -> None:
        engine = self._app.engine
        if (await engine.status(run)).status is not RunStatus.PAUSED:
            await self._app.swarm.call_off(run, "its client cancelled it")
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await engine.wait(run)
                    return
        await engine.cancel(run)
        await engine.wait(run)


def resume(context: DialectContext) -> None:
    """Tasks that were not over when the server ended are followed again."""
    for task in context.tasks.listed(PROFILE, lambda one: not one.state.over):
        context.carry(task.id, Follower(context, task).follow(again=True))


async def until(tasks: Tasks, task: Task, seconds: float) -> None:
    """Returns when it is over or waits for a person, and after that time."""
    with tasks.following(task) as run_events, suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            if task.state in INTERRUPTED:
                return
            async for run_event in run_events:
                if run_event.state in INTERRUPTED:
                    return
