"""Tasks, the extension `io.modelcontextprotocol/tasks`: a command that takes longer is answered with a handle.

A task is another name for a wait on a command. Its id describes it, so nothing is stored about it here: what a client
requests of a task is a call of `read_output` at the gate, with its policy, audit and masks, for that caller. It
outlives client, front and daemon as the command does, and one that no longer exists is reported as unknown.
"""

from __future__ import annotations

import base64
import json
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from mcp.shared.exceptions import MCPError
from mcp_types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    ClientCapabilities,
    ElicitResult,
    RequestParams,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, Field

from ai_session.servers.mcp import tools as mcp_tools
from ai_session.servers.mcp.caller import call_of, caller_of
from ai_session.servers.mcp.calls import ERROR, TASKS, result_message
from ai_session.servers.mcp.elicitation import DECISION, asker_of, read, request_of

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel import Server

    from ai_session.models import Answer, ToolCall, ToolResult

    Context = ServerRequestContext[Any, Any]

COMMAND_ID = "ai-session/command_id"

PATIENCE_SECONDS = 2.0
"""A command that has ended by then is answered as without tasks."""

POLL_SECONDS = 1.5
"""How long an answer about a running command waits: detecting that a program wants input takes up to 1.2 s."""

PREFIX = "task_"
TTL_SECONDS = 86400
MAX_ID_CHARS = 2000
MAX_QUESTIONS = 256
POLL_MS = ((10, 500), (60, 2000), (float("inf"), 5000))
"""By age in seconds, how long a client should wait between two requests."""

LEVELS = ("finish", "pattern", "input")
"""What read_output can wait for that stays true; output between two polls would be missed."""

GONE = ("session_not_found", "command_not_found")


class Tasks(Protocol):
    """Answers requests about tasks. Each method raises ``unknown`` for a task that does not exist for this caller."""

    async def get(self, ctx: Context, task_id: str) -> dict[str, Any]:
        """Return the task's current state, with its result, error or questions."""
        ...

    async def update(self, ctx: Context, task_id: str, responses: Mapping[str, Any]) -> None:
        """Accept answers to its questions; others are ignored."""
        ...

    async def cancel(self, ctx: Context, task_id: str) -> None:
        """Cancel it."""
        ...


class TaskParams(RequestParams):
    """The id of a task."""

    task_id: str


class UpdateParams(TaskParams):
    """The id of a task, and answers to its questions."""

    input_responses: dict[str, Any] = Field(default_factory=dict[str, Any])


def register(server: Server[Any], tasks: Tasks) -> None:
    """Serve ``tasks`` on ``server``, and declare the extension."""

    async def get(ctx: Context, params: TaskParams) -> dict[str, Any]:
        return await tasks.get(ctx, _named(ctx, params))

    async def update(ctx: Context, params: UpdateParams) -> dict[str, Any]:
        await tasks.update(ctx, _named(ctx, params), params.input_responses)
        return {}

    async def cancel(ctx: Context, params: TaskParams) -> dict[str, Any]:
        await tasks.cancel(ctx, _named(ctx, params))
        return {}

    server.extensions[TASKS] = {}
    server.add_request_handler("tasks/get", TaskParams, get)
    server.add_request_handler("tasks/update", UpdateParams, update)
    server.add_request_handler("tasks/cancel", TaskParams, cancel)


def declared(ctx: Context) -> bool:
    """Report whether this request's client declares tasks; before 2026-07-28 there were others of that name."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS and known_to(ctx.session.client_capabilities)


def known_to(capabilities: ClientCapabilities | None) -> bool:
    """Report whether a client declares tasks."""
    return TASKS in ((capabilities.extensions if capabilities else None) or {})


def require(ctx: Context) -> None:
    """Raise MCPError unless ``declared``."""
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(METHOD_NOT_FOUND, "Method not found", ctx.method)
    if not declared(ctx):
        needed: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "Missing required client capability", needed)


def unknown(task_id: str, why: str = "there is no such task, or it is not yours") -> MCPError:
    """Return the error for a task that does not exist for this caller."""
    return MCPError(INVALID_PARAMS, f"Unknown task: {why}", {"taskId": task_id[:MAX_ID_CHARS]})


def created(task: Mapping[str, Any], meta: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the result that is a task, from the value of ``Tasks.get``."""
    return {"resultType": "task", **task, **({"_meta": dict(meta)} if meta else {})}


