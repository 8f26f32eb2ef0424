"""The only way to call tools: who may, with which arguments, how often, and the record of it."""

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
from ccswarm.plan.schemas import Schema
from ccswarm.toolbox.arguments import Mask, masked, not_json, shape
from ccswarm.toolbox.catalogue import Catalogue
from ccswarm.toolbox.grants import Grants
from ccswarm.toolbox.telemetry.base import Telemetry

CALL_ID, AUDIT, ERROR = "ai-session/call_id", "ai-session/audit", "ai-session/error"
"""The keys of a result's ``_meta`` that servers set."""

PROBLEM = "ccswarm/problem"
"""The key of ``_meta`` that the client sets: the server refused the request itself, or its answer is unusable."""

AGENT, CLIENT_CALL_ID, RUN = "ai-session/agent", "ai-session/client_call_id", "ai-session/run"
"""The keys of a request's ``_meta`` with facts about the call."""

MOST_TEXT_CHARS = 1 << 20
"""The number of characters of an answer that are stored: outcomes are stored with the run, step by step."""

IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
MOST_IMAGE_CHARS = 3 << 20
"""The number of base64 characters of images of one answer that are stored."""

MOST_SENDS = 3
"""How often a call is sent if its server ends during it and repeating it is harmless."""

Budgeted = Callable[[CallRequest], Awaitable[str]]
"""Takes a call from the budgets. Returns the name of the one that is used up, or ``""``."""

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
    """A single sending of a call; ``begun`` once its begin record is written."""

    request: CallRequest
    approved: Callable[[CallRequest], bool]
    on_progress: OnProgress | None
    budget: Budgeted | None
    began: float
    call_id: str = field(default_factory=lambda: CALL_PREFIX + secrets.token_hex(16))
    begun: bool = False
    repeatable: bool = False
    carried: Mapping[str, str] = field(default_factory=dict[str, str])
    """What is sent along for telemetry."""
    outcome: CallOutcome = field(default_factory=lambda: CallOutcome(CallStatus.LOST))


