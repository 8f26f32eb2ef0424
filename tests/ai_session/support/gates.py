"""A gate whose parts are in memory and write their calls, in order, into one journal."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from ai_session.audit.log import Entry
from ai_session.errors import SignatureNeeded
from ai_session.gate.consent.consent import Asker, Deferred
from ai_session.gate.consent.person_check import Standing, Way
from ai_session.gate.consent.person_signature import PublicKey, public_key
from ai_session.gate.consent.terminal_origin import Finding, Origin
from ai_session.gate.domains import DomainQuestions
from ai_session.gate.feed import ChangeFeed
from ai_session.gate.gate import Gate
from ai_session.gate.hook import Hooks
from ai_session.gate.parts import GateParts
from ai_session.gate.policy.mode import PolicyInForce
from ai_session.gate.policy.policy import Action, Decision, Policy
from ai_session.gate.rate_limits import RateLimiter
from ai_session.gate.redaction.known_secrets import Masking
from ai_session.gate.telemetry.base import Telemetry
from ai_session.gate.written import WrittenDirectories
from ai_session.models import Answer, Effect, Principal, Question, ToolCall, ToolResult
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.spec import SessionDefaults
from ai_session.sessions.workspaces import Workspaces
from ai_session.tools.base import Context, EffectfulArguments, Limits, Subject, Tool, output

CLIENT = Principal("mcp", uid=os.getuid(), pid=7, client="test")
PERSON = Principal("person", uid=os.getuid(), pid=8)
RATES = {"read": 100, "effect": 100, "sessions": 100, "output_bytes": 1 << 20}
SECRET = "sk-ant-REDACTED" + "A" * 90
DENY = {"id": "never", "decision": "deny", "tools": ["*"]}
ASK = {"id": "first", "decision": "ask", "tools": ["*"]}


class Journal(list[str]):
    """The calls of the parts; equal ones in a row are one entry."""

    def note(self, what: str) -> None:
        if self[-1:] != [what]:
            self.append(what)


@dataclass
class Record:
    """The start and end record of a call in one. ``outcome`` is empty before the end."""

    call_id: str
    principal: Principal
    tool: str
    arguments: Mapping[str, Any]
    outcome: str = ""
    rule: str = ""
    code: str = ""
    facts: Mapping[str, Any] | None = None


class MemoryAudit:
    """An audit log in memory, whose ``require_room`` raises ``problem`` if it is set."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.records: list[Record] = []
        self.events: list[str] = []
        self.problem: Exception | None = None

    async def begin(
        self, call_id: str, principal: Principal, tool: str, arguments: Mapping[str, Any], **claims: str
    ) -> Entry:
        self._journal.note("begin")
        self.records.append(Record(call_id, principal, tool, arguments))
        entry = Entry(len(self.records), call_id, tool, 0)
        await asyncio.sleep(0)
        return entry

    def end(
        self, entry: Entry, outcome: str, *, rule: str = "", code: str = "", facts: Mapping[str, Any] | None = None
    ) -> tuple[int, str]:
        self._journal.note("end")
        record = self.records[entry.seq - 1]
        assert not record.outcome, "a second end"
        self.records[entry.seq - 1] = replace(record, outcome=outcome, rule=rule, code=code, facts=dict(facts or {}))
        return entry.seq, "head"

    def event(self, name: str, principal: Principal | None = None, **facts: Any) -> None:
        self.events.append(name)

    def require_room(self, effect: Effect | None) -> None:
        self._journal.note("room")
        if self.problem:
            raise self.problem


class JournalRates(RateLimiter):
    """The real rate limits, with a clock that stands still."""

    def __init__(self, journal: Journal, per_minute: Mapping[str, int]) -> None:
        super().__init__(per_minute, clock=lambda: 0.0)
        self._journal = journal

    def acquire(self, principal_key: str, kind: str, cost: float = 1) -> None:
        self._journal.note("rate")
        super().acquire(principal_key, kind, cost)


class JournalPolicy(PolicyInForce):
    """The real policy, with entries in the journal."""

    def __init__(self, journal: Journal, configured: Policy, path: Path) -> None:
        super().__init__(configured, path)
        self._journal = journal

    def decide(self, action: Action) -> Decision:
        self._journal.note("policy")
        return super().decide(action)


class JournalMasking(Masking):
    """The real masking, with entries in the journal."""

    def __init__(self, journal: Journal, key: Path) -> None:
        super().__init__(key, ("*_TOKEN",), ())
        self._journal = journal

    def mask(self, text: str) -> tuple[str, int]:
        self._journal.note("mask")
        return super().mask(text)


class EveryPerson:
    """A check that accepts each principal of kind ``person`` as a person."""

    async def standing(self, principal: Principal) -> Standing:
        person = principal.kind == "person"
        return Standing(Finding(Origin.LOCAL if person else Origin.AGENT, "a test says so"), person)

    async def facts(self, principal: Principal) -> dict[str, Any]:
        return {"key": None}

    async def require(self, principal: Principal, do: str, *_: object, refused: str, **more: object) -> str:
        if not (await self.standing(principal)).unsigned:
            raise SignatureNeeded(refused)
        return f"who may {do}"

    async def enrol(self, principal: Principal, line: str, signature: object) -> PublicKey:
        await self.require(principal, "enrol", refused="not enrolled")
        return public_key(line)

    async def remove(self, principal: Principal, signature: object) -> PublicKey:
        await self.require(principal, "remove", refused="not removed")
        return PublicKey(bytes(16), bytes(32))