def _named(ctx: Context, params: TaskParams) -> str:
    require(ctx)
    header = ctx.request.headers.get("mcp-name") if ctx.request is not None else params.task_id
    if header != params.task_id:
        raise MCPError(HEADER_MISMATCH, "mcp-name header does not match the request body's 'taskId' parameter")
    return params.task_id


@dataclass(frozen=True, slots=True)
class Wait:
    """The content of a task's id: the call to poll with, when it began, for how long (None: to the end)."""

    arguments: Mapping[str, Any]
    began_command: bool
    created_at: float
    seconds: float | None

    @property
    def task_id(self) -> str:
        plain = [int(self.began_command), round(self.created_at, 3), self.seconds, dict(self.arguments)]
        packed = base64.urlsafe_b64encode(json.dumps(plain, separators=(",", ":")).encode())
        return PREFIX + packed.decode().rstrip("=")

    @classmethod
    def of(cls, task_id: str) -> Wait:
        """Parse an id. Raises ``unknown``. An invented id gives access to nothing that a call would not give."""
        try:
            text = task_id[:MAX_ID_CHARS].removeprefix(PREFIX).encode()
            began, created_at, seconds, arguments = json.loads(base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4)))
            wait = cls(arguments, bool(began), float(created_at), None if seconds is None else float(seconds))
            usable = {"command_id", "wait_for"} <= arguments.keys() and 0 < wait.created_at <= time.time() + TTL_SECONDS
            if not usable or wait.task_id != task_id:
                raise ValueError
            json.dumps(arguments, ensure_ascii=False).encode()  # no lone surrogates, as on a line
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            raise unknown(task_id) from None
        return wait

    @property
    def age_seconds(self) -> float:
        return max(0.0, time.time() - self.created_at)

    @property
    def over(self) -> bool:
        """Whether it has waited for as long as requested."""
        return self.seconds is not None and self.age_seconds >= self.seconds

    def task_facts(self, status: str, message: str = "") -> dict[str, Any]:
        """Return the task's facts in the given state."""
        facts: dict[str, Any] = {
            "taskId": self.task_id,
            "status": status,
            "createdAt": _iso(self.created_at),
            "lastUpdatedAt": _iso(time.time()),
            "ttlMs": TTL_SECONDS * 1000,
            "pollIntervalMs": next(wait for age, wait in POLL_MS if self.age_seconds < age),
        }
        return facts | ({"statusMessage": message} if message else {})


@dataclass(slots=True)
class OpenQuestion:
    """A question for which a poll waits; ``answer`` is set when the client has given it."""

    key: str
    request: dict[str, Any]
    state: str
    expires_at: float
    answer: Answer | None = field(default=None)


Who = tuple[str, str, str, str, str]


