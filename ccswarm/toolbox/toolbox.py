"""The one place that calls tools: who may, with what, how often, and a record of all of it."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, cast

from ccswarm.clients.base import OnProgress, ToolClient
from ccswarm.config.settings import AgentSettings
from ccswarm.errors import (
    ApprovalNeeded,
    BudgetExhausted,
    CallerError,
    CallTimedOut,
    InvalidArguments,
    LoginNeeded,
    NotGranted,
    ServerLost,
    ServerUnavailable,
    SwarmError,
    UnknownTool,
    UsageInvalid,
)
from ccswarm.journal.writer import CALL_PREFIX, Journal
from ccswarm.models import CallOutcome, CallRequest, CallStatus, ServerAnswer, ToolInfo
from ccswarm.plan.check import OWN_SERVER
from ccswarm.telemetry.base import Telemetry
from ccswarm.toolbox.arguments import Mask, masked, not_json, shape
from ccswarm.toolbox.catalogue import Catalogue
from ccswarm.toolbox.grants import Grants
from ccswarm.toolbox.schemas import Schema

CALL_ID, AUDIT, ERROR = "ai-session/call_id", "ai-session/audit", "ai-session/error"
"""What a server may say of a call in its answer's ``_meta``."""

PROBLEM = "ccswarm/problem"
"""What its client says there: the server refused the request itself, or answered what cannot be used."""

"""Of messages between the agents of a run."""

AGENT, CLIENT_CALL_ID, RUN = "ai-session/agent", "ai-session/client_call_id", "ai-session/run"
"""Keys of ``_meta`` in which a server gets facts about a call."""

MOST_TEXT_CHARS = 1 << 20
"""Of an answer; outcomes are kept with the run, step by step."""

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
MOST_IMAGE_CHARS = 3 << 20
"""Of the images of one answer, in base64."""

MOST_SENDS = 3
"""Of one call whose server ends while it is under way, where twice is the same as once."""

Budgeted = Callable[[CallRequest], Awaitable[str]]
"""Takes a call from what may be used; the name of what is used up, or ``""``."""

_STATUS: tuple[tuple[type[SwarmError], CallStatus], ...] = (
    (InvalidArguments, CallStatus.INVALID),
    (UnknownTool, CallStatus.INVALID),
    (BudgetExhausted, CallStatus.BUDGET),
    (CallerError, CallStatus.DENIED),
    (CallTimedOut, CallStatus.TIMEOUT),
    (ServerLost, CallStatus.LOST),
    (ServerUnavailable, CallStatus.UNAVAILABLE),
)


@dataclass(slots=True)
class _Sending:
    """A call on its way, once; ``begun`` when its begin record is written."""

    request: CallRequest
    approved: Callable[[CallRequest], bool]
    on_progress: OnProgress | None
    budget: Budgeted | None
    began: float
    call_id: str = field(default_factory=lambda: CALL_PREFIX + secrets.token_hex(16))
    begun: bool = False
    repeatable: bool = False
    carried: Mapping[str, str] = field(default_factory=dict[str, str])
    """What goes with it for telemetry."""
    outcome: CallOutcome = field(default_factory=lambda: CallOutcome(CallStatus.LOST))


