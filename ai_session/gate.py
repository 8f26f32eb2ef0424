"""The one door: every call of every way in passes ``Gate.call`` exactly once.

The order is fixed: audit opens, the tool is looked up, the rate is counted, arguments are validated, policy decides, a
person is asked where it says so, the call runs once per key, secrets are masked, audit closes whatever happened.
"""

from __future__ import annotations

import asyncio
import difflib
import errno
import os
from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ai_session.audit import AuditLog
from ai_session.call_keys import CallKeys
from ai_session.consent import Asker, Consent, Deferred, Watch
from ai_session.errors import (
    AiSessionError,
    Denied,
    InvalidArguments,
    RateLimited,
    StorageFull,
    TerminalsExhausted,
    UnknownTool,
)
from ai_session.masking import Masking
from ai_session.models import Answer, Effect, Principal, Question, SandboxLevel, SessionSpec, ToolCall, ToolResult
from ai_session.policy import Action, Decision, Policy
from ai_session.question import ask_about, digest
from ai_session.rate_limits import RateLimiter
from ai_session.recording import write_recording
from ai_session.report import recording_source
from ai_session.results import failure, masked, validate, with_note
from ai_session.session_manager import SessionManager
from ai_session.tools.base import Arguments, Context, Limits, Subject, Tool
from ai_session.viewer import Viewer
from ai_session.workspace import Workspaces

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ai_session.approvals import Grant
    from ai_session.audit import Entry

REFUSED = ("system_error", "run: ai-session doctor")
OUT_OF = (TerminalsExhausted.code, "close sessions, or raise the limits: ulimit -n (files), ulimit -u (processes)")
FULL = (StorageFull.code, "free space on the disk that holds the runtime directory")
REFUSALS = dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM), OUT_OF) | dict.fromkeys(
    (errno.ENOSPC, errno.EDQUOT, errno.EFBIG), FULL
)
"""What an error of the system is to a caller, by its number: code and suggestion."""

OUTCOMES: tuple[tuple[type[BaseException], str], ...] = (
    (InvalidArguments, "invalid"),
    (UnknownTool, "invalid"),
    (PermissionError, "denied"),
    (RateLimited, "limited"),
)
"""How the audit log calls what went wrong; anything else is a tool_error."""

AUDIT = "ai-session/audit"
SANDBOX = "ai-session/sandbox"


@dataclass(slots=True)
class Trace:
    """What the audit record of a call will say of it."""

    outcome: str = "crash"
    rule: str = ""
    code: str = ""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])

    def failed(self, error: AiSessionError) -> None:
        """How a call that was refused or went wrong is told."""
        self.outcome = next((told for kind, told in OUTCOMES if isinstance(error, kind)), "tool_error")
        self.code = error.code