class Toolbox:
    """The tools of ``clients`` for ``agents``, both by name. ``mask`` removes secrets from the text of commands before
    it is recorded in the journal; ``process`` names this process, if another may take over its calls. Raises
    ConfigInvalid for a server whose name has a dot."""

    def __init__(
        self,
        clients: Mapping[str, ToolClient],
        agents: Mapping[str, AgentSettings],
        journal: Journal,
        *,
        mask: Mask = str,
        process: str = "",
        telemetry: Telemetry | None = None,
    ) -> None:
        self._clients = clients
        self._agents = agents
        self._grants = {name: Grants(agent.grants) for name, agent in agents.items()}
        self._journal = journal
        self._mask = mask
        self._process = process
        self._telemetry = telemetry or Telemetry()
        self._catalogue = Catalogue(clients)
        self._schemas: dict[str, tuple[Mapping[str, Any], Schema]] = {}

    async def discover_tools(self, agent: str) -> Sequence[ToolInfo]:
        """Return the tools that the agent is granted, in the order of the configuration. A server that cannot be
        reached is left out, and ``problems`` names it. Raises UsageInvalid for an unknown agent."""
        if agent not in self._agents:
            raise UsageInvalid(f"there is no agent {agent[:80]!r}")
        grants = self._grants[agent]
        return [info for info in await self._catalogue.all(grants.covers_server) if grants.allows(info.full_name)]

    async def list_tools(self, server: str) -> Sequence[ToolInfo]:
        """Return all tools of one server, granted to an agent or not. Raises ServerUnavailable."""
        return await self._catalogue.of(server)

    def problems(self) -> Mapping[str, str]:
        """Return what was wrong when last used, by server or by a tool's full name."""
        schemas = {name: schema.unusable for name, (_, schema) in self._schemas.items() if schema.unusable}
        return {**schemas, **self._catalogue.problems()}

    def require_logins(self, agents: Sequence[AgentSettings], servers: Collection[str]) -> None:
        """Raise LoginNeeded if one of ``servers``, or one that an agent may use, required a login when last used."""
        for server, needed in self._catalogue.locked().items():
            if server in servers or any(Grants(agent.grants).covers_server(server) for agent in agents):
                raise LoginNeeded(needed.message, suggestion=needed.suggestion)

    async def find(self, tool: str) -> ToolInfo:
        """Return the tool with that full name, granted to an agent or not. Raises UnknownTool and ServerUnavailable."""
        return await self._catalogue.find(tool)

    def needs_approval(self, agent: str, tool: ToolInfo) -> bool:
        """Report whether a person has to approve a call. Raises UsageInvalid for an unknown agent."""
        if agent not in self._agents:
            raise UsageInvalid(f"there is no agent {agent[:80]!r}")
        approval = self._agents[agent].approval
        return approval == "all" or (approval == "destructive" and not tool.read_only)

    async def call(
        self,
        request: CallRequest,
        *,
        budget: Budgeted | None,
        approved: Callable[[CallRequest], bool],
        on_progress: OnProgress | None = None,
    ) -> CallOutcome:
        """Check a call, make it and record both. Never raises, except when cancelled, which is recorded too.

        The checks are, in this order: the agent is known, the tool exists and is granted, the arguments match its
        schema, a person has approved if one has to, no other process may have made the call, and the budget suffices.
        The first that fails is the outcome, and nothing is sent. The begin record is written before sending. A call
        that was lost with its server is sent and recorded again if repeating it is harmless: it has the same key, the
        tool only reads or is idempotent, or the caller says so.
        """
        entry = _Sending(request, approved, on_progress, budget, time.monotonic())
        outcome = await self._send_traced(entry)
        for _ in range(1, MOST_SENDS):
            if outcome.status is not CallStatus.LOST or not entry.repeatable:
                break
            entry = _Sending(request, approved, on_progress, None, time.monotonic())
            again = await self._send_traced(entry)
            if not entry.begun:  # the outcome of the previous sending is still unknown
                break
            outcome = again
        return outcome

    async def _send_traced(self, entry: _Sending) -> CallOutcome:
        with self._telemetry.call(entry.request, entry) as entry.carried:
            return await self._send_recorded(entry)

    async def _send_recorded(self, entry: _Sending) -> CallOutcome:
        try:
            entry.outcome = await self._check_and_send(entry)
        except asyncio.CancelledError:
            entry.outcome = CallOutcome(CallStatus.CANCELLED, code="cancelled", message="the call was cancelled")
            raise
        except SwarmError as error:
            entry.outcome = self._outcome_from_error(entry, error)
        except (
            Exception
        ) as error:  # of a client, a budget or an approval: becomes an outcome, or the run would end here
            status = CallStatus.LOST if entry.begun else CallStatus.UNAVAILABLE
            message = f"{type(error).__name__}: {error}"[:2000]
            entry.outcome = CallOutcome(status, code="internal_error", message=message)
        finally:
            entry.outcome = replace(entry.outcome, duration_seconds=time.monotonic() - entry.began)
            self._record_end(entry)
        return entry.outcome

    async def _check_and_send(self, entry: _Sending) -> CallOutcome:
        request = entry.request
        if request.agent not in self._agents:
            raise NotGranted(f"there is no agent {request.agent[:80]!r}", suggestion="use an agent of the swarm")
        tool = await self.find(request.tool)
        if not self._grants[request.agent].allows(tool.full_name):
            raise NotGranted(
                f"agent {request.agent} may not use {tool.full_name}", suggestion="use a tool from its list"
            )
        arguments = self._validated_arguments(request, tool)
        if self.needs_approval(request.agent, tool) and not entry.approved(request):
            raise ApprovalNeeded(f"a person must approve {tool.full_name}", suggestion="ccswarm approvals")
        self._require_unclaimed(request, tool)
        if entry.budget and (name := await entry.budget(request)):
            raise BudgetExhausted(f"{name} is used up", suggestion="raise the budget, and resume the run")
        self._journal.append("call.begin", **self._facts(entry), **self._input_facts(request))
        entry.begun = True
        entry.repeatable = _may_repeat(request, tool)
        # Agents of a run write to each other, while terminals belong to one attempt.
        run = request.run_id if tool.server == OWN_SERVER else request.principal or request.run_id
        identity = {} if request.for_user else {AGENT: request.agent, RUN: run}
        meta = {**entry.carried, CLIENT_CALL_ID: entry.call_id, **identity}
        answer = await self._clients[tool.server].call(
            tool.name,
            arguments,
            meta={name: value for name, value in meta.items() if value},
            timeout_seconds=request.timeout_seconds,
            on_progress=entry.on_progress,
        )
        return _outcome_from_answer(answer)

    def _validated_arguments(self, request: CallRequest, tool: ToolInfo) -> Mapping[str, Any]:
        """Return the arguments as they are sent. Raises InvalidArguments."""
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

    def _require_unclaimed(self, request: CallRequest, tool: ToolInfo) -> None:
        """Raise ServerLost if another process may have made the call, and repeating it is not harmless."""
        foreign = request.claim and self._process and request.claim != self._process
        if foreign and not _may_repeat(request, tool):
            raise ServerLost(
                f"another process was about to call {tool.full_name} and ended: whether it called it is unknown",
                suggestion="check its effect, then continue from there",
            )

    def _outcome_from_error(self, entry: _Sending, error: SwarmError) -> CallOutcome:
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
            # A server's message may contain anything.
            facts["message"] = masked(outcome.message, self._mask, 1000) if ours else ""
            self._journal.note("call.refused", **_without_empty(facts), **self._input_facts(request))
            return
        facts |= {"server_call": outcome.call_id, "audit": outcome.audit, "answer_chars": len(outcome.text)}
        exit_code = (outcome.structured or {}).get("exit_code")
        facts["exit_code"] = exit_code if isinstance(exit_code, int) else None
        self._journal.note("call.end", **_without_empty(facts))

    def _facts(self, entry: _Sending) -> dict[str, Any]:
        request = entry.request
        facts = {"call": entry.call_id, "run": request.run_id, "task": request.task_id, "step": request.step_id}
        return _without_empty(facts | {"agent": request.agent, "tool": request.tool[:256], "attempt": request.attempt})

    def _input_facts(self, request: CallRequest) -> dict[str, Any]:
        facts = {"key": request.key, "approval": request.approval, "claim": request.claim}
        return _without_empty({**facts, "args": shape(request.arguments, self._mask)})