class CommandTasks:
    """Tasks of execute_command, and of read_output with a wait. Stores nothing but open questions."""

    def __init__(self) -> None:
        self._questions: OrderedDict[Who, OpenQuestion] = OrderedDict()

    async def call_tool(self, ctx: Context, params: CallToolRequestParams) -> Any:
        """Make one call through the gate and return its result, or a task for a longer wait if the client declares
        tasks."""
        given = params.arguments or {}
        timeout = given.get("timeout_seconds")
        seconds = float(timeout) if isinstance(timeout, (int, float)) and timeout >= 0 else None
        waits = params.name == "execute_command" or (params.name == "read_output" and given.get("wait_for") in LEVELS)
        if not (waits and declared(ctx)) or (seconds is not None and seconds <= PATIENCE_SECONDS):
            return await mcp_tools.call_tool(ctx, params)
        began_at = round(time.time(), 3)
        result = await mcp_tools.call_tool(ctx, params, PATIENCE_SECONDS)
        facts = result.get("structuredContent") if isinstance(result, dict) else None
        if not isinstance(result, dict) or not facts or not _still_running(facts):
            return result
        poll = {k: v for k, v in given.items() if k in POLL_ARGUMENTS[params.name]}
        poll |= {"command_id": facts["command_id"], "wait_for": given.get("wait_for") or "finish"}
        wait = Wait(poll, params.name == "execute_command", began_at, seconds)
        if len(wait.task_id) > MAX_ID_CHARS:
            return await mcp_tools.call_tool(ctx, params)
        return created(wait.task_facts("working", _running(wait)), {**result["_meta"], COMMAND_ID: facts["command_id"]})

    async def get(self, ctx: Context, task_id: str) -> dict[str, Any]:
        """Return the task as JSON. Raises MCPError for an unknown one."""
        wait = _unexpired(task_id)
        call = self._poll(ctx, wait)
        who = _who(call, task_id)
        pending = self._questions.get(who)
        if pending and not pending.answer and time.time() < pending.expires_at:
            return self._waiting(wait, pending)
        self._questions.pop(who, None)
        if pending and pending.answer:
            call = self._poll(ctx, wait, pending.state, {DECISION: pending.answer})
        result = await caller_of(ctx).call(call, asker_of(ctx, call.principal.client))
        if question := result.question:
            key = f"{DECISION}.{question.question_id}.{result.state[-12:]}"
            pending = OpenQuestion(key, plain(request_of(question)), result.state, question.expires_at)
            self._questions[who] = pending
            while len(self._questions) > MAX_QUESTIONS:
                self._questions.popitem(last=False)
            return self._waiting(wait, pending)
        _require_success(task_id, result)
        if _still_running(result.structured) and not wait.over:
            return wait.task_facts("working", _running(wait))
        return wait.task_facts("completed") | {"result": result_message(call, result)}

    async def update(self, ctx: Context, task_id: str, responses: Mapping[str, Any]) -> None:
        """Accept answers, which apply at the next poll."""
        call = self._poll(ctx, _unexpired(task_id))
        pending = self._questions.get(_who(call, task_id))
        if pending is None:
            await self._require_known(ctx, task_id)
        elif pending.key in responses and pending.answer is None:
            pending.answer = read(_elicited(responses[pending.key]), call.principal.client)

    async def cancel(self, ctx: Context, task_id: str) -> None:
        """Interrupt the command that the task began, if it still runs; a task that only waits began none."""
        wait = _unexpired(task_id)
        if not wait.began_command:
            return await self._require_known(ctx, task_id)
        caller = caller_of(ctx)
        only = {name: wait.arguments.get(name, "") for name in ("session_id", "command_id")}
        result = await caller.call(call_of(ctx, caller.principal, "interrupt_command", only))
        if result.structured.get("error", {}).get("code") != "nothing_running":
            _require_success(task_id, result)
        return None

    async def _require_known(self, ctx: Context, task_id: str) -> None:
        call = self._poll(ctx, Wait.of(task_id), seconds=0.0)
        _require_success(task_id, await caller_of(ctx).call(call))

    def _poll(
        self,
        ctx: Context,
        wait: Wait,
        state: str = "",
        answers: Mapping[str, Any] | None = None,
        seconds: float = POLL_SECONDS,
    ) -> ToolCall:
        more = {"wait_for": ""} if wait.over else {"timeout_seconds": seconds}
        principal = caller_of(ctx).principal
        return call_of(ctx, principal, "read_output", {**wait.arguments, **more}, state=state, answers=answers)

    def _waiting(self, wait: Wait, question: OpenQuestion) -> dict[str, Any]:
        message = "a person is asked whether the output may be read"
        return wait.task_facts("input_required", message) | {"inputRequests": {question.key: question.request}}


POLL_ARGUMENTS = {
    "execute_command": ("session_id", "max_output_chars"),
    "read_output": ("session_id", "max_output_chars", "pattern", "offset", "tail_lines"),
}


def _unexpired(task_id: str) -> Wait:
    wait = Wait.of(task_id)
    if wait.age_seconds > TTL_SECONDS:
        raise unknown(task_id, "it has expired; read_output gives what the command printed")
    return wait


def _who(call: ToolCall, task_id: str) -> Who:
    return (task_id, call.principal.subject, call.principal.client, call.run, call.agent)


def _still_running(facts: Mapping[str, Any]) -> bool:
    """Report whether the result only means that the wait was too short."""
    return (
        facts.get("status") == "running" and "input_mode" not in facts and facts.get("waited", "timeout") == "timeout"
    )


def _running(wait: Wait) -> str:
    return f"command {wait.arguments['command_id']} is still running, {wait.age_seconds:.0f} s so far"


def _require_success(task_id: str, result: ToolResult) -> None:
    """Raise MCPError if a poll was refused, as it then reveals nothing about the command."""
    if not result.is_error:
        return
    error: dict[str, Any] = dict(result.structured.get("error", {}))
    if error.get("code") in GONE:
        raise unknown(task_id)
    raise MCPError(INTERNAL_ERROR, result.text, {ERROR: error})


def _elicited(response: Any) -> ElicitResult:
    try:
        return ElicitResult.model_validate(response)
    except ValueError:
        return ElicitResult(action="cancel")


def plain(value: BaseModel) -> dict[str, Any]:
    """Return a value of the SDK as JSON values."""
    return value.model_dump(by_alias=True, mode="json", exclude_none=True)


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