class Toolbox:
    """The tools of ``clients`` for ``agents``, both by name. ``mask`` takes secrets out of the text of commands before
    it is journalled; ``process`` names this process where calls may be taken over from others.

    Raises ConfigInvalid for a server whose name has a dot.
    """

    def __init__(
        self,
        clients: Mapping[str, ToolClient],
        agents: Mapping[str, AgentSettings],
        journal: Journal,
        *,
        clock: Callable[[], float] = time.monotonic,
        mask: Mask = str,
        process: str = "",
        telemetry: Telemetry | None = None,
    ) -> None:
        self._clients = clients
        self._agents = agents
        self._grants = {name: Grants(agent.grants) for name, agent in agents.items()}
        self._journal = journal
        self._clock = clock
        self._mask = mask
        self._process = process
        self._telemetry = telemetry or Telemetry()
        self._catalogue = Catalogue(clients)
        self._schemas: dict[str, tuple[Mapping[str, Any], Schema]] = {}

    async def discover_tools(self, agent: str) -> Sequence[ToolInfo]:
        """What the agent is granted, in the order of the configuration. A server that cannot be reached is left out,
        and ``problems`` names it. Raises UsageInvalid where there is no such agent."""
        if agent not in self._agents:
            raise UsageInvalid(f"there is no agent {agent[:80]!r}")
        grants = self._grants[agent]
        return [info for info in await self._catalogue.all(grants.covers_server) if grants.allows(info.full_name)]

    async def list_tools(self, server: str) -> Sequence[ToolInfo]:
        """What one server has, whoever may use it. Raises ServerUnavailable."""
        return await self._catalogue.of(server)

    def problems(self) -> Mapping[str, str]:
        """Server, or full name of a tool → what was wrong with it the last time it was used."""
        schemas = {name: schema.unusable for name, (_, schema) in self._schemas.items() if schema.unusable}
        return {**schemas, **self._catalogue.problems()}

    def require_logins(self, agents: Sequence[AgentSettings], servers: Collection[str]) -> None:
        """Raises LoginNeeded where one of ``servers``, or one that an agent may use, wanted a login the last time."""
        for server, needed in self._catalogue.locked().items():
            if server in servers or any(Grants(agent.grants).covers_server(server) for agent in agents):
                raise LoginNeeded(needed.message, suggestion=needed.suggestion)

    async def find(self, tool: str) -> ToolInfo:
        """The tool of that full name, whoever may use it. Raises UnknownTool, ServerUnavailable."""
        return await self._catalogue.find(tool)

    def needs_approval(self, agent: str, tool: ToolInfo) -> bool:
        """Whether a person has to agree to a call. Raises UsageInvalid where there is no such agent."""
        if agent not in self._agents:
            raise UsageInvalid(f"there is no agent {agent[:80]!r}")
        approval = self._agents[agent].approval
        return approval == "all" or (approval == "destructive" and not tool.read_only)

    async def invoke_tool(self, agent: str, tool: str, arguments: Mapping[str, Any]) -> CallOutcome:
        """A call outside any run, without a budget and without anybody to agree to it. Never raises."""
        request = CallRequest(run_id="", task_id="", step_id="", agent=agent, tool=tool, arguments=arguments)
        return await self.call(request, budget=None, approved=lambda _: False)

    async def call(
        self,
        request: CallRequest,
        *,
        budget: Budgeted | None,
        approved: Callable[[CallRequest], bool],
        on_progress: OnProgress | None = None,
    ) -> CallOutcome:
        """Judge a call, make it and record both. Never raises but for cancellation of the wait, which is recorded too.

        In this order: the agent is known, the tool exists and is granted, the arguments fit its schema, a person agreed
        where one has to, no other process may have made the call, the budget suffices, the begin is written; the first
        that is not so is the outcome, and nothing was sent. A call that was lost with its server is sent again, and is
        on record again, where that is the same as once: with the same key, to a tool that only reads, or where who
        makes it knows that.
        """
        entry = _Sending(request, approved, on_progress, budget, self._clock())
        outcome = await self._traced(entry)
        for _ in range(1, MOST_SENDS):
            if outcome.status is not CallStatus.LOST or not entry.repeatable:
                break
            entry = _Sending(request, approved, on_progress, None, self._clock())
            again = await self._traced(entry)
            if not entry.begun:  # what became of the one before is as unknown as it was
                break
            outcome = again
        return outcome

    async def _traced(self, entry: _Sending) -> CallOutcome:
        with self._telemetry.call(entry.request, entry) as entry.carried:
            return await self._recorded(entry)

    async def _recorded(self, entry: _Sending) -> CallOutcome:
        try:
            entry.outcome = await self._judged_and_sent(entry)
        except asyncio.CancelledError:
            entry.outcome = CallOutcome(CallStatus.CANCELLED, code="cancelled", message="the call was cancelled")
            raise
        except SwarmError as error:
            entry.outcome = self._failed(entry, error)
        except Exception as error:  # of a client, a budget or an approval: an outcome like others, or the run ends here
            status = CallStatus.LOST if entry.begun else CallStatus.UNAVAILABLE
            message = f"{type(error).__name__}: {error}"[:2000]
            entry.outcome = CallOutcome(status, code="internal_error", message=message)
        finally:
            entry.outcome = replace(entry.outcome, duration_seconds=self._clock() - entry.began)
            self._record_end(entry)
        return entry.outcome

    async def _judged_and_sent(self, entry: _Sending) -> CallOutcome:
        request = entry.request
        if request.agent not in self._agents:
            raise NotGranted(f"there is no agent {request.agent[:80]!r}", suggestion="use an agent of the swarm")
        tool = await self.find(request.tool)
        if not self._grants[request.agent].allows(tool.full_name):
            raise NotGranted(
                f"agent {request.agent} may not use {tool.full_name}", suggestion="use a tool from its list"
            )
        arguments = self._checked(request, tool)
        if self.needs_approval(request.agent, tool) and not entry.approved(request):
            raise ApprovalNeeded(f"a person must approve {tool.full_name}", suggestion="ccswarm approvals")
        self._require_own(request, tool)
        if entry.budget and (name := await entry.budget(request)):
            raise BudgetExhausted(f"{name} is used up", suggestion="raise the budget, and resume the run")
        self._journal.append("call.begin", **self._facts(entry), **self._given(request))
        entry.begun = True
        entry.repeatable = _same_twice(request, tool)
        # Agents of one run write to each other, and the terminals of an attempt are nobody else's.
        run = request.run_id if tool.server == OWN_SERVER else request.principal or request.run_id
        whose = {} if request.for_user else {AGENT: request.agent, RUN: run}
        meta = {**entry.carried, CLIENT_CALL_ID: entry.call_id, **whose}
        answer = await self._clients[tool.server].call(
            tool.name,
            arguments,
            meta={name: value for name, value in meta.items() if value},
            timeout_seconds=request.timeout_seconds,
            on_progress=entry.on_progress,
        )
        return _outcome(answer)

    def _checked(self, request: CallRequest, tool: ToolInfo) -> Mapping[str, Any]:
        """The arguments as they are sent. Raises InvalidArguments."""
        arguments = request.arguments
        if wrong := not_json(arguments):
            raise InvalidArguments(f"the arguments of {tool.full_name} are not a JSON object: {wrong}")
        if tool.keyed and request.key and "call_key" not in arguments:
            arguments = {**arguments, "call_key": request.key}
        schema, compiled = self._schemas.get(tool.full_name, (None, None))
        if compiled is None or (schema is not tool.input_schema and schema != tool.input_schema):
            compiled = Schema(tool.input_schema)
        self._schemas[tool.full_name] = (tool.input_schema, compiled)
        if wrong := compiled.problem(arguments):
            raise InvalidArguments(
                f"the arguments do not match the schema of {tool.full_name}: {wrong}",
                suggestion="fix the problems above",
            )
        return arguments

    def _require_own(self, request: CallRequest, tool: ToolInfo) -> None:
        """Raises ServerLost for what another process may have done already, where twice is not the same as once."""
        foreign = request.claim and self._process and request.claim != self._process
        if foreign and not _same_twice(request, tool):
            raise ServerLost(
                f"another process was about to call {tool.full_name} and ended: whether it called it is unknown",
                suggestion="check its effect, then continue from there",
            )

    def _failed(self, entry: _Sending, error: SwarmError) -> CallOutcome:
        request = entry.request
        known = (status for kind, status in _STATUS if isinstance(error, kind))
        status = next(known, CallStatus.LOST if entry.begun else CallStatus.UNAVAILABLE)
        suggestion = error.suggestion
        if isinstance(error, UnknownTool) and not suggestion:
            allows = self._grants[request.agent].allows
            near = get_close_matches(request.tool[:200], [name for name in self._catalogue.known() if allows(name)])
            suggestion = f"did you mean {', '.join(near)}?" if near else "use a tool from the agent's list"
        return CallOutcome(status, code=error.code, message=error.message, suggestion=suggestion)

    def _record_end(self, entry: _Sending) -> None:
        request, outcome = entry.request, entry.outcome
        facts = {**self._facts(entry), "status": outcome.status.value, "code": outcome.code}
        facts["seconds"] = round(outcome.duration_seconds, 6)
        if not entry.begun:
            ours = outcome.status in (CallStatus.INVALID, CallStatus.DENIED, CallStatus.BUDGET)
            # What a server said of itself may have anything in it.
            facts["message"] = masked(outcome.message, self._mask, 1000) if ours else ""
            self._journal.note("call.refused", **_filled(facts), **self._given(request))
            return
        facts |= {"server_call": outcome.call_id, "audit": outcome.audit, "answer_chars": len(outcome.text)}
        exit_code = (outcome.structured or {}).get("exit_code")
        facts["exit_code"] = exit_code if isinstance(exit_code, int) else None
        self._journal.note("call.end", **_filled(facts))

    def _facts(self, entry: _Sending) -> dict[str, Any]:
        request = entry.request
        facts = {"call": entry.call_id, "run": request.run_id, "task": request.task_id, "step": request.step_id}
        return _filled(facts | {"agent": request.agent, "tool": request.tool[:256], "attempt": request.attempt})

    def _given(self, request: CallRequest) -> dict[str, Any]:
        facts = {"key": request.key, "approval": request.approval, "claim": request.claim}
        return _filled({**facts, "args": shape(request.arguments, self._mask)})


