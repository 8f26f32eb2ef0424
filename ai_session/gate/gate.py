"""The one door: every call of every way in passes ``Gate.call`` exactly once.

The order is fixed: audit opens, the tool is looked up, the rate is counted, arguments are validated, policy decides, a
person is asked where it says so, the call runs once per key, secrets are masked, audit closes whatever happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ai_session.audit.log import AuditLog
from ai_session.errors import AiSessionError, Denied, UnknownTool
from ai_session.gate import secrets as gate_secrets
from ai_session.gate.api import Asker
from ai_session.gate.changes import ChangeDoor
from ai_session.gate.consent.consent import Consent, Deferred
from ai_session.gate.consent.question import ask_about, narrowed, told
from ai_session.gate.domains import DomainQuestions
from ai_session.gate.feed import Feed
from ai_session.gate.hook import call_facts
from ai_session.gate.idempotency import CallKeys
from ai_session.gate.policy.mode import PolicyInForce
from ai_session.gate.policy.policy import ENDING, LISTING, OUTSIDE, Decision, stricter
from ai_session.gate.policy.prefix import offered
from ai_session.gate.rate_limits import RateLimiter
from ai_session.gate.redaction.known_secrets import Masking
from ai_session.gate.results import masked, refusal, unknown_tool, validate, with_note, with_notices
from ai_session.gate.subject import action_of, box_of, facts_of
from ai_session.gate.telemetry.base import Telemetry
from ai_session.gate.trace import Trace, more_of, rate_key
from ai_session.gate.written import WrittenDirectories
from ai_session.models import Effect, Question, SandboxLevel, ToolCall, ToolResult
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.ownership import reach_of_call, require_scope
from ai_session.sessions.visible import VisibleSessions
from ai_session.sessions.workspaces import Workspaces
from ai_session.system.shell_words import parse
from ai_session.tools.base import Arguments, Context, Limits, Subject, Tool

CALL_SECONDS = 0.0005
"""Counted for each call before what it really takes: those of one caller do not begin before those of another."""

AUDIT = "ai-session/audit"
SANDBOX = "ai-session/sandbox"


class Gate(ChangeDoor):
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
        telemetry: Telemetry | None = None,
        written: WrittenDirectories | None = None,
    ) -> None:
        super().__init__(sessions, policy, rates, consent, masking, audit, written)
        self.feed = Feed(sessions, consent, policy, masking, audit)
        self._tools = {tool.name: tool for tool in sorted(tools, key=lambda t: t.name)}
        self._workspaces = workspaces
        self._call_keys = call_keys
        self._limits = limits
        self._telemetry = telemetry or Telemetry()
        self._turns = sessions.turns
        self._domains = DomainQuestions(policy, consent, masking.masked)
        sessions.boxes.ask_domain = self._domains.ask

    async def call(self, call: ToolCall, asker: Asker | None = None) -> ToolResult:
        """Run one call. Raises UnknownTool only; every other failure is a result with ``is_error``.

        A result with a ``question`` ran nothing: the caller's person is to answer it. Cancelling the wait never ends a
        command.
        """
        trace = Trace()
        with self._telemetry.call(call, trace) as ended:
            return ended(await self._called(call, asker, trace))

    async def _called(self, call: ToolCall, asker: Asker | None, trace: Trace) -> ToolResult:
        await self._turns.begin(rate_key(call.principal), CALL_SECONDS)
        recorded, unsafe = gate_secrets.learn(self._masking, call.principal, call.arguments)
        with self._telemetry.part("audit.begin"):
            entry = await self._audit.begin(
                call.call_id, call.principal, call.name, recorded,
                agent=call.agent, client_call_id=call.client_call_id,
            )  # fmt: skip
        head: tuple[int, str] | None = None
        failed = partial(self._failed, call)
        try:
            if unsafe:
                raise unsafe
            result = await self._masked(await self._judge(call, asker, trace), call, trace)
            head = self._end(entry, trace)
        except UnknownTool as error:
            trace.failed(error)
            raise
        except AiSessionError as error:
            trace.failed(error)
            result = await failed(error.code, error.message, error.suggestion, **more_of(error))
        except OSError as error:
            trace.failed(error)
            code, suggestion = refusal(error)
            result = await failed(code, f"the system refused: {error.strerror or error}", suggestion)
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

    async def _judge(self, call: ToolCall, asker: Asker | None, trace: Trace) -> ToolResult:
        tool = self._tools.get(call.name)
        if tool is None or not (tool.listed or call.unlisted):
            raise unknown_tool(self._masking.masked(call.name), [t.name for t in self._tools.values() if t.listed])
        self._audit.require_room(tool.effect)
        require_scope(call.principal, tool.name, tool.effect)
        self._count(call.principal, tool.effect, opens=tool.name in OPENING)
        arguments, ignored = validate(tool, call.arguments)
        reach = reach_of_call(call)
        make_context = partial(
            Context, call.principal, VisibleSessions(self._sessions, reach), self._workspaces, self._limits,
            call.profile, spans=self._masking.spans, patience_seconds=call.patience_seconds,
        )  # fmt: skip
        context = make_context()
        subject = tool.subject(context, arguments)
        if subject.session:
            await subject.session.up_to_date()
        gate_secrets.learn_session(self._masking, self._sessions, subject)
        trace.facts |= facts_of(subject)
        action = action_of(call, tool, subject)
        decision = self._policy.decide(action)
        by_rule = decision.verdict == "allow" and not decision.rule.startswith("default:")
        if by_rule and not action.boxed and (written := await self._unsure(subject)):
            action = replace(action, written=written)
            decision = self._policy.decide(action)
        if self._hooks and not (tool.name in ENDING or (tool.name == LISTING and call.principal.kind == "person")):
            with self._telemetry.part("policy.hook"):
                judged = await self._hooks.judge(call.principal, decision, partial(self._known, call, tool, subject))
            # Another mode may hold by now.
            decision = stricter(judged, self._policy.decide(action))
        trace.rule = decision.rule
        trace.facts["decision"] = self._told(decision)
        if decision.verdict == "deny":
            raise Denied(f"{tool.name} is denied by {decision.rule}: {decision.reason}", suggestion=DENIED)
        if decision.verdict == "ask":
            question = await self._question(
                call, subject, arguments, decision, await self._prefix(subject, decision.rule)
            )
            with self._telemetry.part("consent.wait"):
                deferred = await self._agreed(question, asker, call, trace)
            if deferred:
                return deferred
        if subject.session and tool.effect is not Effect.READ:
            self._domains.acted(subject.session.spec.session_id, call.principal)
        if subject.level is not SandboxLevel.NONE and tool.effect is not Effect.READ:
            await self._written.add_of(subject, opens=tool.name in OPENING)
        with self._telemetry.part("tool.run"):
            result = await self._run(tool, arguments, make_context(subject=subject), call, trace, reach.owner)
        self._rates.spend(rate_key(call.principal), "output_bytes", len(result.text))
        trace.outcome = "ok"
        if tool.name == "close_session" and subject.session:
            self._consent.end_session(subject.session.spec.session_id)
            self._written.forget(subject.session.spec.session_id)
        if tool.name == "create_session" and (made := self._sessions.find(str(result.structured.get("session_id")))):
            subject = Subject(made, made.spec.profile, made.spec.level)
            trace.facts |= facts_of(subject)
        trace.facts |= {k: result.structured[k] for k in OUTCOME_FACTS if k in result.structured}
        if subject.session and tool.name in REPORTING:
            ended = "" if result.structured.get("status") == "running" else str(result.structured.get("command_id", ""))
            result = with_notices(result, await self._sessions.boxes.news(subject.session.spec.session_id, ended))
        if subject.session:
            trace.box = box_of(subject)
        return with_note(result, ignored and await self._echo(ignored, call, call.arguments))

    async def _agreed(self, question: Question, asker: Asker | None, call: ToolCall, trace: Trace) -> ToolResult | None:
        """None once a person agreed; a result when the client is to ask its person first. Raises Denied, ConsentNeeded,
        RateLimited."""
        answer = await self._consent.obtain(question, asker, call.state, call.answers)
        if isinstance(answer, Deferred):
            trace.outcome, trace.facts["consent"] = "denied", {"id": answer.question.question_id, "deferred": True}
            return ToolResult(question.message, {}, question=answer.question, state=answer.state)
        trace.facts["consent"] = {"by": answer.by, "scope": answer.scope}
        return None

    def _known(self, call: ToolCall, tool: Tool, subject: Subject) -> dict[str, Any]:
        """What a hook is told."""
        session, place, box = subject.session, subject.place, subject.profile
        return {
            **call_facts(call.principal, tool.name, tool.effect, self._masking, call.arguments),
            "agent": call.agent,
            "mode": self._policy.mode,
            "session": {"id": session.spec.session_id, "name": session.spec.name} if session else None,
            "directory": session.at.cwd if session else place.directory if place else "",
            "box": {"profile": box.name, "level": str(subject.level), "workspace": box.workspace},
        }

    async def _question(
        self, call: ToolCall, subject: Subject, arguments: Arguments, decision: Decision, prefix: str
    ) -> Question:
        place, session = subject.place, subject.session
        given = arguments.model_dump(exclude={"call_key"})
        first = subject.command or subject.path or (place.directory if place else "")
        if subject.raw_input:
            first = " ".join([repr(given.get("text", "")), *given.get("keys", ())])
        about = told(given, first)
        masked = self._masking.masked(about)
        at = session.at.cwd if session else "new"
        where = f"below {place.workspace}" if subject.path and place else f"{at}, sandbox {box_of(subject)}"
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
            reason=await self._echo(decision.reason, call, given),
            policy=self._policy.digest,
            prefix=prefix if masked == subject.command else "",
            folder=self._folder(subject, decision.rule),
        )

    async def _prefix(self, subject: Subject, rule: str) -> str:
        """The first words of the command that an answer may cover; none where a box may write what it reads."""
        prefix = offered(subject.command or "", rule)
        unboxed = subject.level is SandboxLevel.NONE
        return "" if prefix and unboxed and await self._unsure(subject) else prefix

    def _folder(self, subject: Subject, rule: str) -> str:
        """The directory of a session to come, below which an answer may cover every one: outside the workspaces only,
        which nothing but its place keeps it from, and without secrets in its name."""
        place = subject.place
        if not place or subject.session or subject.path or rule != OUTSIDE:
            return ""
        return place.directory if self._masking.masked(place.directory) == place.directory else ""

    async def _unsure(self, subject: Subject) -> str:
        """Why a box may write what the command of a call outside of any box reads; empty where none may."""
        return "" if subject.command is None else await self._written.why(subject, parse(subject.command).commands)

    async def _run(
        self, tool: Tool, arguments: Arguments, context: Context, call: ToolCall, trace: Trace, owner: str
    ) -> ToolResult:
        key: str = getattr(arguments, "call_key", "")

        async def run(begun: float) -> ToolResult:
            return await self._masked(await tool.run(replace(context, first_seen=begun), arguments), call, trace)

        if not key:
            return await tool.run(context, arguments)
        plain = arguments.model_dump(exclude={"call_key"})
        return await self._call_keys.once(tool.name, key, plain, run, resumable=tool.resumable, owner=owner)

    async def _failed(self, call: ToolCall, code: str, message: str, suggestion: str, **more: Any) -> ToolResult:
        told = gate_secrets.failed(self._masking, call.arguments, code, message, suggestion, **more)
        return await self._turns.run(rate_key(call.principal), told)

    async def _echo(self, text: str, call: ToolCall, given: Any) -> str:
        return await self._turns.run(rate_key(call.principal), self._masking.echo(text, given))

    async def _masked(self, result: ToolResult, call: ToolCall, trace: Trace) -> ToolResult:
        """The result without secrets. A question was masked when it was made."""
        if result.question:
            return result
        result, count = await self._turns.run(rate_key(call.principal), masked(result, self._masking.mask))
        if count:
            trace.facts["redactions"] = count
        return result


DENIED = "do something else, or ask the person, whose configuration says so"
OPENING = ("create_session", "run_python")
REPORTING = ("execute_command", "interrupt_command", "read_output", "send_input")
"""Tools whose results say what appeared in the session's workspace."""
OUTCOME_FACTS = ("status", "exit_code", "command_id", "omitted_bytes")
