"""The events of a task's run, recorded as events of the task: its states, messages and results."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ccswarm.errors import RunNotFound
from ccswarm.models import RunStatus
from ccswarm.runs.events import RunEvent, asked_call, execution_of, format_event
from ccswarm.runs.feed import EventStream
from ccswarm.runs.status import ended_here, facts_of
from ccswarm.servers.a2a.context import DialectContext
from ccswarm.servers.a2a.standard.wire import Object
from ccswarm.servers.a2a.task_store import State, Task
from ccswarm.toolbox.questions import command_for

STATES = {
    RunStatus.QUEUED: State.SUBMITTED,
    RunStatus.RUNNING: State.WORKING,
    RunStatus.WAITING_APPROVAL: State.INPUT_REQUIRED,
    RunStatus.PAUSED: State.INPUT_REQUIRED,
    RunStatus.SUCCEEDED: State.COMPLETED,
    RunStatus.CANCELLED: State.CANCELED,
}
"""States of a run as states of a task; any other end of a run is a failure."""

Questions = dict[str, tuple[str, Mapping[str, Any]]]
"""The questions that wait for a person, by id: the execution that asks, and the question."""


class Follower:
    """The follower of a task's run, which records everything that happens in it."""

    def __init__(self, context: DialectContext, task: Task) -> None:
        self._context = context
        self._tasks = context.tasks
        self._task = task
        self._engine = context.serve_context.app.engine
        self._run = task.runs[-1]
        self._questions: Questions = {}

    async def follow(self, *, again: bool) -> None:
        """Follow the run until it is over or the server ends. ``again``: events up to now were recorded before."""
        feed = EventStream(self._engine, self._run)
        try:
            if again:
                await self._take_over()
                for run_event in await feed.past():
                    self._update_questions(run_event)
                    await self._record_result(run_event)
                await self.look()
            async with feed.follow() as queue:
                leaving = asyncio.create_task(self._leave(queue))
                try:
                    while run_event := await queue.get():
                        await self._record(run_event)
                finally:
                    leaving.cancel()
        except RunNotFound:
            pass
        if not self._context.closing.is_set():
            await self.look()

    async def look(self) -> None:
        """Record the run's current state, if it differs."""
        task = self._task
        if task.state.over:
            return
        try:
            facts = await facts_of(self._engine, self._run)
        except RunNotFound:
            if self._context.is_carried(task.id):  # otherwise it is being queued
                self._set_state(State.FAILED, "its run is not kept", f"{task.id}-gone")
            return
        status = RunStatus(facts["status"])
        # There may be questions to a person while other work is in progress.
        state = State.INPUT_REQUIRED if facts["approvals"] else STATES.get(status, State.FAILED)
        for name, one in facts["tasks"].items() if status.over else ():
            if "." not in name and one["status"] != RunStatus.SKIPPED:
                self._add_artifact(name, one)
        if state is task.state:
            return
        match state:
            case State.INPUT_REQUIRED if facts["approvals"]:
                self._ask([(one["id"], one) for one in facts["approvals"]], f"{task.id}-asks")
            case State.INPUT_REQUIRED:
                words = f"a person has paused it, and can continue it with: ccswarm resume {self._run}"
                self._set_state(state, words, f"{task.id}-paused")
            case State.FAILED:
                self._set_state(state, _why(facts), f"{task.id}-failed")
            case _:
                self._tasks.set_state(task, state)

    async def _take_over(self) -> None:
        """Continue at once the run of a process of this machine that was killed."""
        run = await self._engine.status(self._run)
        if run.status is RunStatus.RUNNING and ended_here(run.worker):
            await self._engine.recover(run.worker)

    async def _leave(self, queue: asyncio.Queue[RunEvent | None]) -> None:
        await self._context.closing.wait()
        queue.put_nowait(None)

    def _update_questions(self, run_event: RunEvent) -> None:
        """Update the questions."""
        facts = run_event.facts
        if run_event.event == "approval.asked":
            self._questions[facts["id"]] = (run_event.execution, facts)
        elif run_event.event == "approval.answered":
            self._questions.pop(facts["id"], None)
        elif run_event.event == "task.ended":
            over = execution_of(run_event.execution, str(facts["task"]), int(facts["attempt"]))
            self._questions = {
                name: one for name, one in self._questions.items() if not f"{one[0]}.".startswith(f"{over}.")
            }

    async def _record_result(self, run_event: RunEvent) -> None:
        """Record the result of a task of the run as an artifact, unless the task is retried."""
        facts = run_event.facts
        if run_event.event == "task.ended" and run_event.execution == self._run and not facts.get("again"):
            over = await self._engine.status(execution_of(self._run, facts["task"], facts["attempt"]))
            result: Mapping[str, Any] = over.result or {}
            self._add_artifact(str(facts["task"]), {**facts, "result": result.get("result")})

    async def _record(self, run_event: RunEvent) -> None:
        self._update_questions(run_event)
        if run_event.event == "run.ended":
            return  # the engine reports when it is over
        await self._record_result(run_event)
        number = f"{run_event.execution}-{run_event.count}"
        if self._questions:
            self._ask([(name, one) for name, (_, one) in self._questions.items()], number)
        else:
            self._set_state(State.WORKING, format_event(run_event), number)

    def _ask(self, questions: list[tuple[str, Mapping[str, Any]]], number: str) -> None:
        lines = [
            f"{one['agent']} asks for {asked_call(one)}; a person answers with: {command_for(one)}"
            for _, one in questions
        ]
        approvals = [
            {"id": name, "agent": one["agent"], "tool": one["tool"], "command": command_for(one)}
            for name, one in questions
        ]
        self._set_state(State.INPUT_REQUIRED, "\n".join(lines), number, {"approvals": approvals})

    def _set_state(self, state: State, words: str, number: str, data: Object | None = None) -> None:
        self._tasks.set_state(self._task, state, swarm_message(self._task, number, words, data))

    def _add_artifact(self, name: str, facts: Mapping[str, Any]) -> None:
        """Record the result of a task of the run, once."""
        given: list[Object] = self._task.artifacts
        if any(one["artifactId"] == name for one in given):
            return
        summary, result = facts.get("summary"), facts.get("result")
        parts: list[Object] = [{"text": summary}] if summary else []
        if result is not None and result != {"summary": summary}:
            parts.append({"data": result})
        if parts:
            about = {"status": str(facts["status"]), "agent": facts["agent"]}
            self._tasks.add_artifact(self._task, {"artifactId": name, "name": name, "parts": parts, "metadata": about})


def swarm_message(task: Task, number: str, words: str, data: Object | None = None) -> Object:
    """Return a message of the swarm about a task."""
    parts: list[Object] = [{"text": words}, *([{"data": data}] if data else [])]
    return {
        "messageId": number,
        "contextId": task.context,
        "taskId": task.id,
        "role": "ROLE_AGENT",
        "parts": parts,
    }


def _why(facts: Mapping[str, Any]) -> str:
    """Return why a run did not succeed."""
    found = [
        f"{name}: {str(one['status']).replace('_', ' ')}" + (f": {one['summary']}" if one["summary"] else "")
        for name, one in facts["tasks"].items()
        if "." not in name and one["status"] not in (RunStatus.SUCCEEDED, RunStatus.SKIPPED)
    ]
    return "; ".join(filter(None, [*found, facts["error"]])) or str(facts["status"]).replace("_", " ")