class Gate:
    """Judges and runs calls. Made once per daemon."""

    def __init__(
        self,
        tools: Sequence[Tool],
        sessions: SessionManager,
        workspaces: Workspaces,
        policy: Policy,
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
        sessions.boxes.ask_domain = self._ask_domain

    def list_tools(self, principal: Principal) -> Sequence[Tool]:
        """The tools this principal may ever use, sorted by name."""
        return [t for t in self._tools.values() if self._decide(principal, t.name, t.effect).verdict != "deny"]

    async def call(self, call: ToolCall, asker: Asker | None = None) -> ToolResult:
        """Run one call. Raises UnknownTool only; every other failure is a result with ``is_error``.

        A result with a ``question`` ran nothing: the caller's person is to answer it. Cancelling the wait never ends a
        command.
        """
        entry = await self._audit.begin(
            call.call_id, call.principal, call.name, call.arguments,
            agent=call.agent, client_call_id=call.client_call_id,
        )  # fmt: skip
        trace = Trace()
        head: tuple[int, str] | None = None
        try:
            result = self._masked(await self._judge(call, asker, trace), trace)
            head = self._end(entry, trace)
        except UnknownTool as error:
            trace.failed(error)
            raise
        except AiSessionError as error:
            trace.failed(error)
            wait = {"retry_after_seconds": error.retry_after_seconds} if isinstance(error, RateLimited) else {}
            result = failure(error.code, error.message, error.suggestion, **wait)
        except OSError as error:
            trace.outcome, (trace.code, suggestion) = "tool_error", REFUSALS.get(error.errno or 0, REFUSED)
            result = failure(trace.code, f"the system refused: {error.strerror or error}", suggestion)
        except BaseException as error:
            trace.outcome = "crash" if isinstance(error, Exception) else "cancelled"
            raise
        finally:
            seq, newest = head or self._end(entry, trace)
        meta = {**result.meta, AUDIT: {"seq": seq, "head": newest}}
        return replace(result, call_id=call.call_id, meta=meta)

    def _end(self, entry: Entry, trace: Trace) -> tuple[int, str]:
        return self._audit.end(entry, trace.outcome, rule=trace.rule, code=trace.code, facts=trace.facts)

    async def _judge(self, call: ToolCall, asker: Asker | None, trace: Trace) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None:
            raise self._unknown(call.name)
        self._masking.learn(call.principal.env)
        self._audit.require_room(tool.effect)
        self._count(call.principal, tool)
        arguments, ignored = validate(tool, call.arguments)
        context = Context(
            call.principal, self._sessions, self._workspaces, self._limits, call.profile, spans=self._masking.spans
        )
        subject = tool.subject(context, arguments)
        trace.facts |= _facts(subject)
        decision = self._policy.decide(_action(call, tool, subject))
        trace.rule = decision.rule
        trace.facts["decision"] = {
            "verdict": decision.verdict,
            "policy": self._policy.digest,
            "mode": self._policy.mode,
        }
        if decision.verdict == "deny":
            raise Denied(f"{tool.name} is denied by {decision.rule}: {decision.reason}", suggestion=DENIED)
        if decision.verdict == "ask":
            question = self._question(call, subject, arguments, decision)
            deferred = await self._agreed(question, asker, call, trace)
            if deferred:
                return deferred
        result = await self._run(tool, arguments, replace(context, subject=subject))
        self._rates.spend(_key(call.principal), "output_bytes", len(result.text))
        trace.outcome = "ok"
        if tool.name == "close_session" and subject.session:
            self._consent.end_session(subject.session.spec.session_id)
        trace.facts |= {k: result.structured[k] for k in OUTCOME_FACTS if k in result.structured}
        meta = {SANDBOX: _box(subject)} if subject.session else {}
        return replace(with_note(result, ignored), meta={**result.meta, **meta})

    def _count(self, principal: Principal, tool: Tool) -> None:
        key = _key(principal)
        self._rates.acquire(key, "output_bytes", 0)
        self._rates.acquire(key, "read" if tool.effect is Effect.READ else "effect")
        if tool.name == "create_session":
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
        about = subject.command or (place.directory if place and place.outside else "")
        if subject.raw_input:
            about = " ".join([repr(given.get("text", "")), *given.get("keys", ())])
        where = f"{session.at.cwd}, sandbox {_box(subject)}" if session else f"sandbox {_box(subject)}"
        return ask_about(
            call.principal,
            call.name,
            given | ({"profile": call.profile} if call.profile else {}),
            session=session.spec.session_id if session else "",
            about=self._masking.masked(about),
            where=where,
            detail=f"{self._masking.masked(about)} #{digest({'about': about})[:16]}" if about else "",
            rule=decision.rule,
            reason=decision.reason,
            policy=self._policy.digest,
        )

    async def _run(self, tool: Tool, arguments: Arguments, context: Context) -> ToolResult:
        key: str = getattr(arguments, "call_key", "")

        async def run(repeated: bool) -> ToolResult:
            return await tool.run(replace(context, repeated=repeated), arguments)

        if not key:
            return await run(False)
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

    def _unknown(self, name: str) -> UnknownTool:
        near = difflib.get_close_matches(name, self._tools, n=1)
        return UnknownTool(
            f"unknown tool {name[:60]!r}",
            suggestion=f"did you mean {near[0]!r}?" if near else f"tools: {', '.join(self._tools)}",
        )

    def _decide(self, principal: Principal, name: str, effect: Effect | None, session: str = "") -> Decision:
        return self._policy.decide(Action(principal, name, effect, session=session))

    @asynccontextmanager
    async def _recorded(
        self, principal: Principal, name: str, effect: Effect, arguments: Mapping[str, Any]
    ) -> AsyncGenerator[Trace]:
        """What a person does beside the tools: judged and recorded like a call."""
        entry = await self._audit.begin("", principal, name, arguments)
        trace = Trace()
        try:
            self._audit.require_room(effect)
            decision = self._decide(principal, name, effect, str(arguments.get("session_id", "")))
            trace.rule = decision.rule
            if principal.kind != "person" or decision.verdict != "allow":
                raise Denied(f"{name} is for a person ({decision.reason})", suggestion="ask the person to do it")
            yield trace
            trace.outcome = "ok"
        except AiSessionError as error:
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
        async with self._recorded(principal, "answer", Effect.WRITE, given):
            if question_id.startswith("gr_") and not answer.allowed:
                return self._consent.revoke(question_id, principal).what
            return self._consent.answer(question_id, answer, principal).message

    async def watch(self, principal: Principal) -> Watch:
        """The questions this person may answer, as they come and go. Raises Denied."""
        async with self._recorded(principal, "watch", Effect.READ, {}):
            return self._consent.watch(principal)

    @asynccontextmanager
    async def sandboxed(self, principal: Principal, argv: Sequence[str], profile: str) -> AsyncGenerator[Trace]:
        """Around a program that a person runs in a box on their own terminal. Raises Denied, StorageFull."""
        given = {"command": " ".join(argv), "profile": profile}
        async with self._recorded(principal, "sandbox", Effect.EXECUTE, given) as trace:
            yield trace

    async def _ask_domain(self, spec: SessionSpec, domain: str) -> bool:
        principal = Principal("mcp", os.getuid(), client="network")
        action = Action(principal, "network", Effect.NETWORK, session=spec.name, profile=spec.profile.name,
                        level=spec.level, domain=domain)  # fmt: skip
        decision = self._policy.decide(action)
        if decision.verdict != "ask":
            return decision.verdict == "allow"
        question = ask_about(
            principal, "network", {"domain": domain}, session=spec.session_id, about=domain, where="", detail=domain,
            rule=decision.rule, reason=decision.reason, policy=self._policy.digest,
        )  # fmt: skip
        try:
            return isinstance(await self._consent.obtain(question, None), Answer)
        except AiSessionError:
            return False


DENIED = "do something else, or ask the person, whose configuration says so"
OUTCOME_FACTS = ("status", "exit_code", "command_id", "omitted_bytes")


def _key(principal: Principal) -> str:
    return f"{principal.kind}:{principal.uid}:{principal.pid}"


def _action(call: ToolCall, tool: Tool, subject: Subject) -> Action:
    session, place = subject.session, subject.place
    return Action(
        principal=call.principal,
        tool=tool.name,
        effect=tool.effect,
        agent=call.agent,
        session=session.spec.name if session else "",
        profile=subject.profile.name,
        level=subject.level,
        command=subject.command,
        raw_input=subject.raw_input,
        paths=(place.directory,) if place else (),
        outside_workspace=bool(place and place.outside),
        loosens=subject.loosens,
    )


def _facts(subject: Subject) -> dict[str, Any]:
    facts: dict[str, Any] = {"profile": subject.profile.name, "level": str(subject.level)}
    if session := subject.session:
        facts |= {"session": session.spec.session_id, "name": session.spec.name, "cwd": session.at.cwd}
    elif subject.place:
        facts["cwd"] = subject.place.directory
    return facts


def _box(subject: Subject) -> str:
    return "none" if subject.level is SandboxLevel.NONE else f"{subject.profile.name} ({subject.level})"