def _may_repeat(request: CallRequest, tool: ToolInfo) -> bool:
    """Report whether a call may be repeated if it is unknown whether it was made."""
    return request.repeatable or tool.read_only or tool.idempotent or bool(tool.keyed and request.key)


def _without_empty(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if value not in ("", None)}


def _outcome_from_answer(answer: ServerAnswer) -> CallOutcome:
    status = CallStatus.TOOL_ERROR if answer.is_error else CallStatus.OK
    call_id, audit, error = (answer.meta.get(name) for name in (CALL_ID, AUDIT, ERROR))
    error = error or answer.meta.get(PROBLEM)
    details = cast("Mapping[str, Any]", error if isinstance(error, Mapping) and answer.is_error else {})
    code, message, suggestion = (str(details.get(name) or "") for name in ("code", "message", "suggestion"))
    text, structured = answer.text, answer.structured
    notes = [message] if message else []
    if len(text) > MOST_TEXT_CHARS:
        notes.append(f"the answer had {len(text)} characters; only the first are kept")
        text = text[:MOST_TEXT_CHARS]
    if structured is not None and (wrong := _not_storable(structured)):
        notes.append(f"the structured answer {wrong}, and is not kept")
        structured = None
    images, others = _split_images(answer.other_content)
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


def _not_storable(structured: Mapping[str, Any]) -> str:
    """Return why a structured answer cannot be stored; ``""`` if it can."""
    try:
        chars = len(json.dumps(structured, default=str, allow_nan=False))
    except ValueError:  # 1e999 is valid JSON, but infinite in Python
        return "has a number that is too large or not finite"
    return "is too long" if chars > MOST_TEXT_CHARS else ""


def _split_images(content: Sequence[Mapping[str, Any]]) -> tuple[tuple[Mapping[str, str], ...], set[str]]:
    """Return the images to store, and the kinds of the content that is not stored."""
    images = list[Mapping[str, str]]()
    others = set[str]()
    chars = 0
    for part in content:
        kind, data, media = (str(part.get(name) or "") for name in ("type", "data", "mimeType"))
        chars += len(data)
        if kind == "image" and media in IMAGES and chars <= MOST_IMAGE_CHARS:
            images.append({"type": media, "data": data})
        else:
            others.add(kind or "?")
    return tuple(images), others
