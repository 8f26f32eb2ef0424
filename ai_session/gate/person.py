"""The gate's doors for people: attaching, answering, stopping and the like, judged and recorded as calls are."""

from __future__ import annotations

import asyncio
import os
import secrets
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ai_session.audit.log import AuditLog
from ai_session.errors import Denied, InvalidArguments, StorageFull
from ai_session.gate import secrets as gate_secrets
from ai_session.gate.consent.consent import Consent, Watch
from ai_session.gate.consent.person_check import Signature, Way
from ai_session.gate.hook import Hooks, call_facts
from ai_session.gate.policy.mode import PolicyInForce
from ai_session.gate.policy.policy import Action, Decision
from ai_session.gate.rate_limits import RateLimiter
from ai_session.gate.redaction.known_secrets import Masking
from ai_session.gate.trace import LOST, Program, Trace, rate_key
from ai_session.gate.written import WrittenDirectories
from ai_session.models import Answer, Effect, Principal, Question
from ai_session.sessions.cursor import Cursor
from ai_session.sessions.lease import Lease
from ai_session.sessions.manager import SessionManager
from ai_session.sessions.names import checked_name
from ai_session.sessions.ownership import APPROVE, reach_of, require_scope, shared_with
from ai_session.sessions.report import recording_source
from ai_session.sessions.session import Session
from ai_session.sessions.viewer import Viewer
from ai_session.sessions.visible import VisibleSessions
from ai_session.terminal.recording import write_recording

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ai_session.audit.log import Entry
    from ai_session.gate.consent.person_signature import PublicKey
    from ai_session.gate.consent.store import Grant

STOP, BOXED = "stop", "sandbox"
CONFIGURED = "your configuration says so: ai-session config show"