class MemoryConsent:
    """Consent that returns or raises ``word``, or never returns if that is None."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.word: Answer | Deferred | Exception | None = Answer(True, by="test")
        self.questions: list[Question] = []
        self.asked_at = 0.0
        self.waiting = asyncio.Event()
        self.answers: list[tuple[str, Answer]] = []
        self.person = EveryPerson()

    async def obtain(
        self, question: Question, asker: Asker | None, state: str = "", answers: Mapping[str, Any] | None = None
    ) -> Answer | Deferred:
        self._journal.note("consent")
        self.questions.append(question)
        self.asked_at = time.monotonic()
        if isinstance(self.word, Exception):
            raise self.word
        if self.word is None:
            self.waiting.set()
            await asyncio.Event().wait()
        assert self.word
        return replace(self.word, question=question) if isinstance(self.word, Deferred) else self.word

    def pending(self) -> list[Question]:
        self._journal.note("pending")
        return self.questions

    def grants(self) -> list[Any]:
        return []

    def way(self, question: Question, principal: Principal, standing: Standing) -> Way:
        return "unsigned" if standing.unsigned else "no"

    async def answer(
        self, question_id: str, answer: Answer, principal: Principal, signature: object = None
    ) -> Question:
        self._journal.note("answer")
        self.answers.append((question_id, answer))
        return self.questions[0]

    async def watch(self, principal: Principal) -> str:
        self._journal.note("watch")
        return "watch"

    def end_session(self, session: str) -> None:
        self._journal.note("end_session")


class MemoryKeys:
    """Results of calls in memory, by call key."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._results: dict[str, ToolResult] = {}

    async def once(
        self,
        tool: str,
        key: str,
        arguments: Mapping[str, Any],
        run: Callable[[float, str], Awaitable[ToolResult]],
        **more: object,
    ) -> ToolResult:
        self._journal.note("key")
        if key not in self._results:
            self._results[key] = await run(0.0, key)
        return self._results[key]


class GateSetup:
    """A gate with a tool for each effect: ``read``, ``write`` … Each calls ``act``, if set, and returns ``text``."""

    def __init__(
        self,
        home: Path,
        *rules: Mapping[str, Any],
        mode: str = "trusted",
        audit: Any = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.journal = Journal()
        self.audit = MemoryAudit(self.journal)
        self.consent = MemoryConsent(self.journal)
        self.rates = RATES.copy()
        self.ran: list[str] = []
        self.began = 0.0
        self.text = "done"
        self.act: Callable[[], Awaitable[None]] | None = None
        self.problem: Exception | None = None
        runtime = home / "runtime"
        runtime.mkdir()
        policy = JournalPolicy(self.journal, Policy(os.getuid(), mode, rules), runtime / "mode.json")
        masking = JournalMasking(self.journal, runtime / "mask.key")
        consent: Any = self.consent
        log: Any = audit or self.audit
        sessions, written = SessionManager(runtime, SessionDefaults()), WrittenDirectories()
        parts: dict[str, Any] = {
            "tools": {tool.name: tool for tool in self._tools()},
            "sessions": sessions,
            "workspaces": Workspaces((), str(home)),
            "policy": policy,
            "rates": JournalRates(self.journal, self.rates),
            "consent": consent,
            "domains": DomainQuestions(policy, consent, masking.masked),
            "masking": masking,
            "audit": log,
            "call_keys": MemoryKeys(self.journal),
            "limits": Limits(),
            "feed": ChangeFeed(sessions, consent, policy, masking, log),
            "hooks": Hooks(policy.hooks, written),
            "written": written,
            "telemetry": telemetry or Telemetry(),
        }
        self.gate = Gate(GateParts(**parts))

    def _tools(self) -> list[Tool]:
        def seen(text: str) -> str:
            self.journal.note("validate")
            if text == "invalid":
                raise ValueError("is not valid")
            return text

        class Sample(EffectfulArguments):
            text: Annotated[str, AfterValidator(seen)] = ""

        def subject(context: Context, arguments: Sample) -> Subject:
            self.journal.note("subject")
            if self.problem:
                raise self.problem
            return Subject(command=arguments.text)

        async def run(context: Context, arguments: Sample) -> ToolResult:
            self.journal.note("run")
            if self.act:
                await self.act()
            self.ran.append(arguments.text)
            self.began = context.began
            return ToolResult(self.text, {"text": self.text, "exit_code": 0})

        out = output("text")
        return [Tool(str(e), str(e), "Sample.", e, Sample, run, out, subject=subject) for e in Effect]

    async def call(self, name: str = "execute", /, principal: Principal = CLIENT, **given: Any) -> ToolResult:
        """Call a tool with the arguments ``given``; ``record`` is then the call's."""
        arguments = {"text": "x", **given}
        return await self.gate.call(ToolCall(principal, name, arguments, f"call_{len(self.audit.records) + 1}"))

    @property
    def record(self) -> Record:
        """The newest record."""
        return self.audit.records[-1]
