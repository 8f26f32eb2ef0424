"""The steps of one call between its two audit records, in the order of ``gate.ORDER``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ai_session.errors import Denied
from ai_session.gate import secrets as gate_secrets
from ai_session.gate.api import Asker
from ai_session.gate.consent.consent import Deferred
from ai_session.gate.consent.question import ask_about, describe_call, narrowed
from ai_session.gate.consent.store import overtaken
from ai_session.gate.hook import call_facts
from ai_session.gate.parts import GateParts
from ai_session.gate.policy.policy import OUTSIDE, Action, Decision, stricter
from ai_session.gate.policy.prefix import offered_prefix
from ai_session.gate.results import masked, unknown_tool, validate, with_note, with_notices
from ai_session.gate.subject import action_of, box_of, facts_of
from ai_session.gate.trace import Trace, rate_key
from ai_session.models import Effect, Question, SandboxLevel, ToolCall, ToolResult
from ai_session.sessions.ownership import require_scope, visibility_of_call
from ai_session.sessions.visible import VisibleSessions
from ai_session.system.shell_words import parse
from ai_session.tools.base import Arguments, Context, Subject, Tool

DENIED = "do something else, or ask the person, whose configuration denies it"
OUTCOME_FACTS = ("status", "exit_code", "command_id", "omitted_bytes")


@dataclass(slots=True, repr=False)
class CallSteps:
    """One call: its input, and what its steps have determined so far. A step that refuses raises."""

    parts: GateParts
    call: ToolCall
    asker: Asker | None
    trace: Trace
    began: float = field(default_factory=time.monotonic)
    tool: Tool = field(init=False)
    arguments: Arguments = field(init=False)
    ignored: str = field(init=False)
    owner: str = field(init=False)
    context: Context = field(init=False)
    subject: Subject = field(init=False)
    directory: str = field(init=False, default="")
    action: Action = field(init=False)
    decision: Decision = field(init=False)
    policy_sha256: str = field(init=False)
    """The digest of the policy that decided."""
    result: ToolResult = field(init=False)

    async def look_up_tool(self) -> None:
        """Find the tool. Raises UnknownTool."""
        tools = self.parts.tools
        tool = tools.get(self.call.name)
        if tool is None or not (tool.listed or self.call.unlisted):
            name = self.parts.masking.masked(self.call.name)
            raise unknown_tool(name, [tool.name for tool in tools.values() if tool.listed])
        self.tool = tool

    async def require_room_in_audit(self) -> None:
        """Raise StorageFull for a call that changes something and whose end could not be recorded."""
        self.parts.audit.require_room(self.tool.effect)

    async def require_scope(self) -> None:
        """Raise InsufficientScope if the caller's token does not allow the call."""
        require_scope(self.call.principal, self.tool.name, self.tool.effect)

    async def count_rate(self) -> None:
        """Count the call. Raises RateLimited."""
        self.parts.count(self.call.principal, self.tool.effect, opens=self.tool.opens)

    async def validate_arguments(self) -> None:
        """Check the arguments. Raises InvalidArguments."""
        self.arguments, self.ignored = validate(self.tool, self.call.arguments)

    async def find_subject(self) -> None:
        """Determine which session, command or file the call is about. Raises the tool's error if it does not exist."""
        call = self.call
        parts = self.parts
        visibility = visibility_of_call(self.call)
        self.owner = visibility.owner
        self.context = Context(
            call.principal,
            VisibleSessions(parts.sessions, visibility),
            parts.workspaces,
            parts.limits,
            call.profile,
            spans=parts.masking.spans,
            patience_seconds=call.patience_seconds,
            began=self.began,
        )
        self.subject = subject = self.tool.subject(self.context, self.arguments)
        if subject.session:
            await subject.session.reader.up_to_date()
            self.directory = subject.session.cwd
        gate_secrets.learn_session(parts.masking, parts.sessions, subject)
        self.trace.facts |= facts_of(subject)

    async def ask_policy(self) -> None:
        """Let the policy decide; again if a rule allows, outside any box, what reads files that a box may have
        written."""
        self.action = action_of(self.call, self.tool, self.subject)
        self.decision = self.parts.policy.decide(self.action)
        by_rule = self.decision.verdict == "allow" and not self.decision.rule.startswith("default:")
        if by_rule and not self.action.boxed and (written := await self._why_unsure()):
            self.action = replace(self.action, written=written)
            self.decision = self.parts.policy.decide(self.action)
        self.policy_sha256 = self.parts.policy.digest

    async def ask_hooks(self) -> None:
        """Run the hooks, which can only be stricter than the rules. Raises HookFailed."""
        principal, tool = self.call.principal, self.tool
        if self.parts.hooks and not (tool.ends_only or (tool.needed_to_end and principal.kind == "person")):
            with self.parts.telemetry.part("policy.hook"):
                judged = await self.parts.hooks.judge(principal, self.decision, self._hook_facts)
            # The mode may have changed meanwhile.
            self.decision = stricter(judged, self.parts.policy.decide(self.action))
            self.policy_sha256 = self.parts.policy.digest

    async def refuse_denied(self) -> None:
        """Raise Denied if that is the decision."""
        decision = self.decision
        self.parts.record_decision(self.trace, decision)
        if decision.verdict == "deny":
            raise Denied(f"{self.tool.name} is denied by {decision.rule}: {decision.reason}", suggestion=DENIED)

    async def ask_person(self) -> ToolResult | None:
        """Ask a person if the decision is ``ask``. Returns None once a person has agreed, or a result if the client
        must ask its person first. Raises Denied, ConsentNeeded, RateLimited."""
        if self.decision.verdict != "ask":
            return None
        question = await self._question()
        call = self.call
        trace = self.trace
        with self.parts.telemetry.part("consent.wait"):
            answer = await self.parts.consent.obtain(question, self.asker, call.state, call.answers)
        if isinstance(answer, Deferred):
            trace.outcome = "denied"
            trace.facts["consent"] = {"id": answer.question.question_id, "deferred": True}
            return ToolResult(question.message, {}, question=answer.question, state=answer.state)
        trace.facts["consent"] = {"by": answer.by, "scope": answer.scope}
        return None

    async def remember_use(self) -> None:
        """Record who acts in a session, to ask them about domains its programs want, and where its box may write."""
        if self.tool.effect is Effect.READ:
            return
        if session := self.subject.session:
            self.parts.domains.record_caller(session.spec.session_id, self.call.principal)
        if self.subject.level is not SandboxLevel.NONE:
            await self.parts.written.add_of(self.subject, opens=self.tool.opens)

    async def check_unchanged(self) -> None:
        """Raise Denied if what was judged, or shown to a person, is no longer what would be done.

        While hooks ran and people were asked, the policy, a session's directory or a link may have changed.
        """
        name, session = self.tool.name, self.subject.session
        if self.parts.policy.digest != self.policy_sha256:
            now = self.parts.policy.decide(self.action)
            if stricter(self.decision, now).verdict != self.decision.verdict:
                raise overtaken(name, "the policy")
        if session is None:
            found = self.tool.subject(self.context, self.arguments)
            if found.session is None and found != self.subject:
                raise overtaken(name, "the target of its path")
        elif self._by_directory and session.cwd != self.directory:
            raise overtaken(name, "the directory of its session")

    @property
    def _by_directory(self) -> bool:
        """Whether the decision is about what a command does in the directory that its session was in."""
        typed = self.subject.command is not None or self.subject.raw_input
        by_rule = not self.action.boxed and not self.decision.rule.startswith("default:")
        return typed and (self.decision.verdict == "ask" or by_rule)

    async def run_tool(self) -> None:
        """Run the tool, once per call key, in the very session that was judged, whatever has its name now."""
        with self.parts.telemetry.part("tool.run"):
            self.result = await self._run(replace(self.context, subject=self.subject))
        self.parts.rates.spend(rate_key(self.call.principal), "output_bytes", len(self.result.text))
        self.trace.outcome = "ok"

    async def record_outcome(self) -> None:
        """Record the outcome. Approvals for a session end when it is closed."""
        parts, structured = self.parts, self.result.structured
        if self.tool.closes and self.subject.session:
            closed = self.subject.session.spec.session_id
            parts.consent.end_session(closed)
            parts.written.forget(closed)
        opened = str(structured.get("session_id", "")) if self.tool.opens else ""
        if opened and (made := parts.sessions.find(opened)):
            self.subject = Subject(made, made.spec.profile, made.spec.level)
            self.trace.facts |= facts_of(self.subject)
        self.trace.facts |= {name: structured[name] for name in OUTCOME_FACTS if name in structured}

    async def add_notes(self) -> ToolResult:
        """Return the result, with what appeared in the workspace and the arguments that were ignored."""
        if session := self.subject.session:
            self.trace.box = box_of(self.subject)
            if self.tool.reports:
                facts = self.result.structured
                ended = "" if facts.get("status") == "running" else str(facts.get("command_id", ""))
                notices = await self.parts.sessions.boxes.news(session.spec.session_id, ended)
                self.result = with_notices(self.result, notices)
        return with_note(self.result, self.ignored and await self._without_secrets(self.ignored, self.call.arguments))

    async def masked(self, result: ToolResult) -> ToolResult:
        """Return the result without secrets. A question was masked when it was created."""
        if result.question:
            return result
        steps = masked(result, self.parts.masking.mask, self.parts.masking.is_clean)
        result, count = await self.parts.sessions.turns.run(rate_key(self.call.principal), steps)
        if count:
            self.trace.facts["redactions"] = count
        return result

    async def failed(self, code: str, message: str, suggestion: str, **more: Any) -> ToolResult:
        """Return an error result without the secrets of what was given."""
        steps = gate_secrets.failed(self.parts.masking, self.call.arguments, code, message, suggestion, **more)
        return await self.parts.sessions.turns.run(rate_key(self.call.principal), steps)

    async def _run(self, context: Context) -> ToolResult:
        tool = self.tool
        arguments = self.arguments
        session = self.subject.session
        judged = arguments
        if session and getattr(arguments, "session_id", ""):
            judged = arguments.model_copy(update={"session_id": session.spec.session_id})
        key: str = getattr(arguments, "call_key", "")
        if not key:
            return await tool.run(context, judged)

        repeated = True

        async def run(begun: float, unique: str) -> ToolResult:
            nonlocal repeated
            repeated = begun > 0
            # What the call begins is known by this name, not by its key, which other callers and tools may use as well.
            keyed = judged.model_copy(update={"call_key": unique})
            return await self.masked(await tool.run(replace(context, first_seen=begun), keyed))

        who = self.call.principal
        result = await self.parts.call_keys.once(
            tool.name,
            key,
            arguments.model_dump(exclude={"call_key"}),
            run,
            resumable=tool.resumable,
            opens=tool.opens,
            session=session.spec.session_id if session else "",
            caller=f"{self.owner}\0{who.kind}\0{who.client}",
        )
        if repeated:
            self.trace.facts["repeated"] = True
        return result

    async def _why_unsure(self) -> str:
        """Return why a box may write what the command of a call outside any box reads; empty if none may."""
        command = self.subject.command
        return "" if command is None else await self.parts.written.why(self.subject, parse(command).commands)

    def _hook_facts(self) -> dict[str, Any]:
        call = self.call
        tool = self.tool
        parts = self.parts
        session = self.subject.session
        start = self.subject.start
        box = self.subject.profile
        return {
            **call_facts(call.principal, tool.name, tool.effect, parts.masking, call.arguments),
            "agent": call.agent,
            "mode": parts.policy.mode,
            "session": {"id": session.spec.session_id, "name": session.spec.name} if session else None,
            "directory": session.cwd if session else start.directory if start else "",
            "box": {"profile": box.name, "level": str(self.subject.level), "workspace": box.workspace},
        }

    async def _question(self) -> Question:
        call = self.call
        subject = self.subject
        mask = self.parts.masking.masked
        start = subject.start
        session = subject.session
        rule = self.decision.rule
        given = self.arguments.model_dump(exclude={"call_key"})
        first = subject.command or subject.path or (start.directory if start else "")
        if subject.raw_input:
            keys: Sequence[str] = given.get("keys", ())
            first = " ".join([repr(given.get("text", "")), *keys])
        if start and start.real not in ("", first):
            given["leads to"] = start.real
        if call.profile:
            given["profile"] = call.profile
        about = describe_call(given, first)
        shown = mask(about)
        at = self.directory if session else "new"
        where = f"below {start.workspace}" if subject.path and start else f"{at}, sandbox {box_of(subject)}"
        prefix = await self._prefix(rule) if shown == subject.command else ""
        return ask_about(
            call.principal,
            call.name,
            given | self._resolved(first),
            session=session.spec.session_id if session else "",
            name=session.spec.name if session else given.get("name", ""),
            about=shown,
            where=mask(where),
            detail=narrowed(about, shown),
            rule=rule,
            reason=await self._without_secrets(self.decision.reason, given),
            policy=self.parts.policy.digest,
            prefix=prefix,
            folder=self._folder(rule),
        )

    def _resolved(self, first: str) -> dict[str, str]:
        """Return what an answer is bound to besides the arguments: a path without links, or a directory."""
        typed = self.subject.command is not None or self.subject.raw_input
        return {"directory": self.directory} if typed else {"path": first} if self.subject.start else {}

    async def _prefix(self, rule: str) -> str:
        """Return the first words of the command that an answer may cover; none if a box may write what it reads."""
        prefix = offered_prefix(self.subject.command or "", rule)
        unboxed = self.subject.level is SandboxLevel.NONE
        return "" if prefix and unboxed and await self._why_unsure() else prefix

    def _folder(self, rule: str) -> str:
        """Return the directory of a session to be created, below which an answer may cover every one: only outside the
        workspaces, where its location is the only objection, and if its name has no secrets."""
        start = self.subject.start
        if not start or self.subject.session or self.subject.path or rule != OUTSIDE:
            return ""
        return start.directory if self.parts.masking.masked(start.directory) == start.directory else ""

    async def _without_secrets(self, text: str, given: Any) -> str:
        return await self.parts.sessions.turns.run(rate_key(self.call.principal), self.parts.masking.echo(text, given))