class Doors:
    """What a person may do beside the tools; the part of the gate that calls of tools share with it."""

    def __init__(
        self,
        sessions: SessionManager,
        policy: PolicyInForce,
        rates: RateLimiter,
        consent: Consent,
        masking: Masking,
        audit: AuditLog,
        written: WrittenDirectories | None = None,
    ) -> None:
        self._written = written or WrittenDirectories()
        self._hooks = Hooks(policy.hooks, self._written)
        self._sessions = sessions
        self._policy = policy
        self._rates = rates
        self._consent = consent
        self._masking = masking
        self._audit = audit

    def _visible(self, principal: Principal) -> VisibleSessions:
        return VisibleSessions(self._sessions, reach_of(principal))

    def _end(self, entry: Entry, trace: Trace) -> tuple[int, str]:
        return self._audit.end(entry, trace.outcome, rule=trace.rule, code=trace.code, facts=trace.facts)

    def _count(self, principal: Principal, effect: Effect, *, opens: bool = False) -> None:
        key = rate_key(principal)
        self._rates.acquire(key, "output_bytes", 0)
        self._rates.acquire(key, "read" if effect is Effect.READ else "effect")
        if opens:
            self._rates.acquire(key, "sessions")

    def _told(self, decision: Decision) -> dict[str, str]:
        return {"verdict": decision.verdict, "policy": self._policy.digest, "mode": self._policy.mode}

    @asynccontextmanager
    async def _recorded(
        self,
        principal: Principal,
        name: str,
        effect: Effect,
        arguments: Mapping[str, Any],
        *actions: Action,
        anyone: bool = False,
        agent: str = "",
        scope: str = "",
    ) -> AsyncGenerator[Trace]:
        """What a person, or with ``anyone`` a client, does beside the tools: judged, as all of ``actions`` where it is
        several, and recorded. ``scope``: what a connection needs that has said what it is for."""
        arguments, unsafe = gate_secrets.learn(self._masking, principal, arguments)
        entry = await self._audit.begin("call_" + secrets.token_urlsafe(16), principal, name, arguments, agent=agent)
        trace = Trace(call_id=entry.call_id)
        try:
            if unsafe and name != STOP:
                raise unsafe
            if name != STOP:
                self._audit.require_room(effect)
                self._count(principal, effect)
            if principal.kind != "person" and not anyone:
                raise Denied(f"{name} is for a person", suggestion="ask the person to do it")
            require_scope(principal, name, effect, scope)
            for action in actions or (Action(principal, name, effect, agent=agent),):
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
        async with self._attached(principal, reference, read_only=read_only) as session:
            viewer = Viewer(session, read_only=read_only, closed=self._left(principal, session, "session.detach"))
            await viewer.resize(rows, cols)
            self._sessions.changes.look(session)
            return viewer

    async def look(
        self,
        principal: Principal,
        reference: str,
        offset: int | None,
        *,
        exact: bool,
        window_bytes: int,
        wake: Callable[[], None],
    ) -> Cursor:
        """A place of a person's own in a session's output, for which nothing else changes.

        Raises SessionNotFound, InvalidArguments, Denied.
        """
        async with self._attached(principal, reference, read_only=True) as session:
            closed = self._left(principal, session, "session.detach")
            return Cursor(session, offset, exact=exact, window_bytes=window_bytes, wake=wake, closed=closed)

    async def take_over(
        self, principal: Principal, reference: str, who: str, *, force: bool, lost: Callable[[str, str], None]
    ) -> Lease:
        """A person becomes the only one to type in a session, until the lease is released. ``lost`` is told the session
        and who took it from them. Raises SessionTakenOver, SessionExited, SessionNotFound, Denied."""
        async with self._attached(principal, reference, read_only=False) as session:
            session_id = session.spec.session_id
            released = self._left(principal, session, "session.release")
            name = self._masking.masked(who)
            lease = Lease.take(session, name, force=force, lost=partial(lost, session_id), released=released)
            self._audit.event("session.take_over", principal, session=session_id, who=name)
            return lease

    @asynccontextmanager
    async def _attached(self, principal: Principal, reference: str, *, read_only: bool) -> AsyncGenerator[Session]:
        effect = Effect.READ if read_only else Effect.EXECUTE
        action = Action(principal, "attach", effect)
        if found := self._visible(principal).find(reference):
            spec = found.spec
            action = replace(action, session=spec.name, profile=spec.profile.name, level=spec.level)
        given = {"session_id": reference, "read_only": read_only}
        async with self._recorded(principal, "attach", effect, given, action):
            session = self._visible(principal).get(reference)
            await session.up_to_date()
            yield session

    def _left(self, principal: Principal, session: Session, event: str) -> Callable[[], None]:
        return partial(self._audit.event, event, principal, session=session.spec.session_id)

    async def rename(self, principal: Principal, reference: str, name: str) -> None:
        """Give a session another name, for a person.

        Raises SessionNotFound, SessionExists, InvalidArguments, Denied.
        """
        async with self._recorded(principal, "rename", Effect.WRITE, {"session_id": reference, "name": name}):
            session = self._visible(principal).get(reference)
            try:
                self._sessions.rename(session, checked_name(name))
            except ValueError as error:
                raise InvalidArguments(f"name: {error}", fields={"name": str(error)}) from None

    async def share(self, principal: Principal, reference: str, names: list[str]) -> None:
        """Let others see and use a session as its owner does: agents, users, runs, or ``everyone``; none: nobody.

        Raises SessionNotFound, InvalidArguments, Denied.
        """
        async with self._recorded(principal, "share", Effect.WRITE, {"session_id": reference, "with": names}) as trace:
            session = self._visible(principal).get(reference)
            trace.facts["session"] = session.spec.session_id
            self._sessions.change(session, shared_with=shared_with(names))

    async def recording(self, principal: Principal, reference: str) -> Path:
        """A new file with the session as asciicast, for a person, who removes it. Raises SessionNotFound, Denied."""
        async with self._recorded(principal, "record", Effect.READ, {"session_id": reference}):
            session = self._visible(principal).get(reference)
            source = await session.work(recording_source(session))
            folder = self._sessions.runtime_directory / "recordings"
            return await asyncio.to_thread(write_recording, source, self._masking.spans, folder)

    async def approvals(self, principal: Principal) -> tuple[list[tuple[Question, Way]], list[Grant]]:
        """The open questions, each with how a yes of this person would be taken, and what was allowed for longer than
        one call. Raises Denied."""
        async with self._recorded(principal, "approvals", Effect.READ, {}):
            if not self._consent.pending():
                return [], self._consent.grants()
            standing = await self._consent.person.standing(principal)
            pending = self._consent.pending()
            asked: list[tuple[Question, Way]] = [
                (question, self._consent.way(question, principal, standing)) for question in pending
            ]
            return asked, self._consent.grants()

    async def person(self, principal: Principal) -> dict[str, Any]:
        """Whether the one who speaks is known to be a person, the key that counts, and what a signature is made for.

        Raises Denied.
        """
        async with self._recorded(principal, "person", Effect.READ, {}):
            return await self._consent.person.facts(principal)

    async def enrol(self, principal: Principal, line: str, signature: Signature | None) -> PublicKey:
        """A person's key counts from now on. Raises InvalidArguments, SignatureNeeded, SignatureRefused, Denied."""
        async with self._recorded(principal, "enrol", Effect.READ, {"key": line}, scope=APPROVE):
            return await self._consent.person.enrol(principal, line, signature)

    async def unenrol(self, principal: Principal, signature: Signature | None) -> PublicKey:
        """No key counts from now on. Raises as ``enrol``."""
        async with self._recorded(principal, "unenrol", Effect.READ, {}, scope=APPROVE):
            return await self._consent.person.remove(principal, signature)

    async def answer(
        self, principal: Principal, question_id: str, answer: Answer, signature: Signature | None = None
    ) -> str:
        """A person's word on a question, or a denial that ends a grant; returns what it was about.

        Raises InvalidArguments for an unknown id, SignatureNeeded when nothing shows that a person speaks,
        SignatureRefused.
        """
        given = {"name": question_id, "allowed": answer.allowed, "reason": answer.reason}
        async with self._recorded(principal, "answer", Effect.READ, given, scope=APPROVE):
            if question_id.startswith("gr_") and not answer.allowed:
                self._sessions.boxes.forget_answers()
                return self._consent.revoke(question_id, principal).what
            return (await self._consent.answer(question_id, answer, principal, signature)).message

    async def watch(self, principal: Principal) -> Watch:
        """The questions this person may answer, as they come and go. Raises Denied."""
        async with self._recorded(principal, "watch", Effect.READ, {}, scope=APPROVE):
            return await self._consent.watch(principal)

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
        self, principal: Principal, argv: Sequence[str], *, profile: str, workspace: str, domains: Sequence[str] | None
    ) -> AsyncGenerator[Program]:
        """Around a program that a person runs in a box on their own terminal. Raises Denied, RateLimited, StorageFull.

        Without a ``profile`` or ``domains`` they are the configured ones; raises InvalidArguments where that is no box.
        Its end counts as lost until who runs it says more: ``outcome``, and the facts ``level`` and ``exit_code``.
        """
        template = self._sessions.boxes.template
        profile, domains = profile or template.name, template.domains if domains is None else domains
        if profile == "trusted" == template.name:
            raise InvalidArguments(f"no box is called {profile!r}", suggestion="--profile read-only or workspace")
        command = shlex.join(argv)
        given = {"command": command, "profile": profile, "working_directory": workspace, "domains": list(domains)}
        run = Action(principal, BOXED, Effect.EXECUTE, profile=profile, command=command, paths=(workspace,))
        reached = (Action(principal, BOXED, Effect.NETWORK, profile=profile, domain=name) for name in domains)
        async with self._recorded(principal, BOXED, Effect.EXECUTE, given, run, *reached) as trace:
            facts = {
                **call_facts(principal, BOXED, Effect.EXECUTE, self._masking, given),
                "agent": "", "mode": self._policy.mode, "session": None, "directory": workspace,
                "box": {"profile": profile, "level": "", "workspace": workspace},
            }  # fmt: skip
            decision = await self._hooks.judge(principal, Decision("allow", trace.rule), lambda: facts)
            if decision.verdict == "deny":
                trace.rule = decision.rule
                raise Denied(f"{BOXED} is denied by {decision.rule}: {decision.reason}", suggestion=CONFIGURED)
            await self._written.add(self._sessions.boxes.profile(profile), workspace)
            trace.outcome = LOST
            trace.facts |= {"profile": profile, "cwd": workspace, "domains": list(domains) or None}
            try:
                event = partial(self._audit.event, principal=principal, call=trace.call_id)
                yield Program(trace, event, await self._sessions.boxes.facts())
            finally:
                # It may have been killed, and its box with it.
                await self._sessions.boxes.sweep()

    async def policy(self, principal: Principal, mode: str = "", signature: Signature | None = None) -> dict[str, Any]:
        """The policy's facts, after setting the mode where one is given, which tightens for anyone.

        Raises InvalidArguments, and SignatureNeeded where it would loosen and is not a person's own word.
        """
        given = {"name": mode} if mode else {}
        async with self._recorded(principal, "policy", Effect.READ, given, scope=APPROVE if mode else "") as trace:
            if mode:
                by_person = self._policy.loosens(mode)
                if by_person:
                    trace.facts["by"] = await self._consent.person.require(
                        principal,
                        "mode",
                        {"mode": mode, "policy_sha256": self._policy.digest},
                        signature,
                        refused=f"mode {mode} is looser than {self._policy.mode}, and only a person may loosen",
                        again=f"ai-session policy mode {mode}",
                    )
                self._policy.set_mode(mode, by_person=by_person)
                trace.facts["mode"] = mode
            return self._policy.facts() | {"box_writable": [*self._written]}
