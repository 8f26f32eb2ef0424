"""The one door: every call of every way in passes ``Gate.call`` exactly once.

The order is fixed: audit opens, the tool is looked up, the rate is counted, arguments are validated, policy decides, a
person is asked where it says so, the call runs once per key, secrets are masked, audit closes whatever happened.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ai_session import gate_secrets
from ai_session.audit import AuditLog
from ai_session.call_keys import CallKeys
from ai_session.consent import Asker, Consent, Deferred, Watch
from ai_session.errors import (
    AiSessionError,
    Denied,
    InvalidArguments,
    RateLimited,
    StorageFull,
    UnknownTool,
)
from ai_session.gate_domains import DomainQuestions
from ai_session.gate_subject import action_of, box_of, facts_of
from ai_session.masking import Masking
from ai_session.models import Answer, Effect, Principal, Question, ToolCall, ToolResult
from ai_session.policy import Action, Decision
from ai_session.policy_mode import PolicyInForce
from ai_session.policy_prefix import offered
from ai_session.question import ask_about, narrowed, told
from ai_session.rate_limits import RateLimiter
from ai_session.recording import write_recording
from ai_session.report import recording_source
from ai_session.results import masked, refusal, unknown_tool, validate, with_note
from ai_session.session_manager import SessionManager
from ai_session.tools.base import Arguments, Context, Limits, Subject, Tool
from ai_session.viewer import Viewer
from ai_session.workspace import Workspaces

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ai_session.approvals import Grant
    from ai_session.audit import Entry

OUTCOMES: tuple[tuple[type[BaseException], str], ...] = (
    (InvalidArguments, "invalid"),
    (UnknownTool, "invalid"),
    (PermissionError, "denied"),
    (RateLimited, "limited"),
)
"""How the audit log calls what went wrong; anything else is a tool_error."""

AUDIT = "ai-session/audit"
SANDBOX = "ai-session/sandbox"
STOP, BOXED = "stop", "sandbox"
LOST = "lost"


@dataclass(slots=True)
class Trace:
    """What the audit record of a call will say of it; its result names the ``box``."""

    outcome: str = "crash"
    rule: str = ""
    code: str = ""
    box: str = ""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])

    def failed(self, error: BaseException) -> None:
        """How a call that was refused, went wrong or was given up is told; what is lost stays lost."""
        if isinstance(error, AiSessionError):
            self.outcome = next((told for kind, told in OUTCOMES if isinstance(error, kind)), "tool_error")
            self.code = error.code
        elif isinstance(error, OSError):
            self.outcome, self.code = "tool_error", refusal(error)[0]
        elif isinstance(error, Exception):
            self.outcome = "crash"
        elif self.outcome != LOST:
            self.outcome = "cancelled"


class Gate:
    """Judges and runs calls. Made once per daemon."""

    def __init__(
        self,
        tools: Sequence[Tool],
        sessions: SessionManager,
        workspaces: Workspaces,
        policy: PolicyInForce,
        rates: RateLimiter,
        consent: Consent,
        masking: Masking,
        audit: AuditLog,
        call_keys: CallKeys,
        limits: Limits,
    ) -> None:
        self._tools = {tool.name: tool for tool in sorted(tools, key=lambda t: t.name)}
        self._sessions = sessions
        self._workspaces = workspaces
        self._policy = policy
        self._rates = rates
        self._consent = consent
        self._masking = masking
        self._audit = audit
        self._call_keys = call_keys
        self._limits = limits
        self._domains = DomainQuestions(policy, consent, masking.masked)
        sessions.boxes.ask_domain = self._domains.ask

    def list_tools(self, principal: Principal) -> Sequence[Tool]:
        """The tools this principal may ever use, sorted by name."""
        return [t for t in self._tools.values() if not self._policy.rules_out(Action(principal, t.name, t.effect))]

    async def call(self, call: ToolCall, asker: Asker | None = None) -> ToolResult:
        """Run one call. Raises UnknownTool only; every other failure is a result with ``is_error``.

        A result with a ``question`` ran nothing: the caller's person is to answer it. Cancelling the wait never ends a
        command.
        """
        recorded, unsafe = gate_secrets.learn(self._masking, call.principal, call.arguments)
        entry = await self._audit.begin(
            call.call_id, call.principal, call.name, recorded,
            agent=call.agent, client_call_id=call.client_call_id,
        )  # fmt: skip
        trace = Trace()
        head: tuple[int, str] | None = None
        failed = partial(gate_secrets.failed, self._masking, call.arguments)
        try:
            if unsafe:
                raise unsafe
            result = self._masked(await self._judge(call, asker, trace), trace)
            head = self._end(entry, trace)
        except UnknownTool as error:
            trace.failed(error)
            raise
        except AiSessionError as error:
            trace.failed(error)
            wait = {"retry_after_seconds": error.retry_after_seconds} if isinstance(error, RateLimited) else {}
            result = failed(error.code, error.message, error.suggestion, **wait)
        except OSError as error:
            trace.failed(error)
            code, suggestion = refusal(error)
            result = failed(code, f"the system refused: {error.strerror or error}", suggestion)
        except BaseException as error:
            trace.failed(error)
            raise
        finally:
            seq, newest = head or self._end(entry, trace)
        meta = {**result.meta, AUDIT: {"seq": seq, "head": newest}}
        if trace.box:
            meta[SANDBOX] = trace.box
        return ToolResult(
            result.text, result.structured, result.is_error, call.call_id, meta, result.question, result.state
        )

    def _end(self, entry: Entry, trace: Trace) -> tuple[int, str]:
        return self._audit.end(entry, trace.outcome, rule=trace.rule, code=trace.code, facts=trace.facts)

    async def _judge(self, call: ToolCall, asker: Asker | None, trace: Trace) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            raise unknown_tool(self._masking.masked(call.name), self._tools)
        self._audit.require_room(tool.effect)
        self._count(call.principal, tool.effect, opens=tool.name == "create_session")
        arguments, ignored = validate(tool, call.arguments)
        context = Context(
            call.principal, self._sessions, self._workspaces, self._limits, call.profile, spans=self._masking.spans
        )
        subject = tool.subject(context, arguments)
        gate_secrets.learn_session(self._masking, self._sessions, subject)
        trace.facts |= facts_of(subject)
        decision = self._policy.decide(action_of(call, tool, subject))
        trace.rule = decision.rule
        trace.facts["decision"] = self._told(decision)
        if decision.verdict == "deny":
            raise Denied(f"{tool.name} is denied by {decision.rule}: {decision.reason}", suggestion=DENIED)
        if decision.verdict == "ask":
            question = self._question(call, subject, arguments, decision)
            deferred = await self._agreed(question, asker, call, trace)
            if deferred:
                return deferred
        if subject.session and tool.effect is not Effect.READ:
            self._domains.acted(subject.session.spec.session_id, call.principal)
        result = await self._run(tool, arguments, replace(context, subject=subject), trace)
        self._rates.spend(_key(call.principal), "output_bytes", len(result.text))
        trace.outcome = "ok"
        if tool.name == "close_session" and subject.session:
            self._consent.end_session(subject.session.spec.session_id)
        if tool.name == "create_session" and (made := self._sessions.find(str(result.structured.get("session_id")))):
            subject = Subject(made, made.spec.profile, made.spec.level)
            trace.facts |= facts_of(subject)
        trace.facts |= {k: result.structured[k] for k in OUTCOME_FACTS if k in result.structured}
        if subject.session:
            trace.box = box_of(subject)
        return with_note(result, ignored and self._masking.echo(ignored, call.arguments))

    def _count(self, principal: Principal, effect: Effect, *, opens: bool = False) -> None:
        key = _key(principal)
        self._rates.acquire(key, "output_bytes", 0)
        self._rates.acquire(key, "read" if effect is Effect.READ else "effect")
        if opens:
            self._rates.acquire(key, "sessions")

    async def _agreed(self, question: Question, asker: Asker | None, call: ToolCall, trace: Trace) -> ToolResult | None:
        """None once a person agreed; a result when the client is to ask its person first. Raises Denied, ConsentNeeded,
        RateLimited."""
        answer = await self._consent.obtain(question, asker, call.state, call.answers)
        if isinstance(answer, Deferred):
            trace.outcome, trace.facts["consent"] = "denied", {"id": answer.question.question_id, "deferred": True}
            return ToolResult(question.message, {}, question=answer.question, state=answer.state)
        trace.facts["consent"] = {"by": answer.by, "scope": answer.scope}
        return None

    def _question(self, call: ToolCall, subject: Subject, arguments: Arguments, decision: Decision) -> Question:
        place, session = subject.place, subject.session
        given = arguments.model_dump(exclude={"call_key"})
        first = subject.command or (place.directory if place else "")
        if subject.raw_input:
            first = " ".join([repr(given.get("text", "")), *given.get("keys", ())])
        about = told(given, first)
        masked = self._masking.masked(about)
        where = f"{session.at.cwd if session else 'new'}, sandbox {box_of(subject)}"
        return ask_about(
            call.principal,
            call.name,
            given | ({"profile": call.profile} if call.profile else {}),
            session=session.spec.session_id if session else "",
            name=session.spec.name if session else given.get("name", ""),
            about=masked,
            where=self._masking.masked(where),
            detail=narrowed(about, masked),
            rule=decision.rule,
            reason=self._masking.echo(decision.reason, given),
            policy=self._policy.digest,
            prefix=offered(about, decision.rule) if masked == subject.command else "",
        )

    async def _run(self, tool: Tool, arguments: Arguments, context: Context, trace: Trace) -> ToolResult:
        key: str = getattr(arguments, "call_key", "")

        async def run(repeated: bool) -> ToolResult:
            return self._masked(await tool.run(replace(context, repeated=repeated), arguments), trace)

        if not key:
            return await tool.run(context, arguments)
        plain = arguments.model_dump(exclude={"call_key"})
        return await self._call_keys.once(tool.name, key, plain, run, resumable=tool.resumable)

    def _masked(self, result: ToolResult, trace: Trace) -> ToolResult:
        """The result without secrets. A question was masked when it was made."""
        if result.question:
            return result
        result, count = masked(result, self._masking.mask)
        if count:
            trace.facts["redactions"] = count
        return result

    def _told(self, decision: Decision) -> dict[str, str]:
        return {"verdict": decision.verdict, "policy": self._policy.digest, "mode": self._policy.mode}

    @asynccontextmanager
    async def _recorded(
        self, principal: Principal, name: str, effect: Effect, arguments: Mapping[str, Any], *actions: Action
    ) -> AsyncGenerator[Trace]:
        """What a person does beside the tools: judged, as all of ``actions`` where it is several, and recorded."""
        arguments, unsafe = gate_secrets.learn(self._masking, principal, arguments)
        entry = await self._audit.begin("call_" + secrets.token_urlsafe(16), principal, name, arguments)
        trace = Trace()
        try:
            if unsafe and name != STOP:
                raise unsafe
            if name != STOP:
                self._audit.require_room(effect)
                self._count(principal, effect)
            if principal.kind != "person":
                raise Denied(f"{name} is for a person", suggestion="ask the person to do it")
            for action in actions or (Action(principal, name, effect),):
                decision = self._policy.decide(action)
                trace.rule, trace.facts["decision"] = decision.rule, self._told(decision)
                if decision.verdict != "allow":
                    by_hand = f"kill {os.getpid()} ends the daemon all the same" if name == STOP else CONFIGURED
                    raise Denied(f"{name} is denied by {decision.rule}: {decision.reason}", suggestion=by_hand)
            trace.outcome = "ok"
            yield trace
        except BaseException as error:
            trace.failed(error)
            raise
        finally:
            self._end(entry, trace)

    async def attach(self, principal: Principal, reference: str, *, rows: int, cols: int, read_only: bool) -> Viewer:
        """A person's live view of a session. Raises SessionNotFound, SessionExited, Denied."""
        effect = Effect.READ if read_only else Effect.EXECUTE
        async with self._recorded(principal, "attach", effect, {"session_id": reference, "read_only": read_only}):
            viewer = Viewer(self._sessions.get(reference), read_only=read_only)
            await viewer.resize(rows, cols)
            return viewer

    async def rename(self, principal: Principal, reference: str, name: str) -> None:
        """Give a session another name, for a person. Raises SessionNotFound, SessionExists, Denied."""
        async with self._recorded(principal, "rename", Effect.WRITE, {"session_id": reference, "name": name}):
            await self._sessions.rename(reference, name)

    async def recording(self, principal: Principal, reference: str) -> Path:
        """A new file with the session as asciicast, for a person, who removes it. Raises SessionNotFound, Denied."""
        async with self._recorded(principal, "record", Effect.READ, {"session_id": reference}):
            source = recording_source(self._sessions.get(reference))
            folder = self._sessions.runtime_directory / "recordings"
            return await asyncio.to_thread(write_recording, source, self._masking.spans, folder)

    async def approvals(self, principal: Principal) -> tuple[list[Question], list[Grant]]:
        """The open questions, and what was allowed for longer than one call. Raises Denied."""
        async with self._recorded(principal, "approvals", Effect.READ, {}):
            return self._consent.pending(), self._consent.grants()

    async def answer(self, principal: Principal, question_id: str, answer: Answer) -> str:
        """A person's word on a question, or a denial that ends a grant; returns what it was about.

        Raises InvalidArguments for an unknown id, Denied when the one who answers may be the one who asks.
        """
        given = {"name": question_id, "allowed": answer.allowed, "reason": answer.reason}
        async with self._recorded(principal, "answer", Effect.READ, given):
            if question_id.startswith("gr_") and not answer.allowed:
                self._sessions.boxes.forget_answers()
                return self._consent.revoke(question_id, principal).what
            return self._consent.answer(question_id, answer, principal).message

    async def watch(self, principal: Principal) -> Watch:
        """The questions this person may answer, as they come and go. Raises Denied."""
        async with self._recorded(principal, "watch", Effect.READ, {}):
            return self._consent.watch(principal)

    async def stop(self, principal: Principal, leave: Callable[[], None], *, sessions: bool) -> str:
        """A person ends the daemon, which ``leave`` begins, with every session or without. Raises Denied.

        An audit log that cannot be written does not keep it from ending; returns what is wrong with it, or ``""``.
        """
        problem = ""
        async with self._recorded(principal, STOP, Effect.DESTRUCTIVE, {"sessions": sessions}):
            try:
                self._audit.require_room(None)
            except StorageFull as error:
                problem = error.message
            leave()
        return problem

    @asynccontextmanager
    async def sandboxed(
        self, principal: Principal, argv: Sequence[str], *, profile: str, workspace: str, domains: Sequence[str]
    ) -> AsyncGenerator[Trace]:
        """Around a program that a person runs in a box on their own terminal. Raises Denied, RateLimited, StorageFull.

        Its end counts as lost until who runs it says more: ``outcome``, and the facts ``level`` and ``exit_code``.
        """
        command = shlex.join(argv)
        given = {"command": command, "profile": profile, "working_directory": workspace, "domains": list(domains)}
        run = Action(principal, BOXED, Effect.EXECUTE, profile=profile, command=command, paths=(workspace,))
        reached = (Action(principal, BOXED, Effect.NETWORK, profile=profile, domain=name) for name in domains)
        async with self._recorded(principal, BOXED, Effect.EXECUTE, given, run, *reached) as trace:
            trace.outcome = LOST
            trace.facts |= {"profile": profile, "cwd": workspace, "domains": list(domains) or None}
            yield trace

    async def policy(self, principal: Principal, mode: str = "") -> dict[str, Any]:
        """The policy's facts, after setting the mode where one is given, which tightens for anyone.

        Raises InvalidArguments, and Denied where it would loosen and is not a person's own word.
        """
        async with self._recorded(principal, "policy", Effect.READ, {"name": mode} if mode else {}) as trace:
            if mode:
                self._policy.set_mode(mode, by_person=await self._consent.is_person(principal))
                trace.facts["mode"] = mode
            return self._policy.facts()


DENIED = "do something else, or ask the person, whose configuration says so"
CONFIGURED = "your configuration says so: ai-session config show"
OUTCOME_FACTS = ("status", "exit_code", "command_id", "omitted_bytes")


def _key(principal: Principal) -> str:
    return f"{principal.kind}:{principal.uid}:{principal.pid}"