def _same_twice(request: CallRequest, tool: ToolInfo) -> bool:
    """Whether a call may be made again when nobody knows whether it was made."""
    return request.repeatable or tool.read_only or tool.idempotent or bool(tool.keyed and request.key)


def _filled(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value not in ("", None)}


def _outcome(answer: ServerAnswer) -> CallOutcome:
    status = CallStatus.TOOL_ERROR if answer.is_error else CallStatus.OK
    call_id, audit, error = (answer.meta.get(name) for name in (CALL_ID, AUDIT, ERROR))
    error = error or answer.meta.get(PROBLEM)
    why = cast("Mapping[str, Any]", error if isinstance(error, Mapping) and answer.is_error else {})
    code, message, suggestion = (str(why.get(name) or "") for name in ("code", "message", "suggestion"))
    text, structured = answer.text, answer.structured
    notes = [message] if message else []
    if len(text) > MOST_TEXT_CHARS:
        notes.append(f"the answer had {len(text)} characters; only the first are kept")
        text = text[:MOST_TEXT_CHARS]
    if structured is not None and (wrong := _not_kept(structured)):
        notes.append(f"the structured answer {wrong}, and is not kept")
        structured = None
    images, others = _images(answer.other_content)
    if others:
        notes.append(f"not kept: {', '.join(sorted(others))}")
    return CallOutcome(
        status,
        text,
        structured,
        code=code,
        message="; ".join(notes),
        suggestion=suggestion,
        call_id=call_id[:200] if isinstance(call_id, str) else "",
        audit=cast("Mapping[str, Any]", audit) if isinstance(audit, Mapping) else None,
        images=images,
    )


def _not_kept(structured: Mapping[str, Any]) -> str:
    """Why what a server answered is no value to hand on; ``""`` where it is one."""
    try:
        chars = len(json.dumps(structured, default=str, allow_nan=False))
    except ValueError:  # 1e999 is one in JSON, and none in what reads it
        return "has a number that is too large or not finite"
    return "is too long" if chars > MOST_TEXT_CHARS else ""


def _images(content: Sequence[Mapping[str, Any]]) -> tuple[tuple[Mapping[str, str], ...], set[str]]:
    """Those that are kept, and the kinds of what is not."""
    images, others, chars = list[Mapping[str, str]](), set[str](), 0
    for part in content:
        kind, data, media = (str(part.get(name) or "") for name in ("type", "data", "mimeType"))
        chars += len(data)
        if kind == "image" and media in IMAGES and chars <= MOST_IMAGE_CHARS:
            images.append({"type": media, "data": data})
        else:
            others.add(kind or "?")
    return tuple(images), others
