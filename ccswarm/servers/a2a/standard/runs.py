"""The tasks of A2A clients: started by messages, waited for, cancelled. Each is a run of the swarm."""

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
from ccswarm.servers.a2a.context import DialectContext
from ccswarm.servers.a2a.standard.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    PUSH_NOT_SUPPORTED,
    TASK_NOT_CANCELABLE,
    TASK_NOT_FOUND,
    UNSUPPORTED,
    Fault,
)
from ccswarm.servers.a2a.standard.progress import Follower, swarm_message
from ccswarm.servers.a2a.standard.requests import (
    agent_in,
    plan_fault,
    plan_in,
    require_output_type,
    with_plan,
    with_text,
)
from ccswarm.servers.a2a.standard.wire import Object, Sent
from ccswarm.servers.a2a.task_store import State, Task, Tasks

PROFILE = "standard"
CHECK_SECONDS = 35.0
"""The time limit for checking the servers before a run starts."""
STOP_SECONDS = 10.0
"""The number of seconds that work may take to stop before it is cancelled."""
INTERRUPTED = (State.INPUT_REQUIRED, State.AUTH_REQUIRED)


class Work:
    """The tasks of one ``owner``, who is identified by a token; no other caller finds them."""

    def __init__(self, context: DialectContext, owner: str) -> None:
        self._context = context
        self._tasks = context.tasks
        self._app = context.serve_context.app
        self._owner = owner

    def find(self, task_id: str) -> Task:
        """Return the task. Raises Fault."""
        if task := self._known(task_id):
            return task
        raise Fault(TASK_NOT_FOUND, f"there is no task {task_id[:80]!r}", taskId=task_id[:200])

    def all(self) -> list[Task]:
        """Return all tasks, the last changed first."""
        own = self._tasks.select(PROFILE, lambda task: task.metadata == {"owner": self._owner})
        return sorted(own, key=lambda task: (task.updated, task.id), reverse=True)

    async def begin(self, sent: Sent) -> Task:
        """Return the task that a message starts; repeating a message starts nothing. Raises Fault."""
        referred = self._referred(sent)
        message = sent.message.to_json()
        whole = json.dumps([self._owner, message], sort_keys=True)
        number = "run_" + hashlib.sha256(whole.encode()).hexdigest()[:32]
        if task := self._known(number):
            return task
        loaded = await self._context.serve_context.options.loaded()
        plan = plan_in(sent)
        named = agent_in(sent)
        own = loaded.settings
        settings = with_plan(plan, named, own) if plan else with_text(sent, named, own, referred)
        directory = str(self._context.serve_context.options.root(loaded))
        files = loaded.sources
        await self._check(settings, directory, files, plan)
        if task := self._known(number):
            return task  # the message was sent twice
        task = self._record(number, message)
        try:
            if files and plan:
                files.append(service.store_plan(self._app, number, plan))
            await self._app.swarm.submit(settings, number, directory, files, origin=Origin.CLIENT)
        except SwarmError as error:
            self._tasks.set_state(task, State.FAILED, swarm_message(task, f"{number}-failed", error.message))
            return task
        self._context.carry(number, Follower(self._context, task).follow(again=False))
        return task

    def _known(self, number: str) -> Task | None:
        task = self._tasks.find(PROFILE, number)
        return task if task and task.metadata == {"owner": self._owner} else None

    def _referred(self, sent: Sent) -> list[Task]:
        """Return the tasks that a message refers to. Raises Fault for a kind of message that is not supported."""
        message = sent.message
        if sent.pushes:
            raise Fault(PUSH_NOT_SUPPORTED, "follow the task with a stream, or get its state")
        require_output_type(sent)
        if message.task_id:
            task = self.find(message.task_id)
            if message.context_id not in ("", task.context):
                raise Fault(INVALID_PARAMS, violations=[("message.contextId", "is not the task's")])
            reason = "the task is over" if task.state.over else "a task in progress does not accept messages"
            problem = f"{reason}: start another one with its contextId, and put it in referenceTaskIds"
            raise Fault(UNSUPPORTED, problem, taskId=task.id)
        return [self.find(number) for number in message.reference_task_ids]

    async def _check(self, settings: Settings, directory: str, files: list[str], plan: str) -> None:
        """Check what the tools and the brains make impossible. Raises Fault and SwarmError."""
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                await service.check(self._app, settings, directory, files)
        except PlanInvalid as error:
            raise (plan_fault(error) if plan else Fault(INTERNAL_ERROR, error.message)) from None
        except TimeoutError:
            return  # the run will find any problems

    def _record(self, number: str, message: Object) -> Task:
        if self._context.closing.is_set():
            raise Fault(INTERNAL_ERROR, "the server is ending")
        context = message.get("contextId") or str(uuid4())
        stored = {**message, "contextId": context, "taskId": number}
        try:
            task = self._tasks.begin(
                PROFILE, number, context=context, messages=[stored], metadata={"owner": self._owner}
            )
        except BudgetExhausted as error:
            raise Fault(INTERNAL_ERROR, f"{error.message}; {error.suggestion}") from None
        task.runs.append(number)
        self._tasks.store(task)
        return task

    async def look(self, task: Task) -> None:
        """Record the current state of the task's run."""
        if not task.state.over:
            await Follower(self._context, task).look()

    async def cancel(self, task: Task) -> None:
        """End its run, which keeps what it has done. Raises Fault if it was over before."""
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
    """Follow again the tasks that were unfinished when the server ended."""
    for task in context.tasks.select(PROFILE, lambda one: not one.state.over):
        context.carry(task.id, Follower(context, task).follow(again=True))


async def wait_until_interrupted(tasks: Tasks, task: Task, seconds: float) -> None:
    """Wait until the task is over or waits for a person, at most for that time."""
    with tasks.follow(task) as run_events, suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            if task.state in INTERRUPTED:
                return
            async for run_event in run_events:
                if run_event.state in INTERRUPTED:
                    return
