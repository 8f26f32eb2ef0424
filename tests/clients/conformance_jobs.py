"""Fixture tools that become tasks: jobs in memory, behind the product's own `tasks/*` methods."""

from __future__ import annotations

import asyncio
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mcp import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    InputRequiredResult,
    TextContent,
)

from ai_session.servers.mcp import tasks
from tests.clients.conformance_asking import field, form, name_form

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from mcp.server.context import ServerRequestContext

    Context = ServerRequestContext[Any, Any]
    Work = Callable[["Job"], Awaitable[CallToolResult]]

TTL_MS = 3_600_000
POLL_MS = 200


def said(text: str, *, is_error: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=is_error)


def plain(value: Any) -> dict[str, Any]:
    return value.model_dump(by_alias=True, mode="json", exclude_none=True)


class Job:
    """One task: what it is doing, what it asked for and has not been told yet."""

    def __init__(self, work: Work) -> None:
        self.task_id = secrets.token_urlsafe(24)
        self.created = self.updated = datetime.now(UTC)
        self.status = "working"
        self.outcome: dict[str, Any] = {}
        self.asked: dict[str, ElicitRequest] = {}
        self._answers: dict[str, asyncio.Future[Any]] = {}
        self._work = asyncio.ensure_future(self._run(work))

    async def ask(self, **questions: ElicitRequest) -> dict[str, Any]:
        """The answers, when all are there."""
        loop = asyncio.get_running_loop()
        waiting = {key: loop.create_future() for key in questions}
        self.asked |= questions
        self._answers |= waiting
        self._set("input_required")
        return {key: await future for key, future in waiting.items()}

    def answer(self, key: str, response: Any) -> None:
        """One response; of no question that is open, nothing."""
        if self.asked.pop(key, None):
            self._answers.pop(key).set_result(response)
            if not self.asked:
                self._set("working")

    def cancel(self) -> None:
        self._work.cancel()

    def seen(self) -> dict[str, Any]:
        """The task as it stands."""
        facts: dict[str, Any] = {
            "taskId": self.task_id,
            "status": self.status,
            "createdAt": self.created.isoformat(),
            "lastUpdatedAt": self.updated.isoformat(),
            "ttlMs": TTL_MS,
            "pollIntervalMs": POLL_MS,
        }
        if self.status == "input_required":
            facts["inputRequests"] = {key: plain(request) for key, request in self.asked.items()}
        return facts | self.outcome

    def _set(self, status: str, **outcome: Any) -> None:
        self.status = status
        self.outcome = outcome
        self.updated = datetime.now(UTC)

    async def _run(self, work: Work) -> None:
        try:
            self._set("completed", result=plain(await work(self)))
        except asyncio.CancelledError:
            self._set("cancelled")
        except MCPError as problem:
            self._set("failed", error={"code": problem.code, "message": problem.message})


class Jobs:
    """What ``tasks.Tasks`` promises, for jobs in this process; and the tools that begin them."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self.tools: dict[str, Callable[[Context, CallToolRequestParams], Any]] = {
            "greet": self.greet,
            "slow_compute": self.slow_compute,
            "failing_job": self.needing_tasks(failing),
            "protocol_error_job": self.needing_tasks(breaking),
            "confirm_delete": self.needing_tasks(confirming),
            "multi_input": self.needing_tasks(asking_twice),
            "test_tool_with_task": self.with_name,
        }

    async def get(self, ctx: Context, task_id: str) -> dict[str, Any]:
        return self._find(task_id).seen()

    async def update(self, ctx: Context, task_id: str, responses: Mapping[str, Any]) -> None:
        job = self._find(task_id)
        for key, response in responses.items():
            job.answer(key, response)

    async def cancel(self, ctx: Context, task_id: str) -> None:
        self._find(task_id).cancel()

    async def greet(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        return said(f"Hello, {(params.arguments or {}).get('name')}!")

    async def slow_compute(self, ctx: Context, params: CallToolRequestParams) -> Any:
        given: dict[str, Any] = params.arguments or {}

        async def work(job: Job | None) -> CallToolResult:
            over = asyncio.Event()
            asyncio.get_running_loop().call_later(given.get("seconds", 0), over.set)
            await over.wait()
            return said(f"computed {given.get('label')}")

        return self._begin(work) if tasks.declared(ctx) else await work(None)

    async def with_name(self, ctx: Context, params: CallToolRequestParams) -> Any:
        name = field((params.input_responses or {}).get("user_name"), "name")
        if name is None:
            return InputRequiredResult(input_requests={"user_name": name_form()}, request_state="named next")

        async def work(job: Job) -> CallToolResult:
            return said(f"Hello, {name}!")

        tasks.require(ctx)
        return self._begin(work)

    def needing_tasks(self, work: Callable[[Job, dict[str, Any]], Awaitable[CallToolResult]]) -> Any:
        async def tool(ctx: Context, params: CallToolRequestParams) -> Any:
            tasks.require(ctx)
            return self._begin(lambda job: work(job, params.arguments or {}))

        return tool

    def _begin(self, work: Work) -> dict[str, Any]:
        job = Job(work)
        self._jobs[job.task_id] = job
        return tasks.created(job.seen())

    def _find(self, task_id: str) -> Job:
        job = self._jobs.get(task_id)
        if job is None:
            raise tasks.unknown(task_id)
        return job


async def failing(job: Job, given: dict[str, Any]) -> CallToolResult:
    return said("the job could not be done", is_error=True)


async def breaking(job: Job, given: dict[str, Any]) -> CallToolResult:
    raise MCPError(INTERNAL_ERROR, "the job broke")


async def confirming(job: Job, given: dict[str, Any]) -> CallToolResult:
    answers = await job.ask(confirm=form(f"Delete {given.get('filename')}?", confirm={"type": "boolean"}))
    return said(f"{given.get('filename')}: {answers['confirm']}")


async def asking_twice(job: Job, given: dict[str, Any]) -> CallToolResult:
    return said(str(await job.ask(first=name_form("First?"), second=name_form("Second?"))))
